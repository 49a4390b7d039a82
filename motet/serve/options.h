#pragma once
#include "motet/core/fields.h"

namespace motet {

/// What `motet serve` can be told beside the limits of its connections (motet/http/options.h).
struct ServeOptions {
  std::string address = "127.0.0.1";
  int64_t port = 8080;
  std::string name;          // "": the model folder's
  std::string api_key_file;  // "": MOTET_API_KEY, or none
  std::string cors_origin;   // "": none
  int64_t cache_bytes = 0;   // 0: 60 % of the free memory
  int64_t batch_tokens = 512, queue = 128;
  double request_seconds = 600, drain_seconds = 30;
  bool no_prefix_cache = false, no_request_log = false;
};
const Fields<ServeOptions>& serve_options();

}  // namespace motet
