#include "motet/serve/engine.h"

#include <chrono>

#include "motet/core/clock.h"
#include "motet/core/log.h"
#include "motet/core/words.h"

namespace motet {

Engine::Engine(ServedModel& model, const Tokenizer& tokenizer, EngineLimits limits, Metrics& metrics)
    : model_(model),
      limits_(limits),
      metrics_(metrics),
      scheduler_(model, tokenizer, limits.scheduler, metrics, steady_seconds),
      thread_([this] { run(); }) {}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = draining_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Engine::submit(std::vector<Job> jobs, const std::function<void()>& taken) {
  for (const Job& job : jobs)
    if (const int64_t bytes = scheduler_.bytes(job); bytes > limits_.scheduler.cache_bytes)
      throw Refused(400, text("the keys of ", job.prompt.size(), " tokens and ", job.max_tokens, " more take up to ",
                              bytes, " bytes, want at most the server's ", limits_.scheduler.cache_bytes));
  if (static_cast<int64_t>(jobs.size()) > limits_.queue)
    throw Refused(400, text("prompt: ", jobs.size(), " prompts, want at most the ", limits_.queue, " of --queue"),
                  "prompt");
  {
    const std::lock_guard lock(mutex_);
    if (draining_) throw Refused(503, "the server is about to stop");
    const auto waiting = static_cast<int64_t>(inbox_.size() + jobs.size()) + scheduled_waiting_;
    if (waiting > limits_.queue)
      throw Refused(429, text("more than ", limits_.queue, " prompts would wait, want this one later"));
    if (taken) taken();
    for (Job& job : jobs) inbox_.push_back(std::move(job));
    idle_ = false;
  }
  changed_.notify_all();
}

bool Engine::drain(double patience) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  return changed_.wait_for(lock, std::chrono::duration<double>(patience), [this] { return idle_; });
}

void Engine::run() {
  // Slow readers and the time limit are looked at again though nothing was submitted.
  constexpr auto kPause = std::chrono::milliseconds(20);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const bool nothing = scheduler_.running() + scheduler_.waiting() == 0;
      if (nothing && inbox_.empty() && !idle_) idle_ = true, changed_.notify_all();
      if (nothing && inbox_.empty()) model_.rest();
      if (nothing) changed_.wait(lock, [this] { return ending_ || !inbox_.empty(); });
      for (Job& job : inbox_) scheduler_.submit(std::move(job));
      inbox_.clear();
      if (ending_) break;
      scheduled_waiting_ = scheduler_.waiting();
    }
    bool worked = true;
    try {
      worked = scheduler_.step();
    } catch (const std::exception& error) {
      const std::string why = first_line(error.what());
      log_warn(text("serve: a step failed: ", why));
      scheduler_.fail_all(500, text("the step failed: ", why));
    }
    std::unique_lock lock(mutex_);
    scheduled_waiting_ = scheduler_.waiting();
    if (!worked && scheduler_.running() + scheduler_.waiting() > 0)
      changed_.wait_for(lock, kPause, [this] { return ending_ || !inbox_.empty(); });
  }
  scheduler_.fail_all(503, "the server stops");
}

}  // namespace motet
