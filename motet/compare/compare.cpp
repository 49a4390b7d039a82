#include "motet/compare/compare.h"

#include <malloc.h>

#include <cmath>
#include <mutex>
#include <optional>
#include <thread>

#include "motet/checkpoints/model_folder.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/progress.h"
#include "motet/ops/device.h"
#include "motet/report/metrics.h"

namespace motet {
namespace {

constexpr int kSpeedRounds = 5;
constexpr double kSpeedSeconds = 60;  // of measuring, all models together; at least two rounds

size_t baseline_of(const std::vector<Arm>& arms) {
  for (size_t i = 0; i < arms.size(); ++i)
    if (arms[i].attention.at("mechanism") == "softmax") return i;
  return 0;
}

std::unique_ptr<Trainer> fresh_trainer(const ArmResult& arm, const TextData& data, const TrainOptions& train) {
  Model model(arm.config, parse_device(train.device));
  model->initialize(0);
  return std::make_unique<Trainer>(model, data, train);
}

// While it lives, glibc takes each block of 64 kB or more from the kernel and gives it back when it is freed: resident
// memory is then what is in use, and not what the heap of the models before has kept or torn into pieces.
class ExactMemory {
 public:
  ExactMemory() { ::mallopt(M_MMAP_THRESHOLD, 1 << 16); }
  ~ExactMemory() {  // where glibc's own, growing thresholds end; a block from the kernel costs page faults
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  }
  ExactMemory(const ExactMemory&) = delete;
};

// Memory of a training step beyond what was there before, on its device. A model is stepped unmeasured first and freed,
// so that what torch sets up once does not count for the arm that happens to come first.
int64_t step_memory(const ArmResult& arm, const TextData& data, const TrainOptions& train) {
  const ExactMemory exact;
  const at::Device device = parse_device(train.device);
  fresh_trainer(arm, data, train)->step();
  ::malloc_trim(0);
  const int64_t before = used_memory(device);
  if (!reset_peak_memory(device)) return 0;
  fresh_trainer(arm, data, train)->step();
  return std::max<int64_t>(peak_memory(device) - before, 0);
}

// The median of interleaved steps: noise of the machine meets all models alike. An arm that diverges is left out here:
// its runs will say why.
void measure_speed(const RunConfig& run, const TextData& data, Comparison& all, int64_t threads) {
  at::set_num_threads(static_cast<int>(threads));
  std::vector<std::unique_ptr<Trainer>> trainers(all.arms.size());
  std::vector<std::vector<double>> seconds(all.arms.size());
  Progress progress("measuring speed", static_cast<int64_t>(all.arms.size()) * (kSpeedRounds + 2));
  int64_t measured = 0;
  double total = 0;
  const auto endless = [&](size_t i) {
    TrainOptions train = arm_train(run, all.arms[i].arm, 0);
    train.steps = 1000000, train.tokens = 0, train.minutes = 0;
    return train;
  };
  const auto attempt = [&](size_t i, const auto& action) {
    check_interrupt();
    try {
      action();
    } catch (const Diverged&) {
      trainers[i] = nullptr;
    }
    progress.update(++measured, all.arms[i].arm.label);
  };
  for (size_t i = 0; i < trainers.size(); ++i)
    attempt(i, [&] { all.arms[i].peak_bytes = step_memory(all.arms[i], data, endless(i)); });
  for (size_t i = 0; i < trainers.size(); ++i) trainers[i] = fresh_trainer(all.arms[i], data, endless(i));
  for (int round = 0; round <= kSpeedRounds; ++round) {
    if (round > 2 && total > kSpeedSeconds) break;
    for (size_t i = 0; i < trainers.size(); ++i) {
      if (!trainers[i]) continue;
      attempt(i, [&] {
        const double step = trainers[i]->step().seconds;
        total += step;
        if (round > 0) seconds[i].push_back(step);  // the first step warms up
      });
    }
  }
  progress.finish();
  for (size_t i = 0; i < trainers.size(); ++i) {
    if (!trainers[i]) continue;
    std::ranges::sort(seconds[i]);
    all.arms[i].tokens_per_second =
        static_cast<double>(trainers[i]->tokens_per_step()) / seconds[i][seconds[i].size() / 2];
  }
}

// The runs of all mechanisms and seeds, worked off by `jobs` threads.
class Runs {
 public:
  Runs(const RunConfig& run, const TextData& data, const CompareOptions& options, Comparison& all)
      : run_(run),
        data_(data),
        options_(options),
        all_(all),
        metrics_(options.folder / "metrics.jsonl"),
        progress_("training", planned_steps()) {
    for (ArmResult& arm : all_.arms) arm.runs.resize(options.seeds);
  }

