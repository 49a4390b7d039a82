#pragma once
#include "motet/core/fields.h"

namespace motet {

/// What one client, and all together, may take of the server (server.h). Times are in seconds.
struct HttpLimits {
  int64_t header_bytes = 16384, header_fields = 100, body_bytes = 4 << 20;
  int64_t connections = 256, connections_per_address = 64;
  double header_seconds = 10, body_grace_seconds = 5, idle_seconds = 60;
  int64_t body_bytes_per_second = 1024;
  int64_t waiting_bytes = 256 << 10;
  double stalled_seconds = 30, comment_seconds = 15;
};
const Fields<HttpLimits>& http_limits();

}  // namespace motet
