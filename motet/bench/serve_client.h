// A client of a completion server on this machine, ours or another that speaks the same interface.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace motet {

struct ServedAnswer {
  std::string text;
  int64_t tokens = 0, prompt = 0, cached = 0;  // of the answer, of the prompt, and of that what the server had kept
  double first = 0;                            // seconds from the request to the first token
};

/// A greedy stream without an end token. Throws Error for anything but a whole stream.
ServedAnswer ask_server(int port, const std::vector<int32_t>& prompt, int64_t max_tokens);

/// Asks the same and reads this many bytes a second of it, until the end or until `stop`. Throws as ask_server.
void read_slowly(int port, const std::vector<int32_t>& prompt, int64_t max_tokens, size_t bytes_per_second,
                 const std::atomic<bool>& stop);

/// Reads the first event of a stream, then closes the connection. Throws as ask_server.
void ask_and_leave(int port, const std::vector<int32_t>& prompt, int64_t max_tokens);

/// The body of a GET. Throws Error for another status than 200.
std::string get_from_server(int port, const std::string& path);

/// Asks /health again and again, `per_second` times, until it is destroyed: through eight connections, of which each
/// asks as soon as the others do. It computes on the server's own machine, and woken for each request it would take
/// more of it than the server does.
class HealthCaller {
 public:
  HealthCaller(int port, int64_t per_second);
  ~HealthCaller();
  HealthCaller(const HealthCaller&) = delete;

  /// Answers with status 200 so far; throws Error when one had another.
  int64_t answers() const;

 private:
  std::atomic<bool> stopped_{false}, failed_{false};
  std::atomic<int64_t> answers_{0};
  std::thread thread_;
};

}  // namespace motet