  void work() {
    std::vector<std::thread> workers;
    for (int64_t i = 0; i < options_.jobs; ++i) workers.emplace_back([this] { worker(); });
    for (std::thread& t : workers) t.join();
    progress_.finish();
    if (failure_) std::rethrow_exception(failure_);
  }

  bool any_finished() const {
    for (const ArmResult& arm : all_.arms)
      for (const TrainResult& run : arm.runs)
        if (!run.steps.empty()) return true;
    return false;
  }

 private:
  int64_t planned_steps() const {
    return run_.train.budget_steps() * options_.seeds * static_cast<int64_t>(all_.arms.size());
  }

  void worker() {
    at::set_num_threads(static_cast<int>(std::max<int64_t>(options_.threads / options_.jobs, 1)));
    while (true) {
      size_t next;
      {
        const std::scoped_lock lock(mutex_);
        if (failure_ || all_.interrupted || next_ == all_.arms.size() * options_.seeds) return;
        next = next_++;
      }
      ArmResult& arm = all_.arms[next % all_.arms.size()];
      if (has_failed(arm)) continue;
      try {
        train(arm, next / all_.arms.size());
      } catch (const Interrupted&) {
        const std::scoped_lock lock(mutex_);
        all_.interrupted = true;
        return;
      } catch (...) {
        const std::scoped_lock lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        return;
      }
    }
  }

  void train(ArmResult& arm, size_t index) {
    const TrainOptions own = arm_train(run_, arm.arm, index);
    const auto seed = static_cast<uint64_t>(own.seed);
    Model model(arm.config, parse_device(own.device));
    model->initialize(seed);
    Trainer trainer(model, data_, own);
    const nlohmann::json who{{"mechanism", arm.arm.label}, {"seed", seed}};
    try {
      arm.runs[index] = train_model(trainer, events(who));
    } catch (const Diverged& e) {
      const std::scoped_lock lock(mutex_);
      if (arm.failure.empty()) arm.failure = text("seed ", seed, ", ", e.what());
      return;
    } catch (const Interrupted&) {
      throw;
    } catch (const UsageError& e) {
      fail_usage(arm.arm.label, ", seed ", seed, ": ", e.what());
    } catch (const Error& e) {
      fail(arm.arm.label, ", seed ", seed, ": ", e.what());
    }
    save_model_folder(options_.folder / "models" / text(file_name(arm.arm.label), "-seed", seed), *model,
                      {{"tokenizer.json", data_.tokenizer->to_json().dump()}});
    const std::scoped_lock lock(mutex_);
    if (!arm.model) arm.model = model;
  }

  TrainEvents events(const nlohmann::json& who) {
    const auto write = [this, who](nlohmann::json record) {
      record.update(who);
      const std::scoped_lock lock(mutex_);
      metrics_.write(record);
    };
    return {.step =
                [this, write, who](const StepRecord& r) {
                  {
                    const std::scoped_lock lock(mutex_);
                    progress_.update(++steps_, text(who["mechanism"].get<std::string>(), " loss ",
                                                    std::round(r.loss * 1000) / 1000));
                  }
                  if (failure_set()) throw Interrupted("stopped: another run failed");
                  write(metrics_record(r));
                },
            .evaluated = [write](const EvalRecord& r) { write(metrics_record(r)); }};
  }

  bool has_failed(const ArmResult& arm) {
    const std::scoped_lock lock(mutex_);
    return !arm.failure.empty();
  }

  bool failure_set() {
    const std::scoped_lock lock(mutex_);
    return failure_ != nullptr;
  }

