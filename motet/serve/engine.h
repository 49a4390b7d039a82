#pragma once
#include <condition_variable>
#include <mutex>
#include <thread>

#include "motet/serve/refused.h"
#include "motet/serve/scheduler.h"

namespace motet {

struct EngineLimits {
  SchedulerLimits scheduler;
  int64_t queue = 128;  // jobs that wait
};

/// The one thread that computes: it owns the scheduler, and through it the model, and takes jobs from a bounded queue.
class Engine {
 public:
  Engine(ServedModel&, const Tokenizer&, EngineLimits, Metrics&);
  /// Ends what is running with 503.
  ~Engine();

  /// Any thread, all of them or none. Throws Refused: 429 when the queue is full, 503 after drain(), 400 for one that
  /// can never fit the memory. `taken` is called when they are, before anything becomes of them.
  void submit(std::vector<Job>, const std::function<void()>& taken = {});
  /// Takes no more jobs and waits until those that run have ended, at most so long; false: some had not.
  bool drain(double seconds);

 private:
  void run();

  ServedModel& model_;
  EngineLimits limits_;
  Metrics& metrics_;
  Scheduler scheduler_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> inbox_;
  bool draining_ = false, ending_ = false, idle_ = true;
  int64_t scheduled_waiting_ = 0;
  std::thread thread_;
};

}  // namespace motet
