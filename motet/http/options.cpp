#include "motet/http/options.h"

namespace motet {

const Fields<HttpLimits>& http_limits() {
  using L = HttpLimits;
  static const Fields<L> table{
      {"header_bytes", &L::header_bytes, {256, 1 << 20}, "longest header of a request, and what may wait behind it"},
      {"header_fields", &L::header_fields, {1, 10000}, "most fields of a header"},
      {"body_bytes", &L::body_bytes, {0, 1 << 30}, "longest body of a request"},
      {"connections", &L::connections, {1, 100000}, "most connections at a time; the next ones get 503"},
      {"connections_per_address",
       &L::connections_per_address,
       {1, 100000},
       "most connections of one address (IPv6: of one /64); behind a proxy all have one"},
      {"header_seconds", &L::header_seconds, {0.01, 3600}, "time for the header of a request"},
      {"body_bytes_per_second", &L::body_bytes_per_second, {1, 1e9}, "slowest body of a request"},
      {"body_grace_seconds",
       &L::body_grace_seconds,
       {0.01, 3600},
       "how long a body may be behind that, or stand still"},
      {"idle_seconds", &L::idle_seconds, {0.01, 86400}, "how long a connection is kept without a request"},
      {"waiting_bytes",
       &L::waiting_bytes,
       {1024, 1 << 30},
       "bytes of an answer that may wait for its client before the answer pauses"},
      {"stalled_seconds",
       &L::stalled_seconds,
       {0.01, 86400},
       "how long a client may take nothing of what waits before its connection is closed"},
      {"comment_seconds",
       &L::comment_seconds,
       {0.01, 86400},
       "silence of a stream of events after which it gets a comment, which keeps proxies from closing it"},
  };
  return table;
}

}  // namespace motet
