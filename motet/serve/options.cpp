#include "motet/serve/options.h"

namespace motet {

const Fields<ServeOptions>& serve_options() {
  using S = ServeOptions;
  static const Fields<S> table{
      {"address", &S::address, "where it listens; one that others can reach needs a key"},
      {"port", &S::port, {0, 65535}, "0: any that is free, which the first line of the output names"},
      {"name", &S::name, "what clients call the model; by default the name of its folder, or of its run's"},
      {"api_key_file", &S::api_key_file, "a file of keys, one a line, # begins a comment; else MOTET_API_KEY"},
      {"cors_origin", &S::cors_origin, "the one origin of other pages that may ask, or *; by default none may"},
      {"cache_bytes", &S::cache_bytes, {0, 1e15}, "memory for the keys of all requests; 0: 60 % of what is free"},
      {"batch_tokens", &S::batch_tokens, {64, 1e6}, "tokens of a step: one of each running request, then of prompts"},
      {"queue", &S::queue, {1, 100000}, "prompts that may wait; the next ones get 429"},
      {"request_seconds", &S::request_seconds, {0.01, 1e6}, "time for a request from its arrival to its end"},
      {"drain_seconds", &S::drain_seconds, {0, 1e6}, "time for running requests after SIGTERM"},
      {"no_prefix_cache", &S::no_prefix_cache, "keep no keys of prompts for those that begin alike"},
      {"no_request_log", &S::no_request_log, "no line on stderr for each request of text"}};
  return table;
}

}  // namespace motet
