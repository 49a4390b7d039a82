#pragma once
#include <functional>
#include <list>

#include "motet/serve/job.h"
#include "motet/serve/metrics.h"
#include "motet/serve/prefixes.h"

namespace motet {

struct SchedulerLimits {
  int64_t batch_tokens = 512;       // of prompts and running requests in one step
  int64_t cache_bytes = 1LL << 30;  // of all sequences, kept prefixes among them
  double request_seconds = 600;     // from Job::since to its end
  bool prefix_cache = true;
};

/// Which tokens a step computes: first one of each request that is being answered, then pieces of prompts, first come
/// first served, up to batch_tokens. A request begins when all that its prompt and max_tokens can take fits; from then
/// on nothing takes its place away. One thread.
class Scheduler {
 public:
  using Clock = std::function<double()>;  // seconds
  Scheduler(ServedModel&, const Tokenizer&, SchedulerLimits, Metrics&, Clock);
  ~Scheduler();

  /// Bytes that a job of these tokens takes: more than the limit can never begin.
  int64_t bytes(const Job&) const;
  void submit(Job);
  /// One step; false when there is nothing to compute now.
  bool step();
  /// Ends everything that waits or runs.
  void fail_all(int status, const std::string& message);
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }

 private:
  struct Request;
  struct Target;

  void drop_ended();
  void admit();
  void keep_prompt(Request&);
  bool make_room(int64_t bytes);
  bool takes_over(const Job&) const;
  void begin(Request&);
  void plan();
  void take(const Target&, int64_t first, std::span<const float> logits, int64_t rows);
  void take_prompt(Request&, int64_t first, std::span<const float> logits, int64_t rows);
  void begin_samples(Request&, std::span<const float> logits_V);
  void draw(Request&, size_t sample, std::span<const float> logits_V);
  void end(Request&);
  void fail(Request&, int status, const std::string& message);
  void tell_metrics();

  ServedModel& model_;
  const Tokenizer& tokenizer_;
  SchedulerLimits limits_;
  Metrics& metrics_;
  Clock clock_;
  Prefixes prefixes_;
  std::list<Request> waiting_, running_;
  std::vector<ServedPiece> pieces_;  // of the step that is planned
  std::vector<Target> targets_;
  int64_t reserved_ = 0;
};

}  // namespace motet
