// `motet bench serve --soak`: very many requests of a running server, some of whose clients go away.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace motet {

struct SoakLoad {
  int port = 0;
  int64_t clients = 8, requests = 10000;
  std::vector<std::vector<int32_t>> prompts;  // asked in turn
  std::vector<std::string> texts;             // the answer to each
  int64_t max_tokens = 16;
  double leaving = 0.05;   // the part of the requests that are left after their first token
  int64_t warm_up = 1000;  // requests until memory counts
};

struct SoakResult {
  int64_t whole = 0, left = 0, lost = 0, wrong = 0;   // answers; `lost` had an error, `wrong` another text
  std::string first_error;                            // of a lost one
  int64_t warm_bytes = 0, end_bytes = 0;              // resident: after the warm-up, at the end
  int64_t running = 0, waiting = 0, cache_bytes = 0;  // by /metrics, once all clients are gone
  int64_t kept_tokens = 0;                            // of prompts, that were not computed again
};

/// Which requests are left is the same in every run. `on_request` gets the number that have ended, from any thread.
/// Throws Interrupted on Ctrl-C.
SoakResult soak_server(const SoakLoad&, const std::function<void(int64_t)>& on_request);

/// The value of a metric without labels in Prometheus' text. Throws Error when there is none.
double metric(const std::string& text, const std::string& name);

}  // namespace motet
