#include "motet/bench/serve_soak.h"

#include <chrono>
#include <mutex>
#include <random>

#include "motet/bench/serve_client.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/process.h"

namespace motet {
namespace {

constexpr int kPatience = 100;  // times a tenth of a second until the last one that left is noticed

std::vector<bool> drawn_leavers(int64_t requests, double part) {
  std::mt19937_64 random(1);
  std::vector<bool> leaves;
  for (int64_t i = 0; i < requests; ++i) leaves.push_back(static_cast<double>(random() % 1'000'000) < part * 1e6);
  return leaves;
}

}  // namespace

double metric(const std::string& text, const std::string& name) {
  const std::string begin = "\n" + name + " ";
  const size_t at = text.find(begin);
  if (at == std::string::npos) fail("metrics: ", name, " is missing");
  return std::stod(text.substr(at + begin.size()));
}

SoakResult soak_server(const SoakLoad& load, const std::function<void(int64_t)>& on_request) {
  SoakResult result;
  const std::vector<bool> leaves = drawn_leavers(load.requests, load.leaving);
  std::mutex mutex;  // of result and ended
  int64_t next = 0, ended = 0;
  const auto one = [&](int64_t i) {
    const size_t p = static_cast<size_t>(i) % load.prompts.size();
    std::string error;
    bool right = true;
    const bool leave = leaves[static_cast<size_t>(i)];
    try {
      if (leave)
        ask_and_leave(load.port, load.prompts[p], load.max_tokens);
      else
        right = ask_server(load.port, load.prompts[p], load.max_tokens).text == load.texts[p];
    } catch (const Error& e) {
      error = e.what();
    }
    const std::lock_guard lock(mutex);
    if (!error.empty() && result.lost == 0) result.first_error = error;
    ++(!error.empty() ? result.lost : leave ? result.left : right ? result.whole : result.wrong);
    if (++ended == std::min(load.warm_up, load.requests)) result.warm_bytes = resident_bytes();
    on_request(ended);
  };
  std::vector<std::thread> clients;
  for (int64_t c = 0; c < load.clients; ++c)
    clients.emplace_back([&] {
      while (!interrupted()) {
        int64_t i = 0;
        {
          const std::lock_guard lock(mutex);
          i = next++;
        }
        if (i >= load.requests) break;
        one(i);
      }
    });
  for (std::thread& client : clients) client.join();
  check_interrupt();
  result.end_bytes = resident_bytes();
  for (int i = 0; i < kPatience; ++i) {
    const std::string text = get_from_server(load.port, "/metrics");
    result.running = static_cast<int64_t>(metric(text, "motet:num_requests_running"));
    result.waiting = static_cast<int64_t>(metric(text, "motet:num_requests_waiting"));
    result.cache_bytes = static_cast<int64_t>(metric(text, "motet:cache_bytes"));
    result.kept_tokens = static_cast<int64_t>(metric(text, "motet:prefix_cache_hits_total"));
    if (result.running + result.waiting + result.cache_bytes == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return result;
}

}  // namespace motet
