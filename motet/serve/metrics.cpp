#include "motet/serve/metrics.h"

#include <algorithm>
#include <numeric>
#include <sstream>

namespace motet {

void Histogram::add(double value) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<size_t>(bucket)];
  sum_ += value;
}

std::string Histogram::lines(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  std::ostringstream out;
  out.precision(15);
  int64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    out << name << "_bucket{le=\"";
    i < bounds_.size() ? (out << bounds_[i]) : (out << "+Inf");
    out << "\"} " << below << "\n";
  }
  out << name << "_sum " << sum_ << "\n" << name << "_count " << below << "\n";
  return out.str();
}

Metrics::Metrics()
    : first_token({.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 50, 100}),
      each_token({.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2}),
      whole_request({.1, .2, .5, 1, 2, 5, 10, 20, 50, 100, 200, 500}) {}

std::string Metrics::text() const {
  std::ostringstream out;
  const auto head = [&](const std::string& name, const char* type, const char* help) {
    out << "# HELP motet:" << name << " " << help << "\n# TYPE motet:" << name << " " << type << "\n";
  };
  const auto one = [&](const std::string& name, const char* type, const char* help, double value) {
    head(name, type, help);
    out << "motet:" << name << " " << value << "\n";
  };
  out.precision(15);
  one("num_requests_running", "gauge", "Requests that are computed now.", double(running));
  one("num_requests_waiting", "gauge", "Requests that wait for their turn.", double(waiting));
  one("cache_usage_perc", "gauge", "Part of the memory for keys that running requests have reserved, 0 to 1.",
      double(cache_bytes) / double(std::max<int64_t>(1, cache_limit)));
  one("cache_bytes", "gauge", "Bytes of it.", double(cache_bytes));
  one("prefix_cache_bytes", "gauge", "Bytes of keys of prompts that have ended.", double(prefix_bytes));
  one("prefix_cache_queries_total", "counter", "Tokens of prompts that were looked for.", double(prefix_queries));
  one("prefix_cache_hits_total", "counter", "Tokens of prompts that were found.", double(prefix_hits));
  one("prompt_tokens_total", "counter", "Tokens of prompts.", double(prompt_tokens));
  one("generation_tokens_total", "counter", "Tokens that were drawn.", double(generated_tokens));
  head("request_success_total", "counter", "Requests that ended, by reason.");
  for (const auto& [reason, count] : {std::pair<const char*, const std::atomic<int64_t>&>{"stop", stopped},
                                      {"length", cut},
                                      {"abort", gone},
                                      {"error", failed}})
    out << "motet:request_success_total{finished_reason=\"" << reason << "\"} " << count << "\n";
  const auto histogram = [&](const std::string& name, const char* help, const Histogram& values) {
    head(name, "histogram", help);
    out << values.lines("motet:" + name);
  };
  histogram("time_to_first_token_seconds", "From a request's arrival to its first token.", first_token);
  histogram("time_per_output_token_seconds", "From one token of a request to its next.", each_token);
  histogram("e2e_request_latency_seconds", "From a request's arrival to its end.", whole_request);
  return out.str();
}

}  // namespace motet
