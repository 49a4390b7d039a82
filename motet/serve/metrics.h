#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace motet {

/// How many numbers were at most each bound, and their sum. Any thread may add.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  /// Lines of Prometheus' text: cumulative buckets, sum and count.
  std::string lines(const std::string& name) const;

 private:
  std::vector<double> bounds_;
  mutable std::mutex mutex_;
  std::vector<int64_t> counts_;  // the last: above all bounds
  double sum_ = 0;
};

/// What /metrics tells, under vLLM's names with another prefix. Any thread may write and read.
struct Metrics {
  std::atomic<int64_t> running{0}, waiting{0};  // requests
  std::atomic<int64_t> cache_bytes{0}, prefix_bytes{0}, cache_limit{1};
  std::atomic<int64_t> prefix_queries{0}, prefix_hits{0};  // tokens
  std::atomic<int64_t> prompt_tokens{0}, generated_tokens{0};
  std::atomic<int64_t> stopped{0}, cut{0}, gone{0}, failed{0};  // requests, by how they ended
  Histogram first_token, each_token, whole_request;             // seconds

  Metrics();
  /// Text of the format 0.0.4.
  std::string text() const;
};

}  // namespace motet
