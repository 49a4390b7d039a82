#include "motet/bench/serve_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>

#include "motet/bench/serve_client.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"

namespace motet {
namespace {

// Threads whose first exception the end throws.
class Clients {
 public:
  template <typename Work>
  void start(Work work) {
    failures_.push_back(std::make_unique<std::exception_ptr>());
    threads_.emplace_back([work, failure = failures_.back().get()] {
      try {
        work();
      } catch (...) {
        *failure = std::current_exception();
      }
    });
  }
  ~Clients() { wait(); }
  void end() {
    wait();
    for (const auto& failure : failures_)
      if (*failure) std::rethrow_exception(*failure);
  }

 private:
  void wait() {
    for (std::thread& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  std::vector<std::unique_ptr<std::exception_ptr>> failures_;
  std::vector<std::thread> threads_;
};

}  // namespace

double quantile(std::vector<double> values, double part) {
  if (values.empty()) fail("quantile: there are no values");
  std::sort(values.begin(), values.end());
  const double place = std::ceil(part * static_cast<double>(values.size())) - 1;
  return values[static_cast<size_t>(std::max(place, 0.0))];
}

ServeTimes measure_serving(const ServeLoad& load) {
  const size_t count = load.prompts.size();
  std::vector<ServedAnswer> answers(count);
  std::atomic<size_t> next{0};
  std::atomic<bool> ended{false};
  Clients beside, clients;
  if (load.reader_bytes == 0) beside.start([&] { ask_server(load.port, load.prompts.front(), load.max_tokens); });
  if (load.reader_bytes > 0)
    beside.start([&] {
      read_slowly(load.port, load.prompts.front(), load.max_tokens, static_cast<size_t>(load.reader_bytes), ended);
    });
  std::optional<HealthCaller> health;
  if (load.health_per_second > 0) health.emplace(load.port, load.health_per_second);
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t c = 0; c < load.clients; ++c)
    clients.start([&] {
      for (size_t i = next++; i < count && !interrupted(); i = next++)
        answers[i] = ask_server(load.port, load.prompts[i], load.max_tokens);
    });
  ServeTimes times;
  try {
    clients.end();
    times.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (health) times.health_per_second = static_cast<double>(health->answers()) / times.seconds;
  } catch (...) {
    ended = true;
    throw;
  }
  ended = true;
  beside.end();
  check_interrupt();
  for (ServedAnswer& answer : answers) {
    times.tokens += answer.tokens;
    times.first_tokens.push_back(answer.first);
    times.texts.push_back(std::move(answer.text));
  }
  return times;
}

}  // namespace motet