  static std::string file_name(std::string label) {
    for (char& c : label)
      if (c == ':' || c == '=' || c == '/') c = '-';
    return label;
  }

  const RunConfig& run_;
  const TextData& data_;
  const CompareOptions& options_;
  Comparison& all_;
  MetricsWriter metrics_;
  Progress progress_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  size_t next_ = 0;
  int64_t steps_ = 0;
};

}  // namespace

std::vector<double> ArmResult::finished() const {
  std::vector<double> found;
  for (const double loss : losses)
    if (!std::isnan(loss)) found.push_back(loss);
  return found;
}

const ArmResult* Comparison::lowest() const {
  const ArmResult* lowest = nullptr;
  for (const ArmResult& arm : arms)
    if (!arm.finished().empty() && (!lowest || mean(arm.finished()) < mean(lowest->finished()))) lowest = &arm;
  return lowest;
}

std::string Comparison::failures() const {
  std::string out;
  for (const ArmResult& arm : arms)
    if (!arm.failure.empty()) out += text(out.empty() ? "" : "; ", arm.arm.label, " diverged: ", arm.failure);
  return out;
}

Comparison planned_comparison(const RunConfig& run, const TextData& data, const CompareOptions& options) {
  Comparison all{.arms = {},
                 .baseline = baseline_of(options.arms),
                 .margin = options.margin,
                 .threads = std::max<int64_t>(options.threads / options.jobs, 1)};
  const int64_t vocabulary = data.tokenizer->vocabulary_size();
  const auto planned = [&](size_t i, std::optional<double> target) {
    ArmResult arm{.arm = options.arms[i]};
    try {
      arm.config = arm_config(run, arm.arm, vocabulary);
      if (target) match_size(arm.config, options.match, *target);
      arm.cost = model_cost(*Model(arm.config, at::kMeta));
    } catch (const UsageError& e) {
      fail_usage(arm.arm.label, ": ", e.what());
    }
    return arm;
  };
  const ArmResult baseline = planned(all.baseline, std::nullopt);
  const double target = size_of(baseline.config, options.match);
  for (size_t i = 0; i < options.arms.size(); ++i)
    all.arms.push_back(i == all.baseline ? baseline : planned(i, target));
  return all;
}

void run_comparison(Comparison& all, const RunConfig& run, const TextData& data, const CompareOptions& options) {
  measure_speed(run, data, all, all.threads);
  Runs runs(run, data, options, all);
  runs.work();
  at::set_num_threads(static_cast<int>(options.threads));
  if (all.interrupted && !runs.any_finished()) throw Interrupted("compare: stopped before a run had finished");
  for (ArmResult& arm : all.arms) {
    if (!arm.failure.empty()) continue;
    for (const TrainResult& r : arm.runs) arm.losses.push_back(r.steps.empty() ? NAN : r.evals.back().loss);
  }
  judge(all);
}

void judge(Comparison& all) {
  const ArmResult& baseline = all.arms[all.baseline];
  std::vector<double> p_values;
  for (ArmResult& arm : all.arms) {
    arm.difference = &arm == &baseline ? Difference() : paired_difference(arm.losses, baseline.losses);
    p_values.push_back(arm.difference.p);
  }
  const std::vector<double> corrected = holm(p_values);
  for (size_t i = 0; i < all.arms.size(); ++i) all.arms[i].p_value = corrected[i];
}

std::string verdict(const Comparison& all, const ArmResult& arm) {
  const ArmResult& baseline = all.arms[all.baseline];
  const Difference& d = arm.difference;
  if (!arm.failure.empty()) return "diverged";
  if (&arm == &baseline) return "baseline";
  if (!baseline.failure.empty()) return "no baseline";
  if (d.pairs == 0) return "not finished";
  if (d.pairs == 1) return "one seed";
  if (d.pairs < kSeedsForVerdict && d.low <= all.margin && d.high >= -all.margin) return "n too small";
  if (arm.p_value >= 0.05) return "within noise";
  return d.mean < 0 ? "better" : "worse";
}

}  // namespace motet
