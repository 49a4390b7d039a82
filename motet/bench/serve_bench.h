// `motet bench serve`: clients of a running server, each with a connection of its own, asking one request after the
// other.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace motet {

struct ServeLoad {
  int port = 0;
  int64_t clients = 1;
  std::vector<std::vector<int32_t>> prompts;  // requests, shared among the clients
  int64_t max_tokens = 128;
  int64_t health_per_second = 0;  // GET /health meanwhile
  int64_t reader_bytes = -1;      // a second that one more client reads of one more answer; 0: as it comes; -1: none
};

/// What the clients met together.
struct ServeTimes {
  double seconds = 0;                // from the first request to the last answer
  int64_t tokens = 0;                // of all answers
  std::vector<double> first_tokens;  // seconds from a request to its first token
  std::vector<std::string> texts;    // the answer to each prompt
  double health_per_second = 0;      // that were answered
};

/// Greedy streams without an end token. Throws Error for an answer other than a whole stream, Interrupted on Ctrl-C
/// between requests.
ServeTimes measure_serving(const ServeLoad&);

/// The value that a part of them does not pass; `part` from 0 to 1. Throws Error for no values.
double quantile(std::vector<double> values, double part);

}  // namespace motet
