#include "motet/compare/runs.h"

#include <cmath>
#include <mutex>
#include <thread>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/core/progress.h"
#include "motet/formats/json.h"
#include "motet/ops/device.h"
#include "motet/ops/failure.h"
#include "motet/report/metrics.h"
#include "motet/train/resume.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

constexpr double kCheckpointSeconds = 10;  // at least, between two of a run: a short run begins again instead

// One run, and the place of what it comes to: runs[place] of its arm, or swept[place] when it `chooses`.
struct Task {
  ArmResult* arm;
  RunName name;
  ModelConfig config;
  TrainOptions train;
  size_t place;
  bool chooses;
};

// The runs of all comparisons, worked off by `jobs` threads.
class Runs {
 public:
  Runs(const RunConfig& run, const TextData& data, const CompareOptions& options, std::vector<Comparison>& comparisons,
       Results& results)
      : run_(run),
        data_(data),
        options_(options),
        comparisons_(comparisons),
        results_(results),
        begun_(begun_runs()),
        metrics_(options.folder / "metrics.jsonl"),
        steps_(known_steps()),
        progress_("training", planned_steps(), steps_) {
    for (Comparison& all : comparisons_)
      for (ArmResult& arm : all.arms) {
        arm.runs.resize(options.seeds - all.first_reported());
        if (options.sweep) arm.swept.resize(options.sweep->values.size());
      }
  }

  bool work() {
    if (options_.sweep) {
      work_off(choosing());
      for (Comparison& all : comparisons_)
        for (ArmResult& arm : all.arms) choose(arm);
    }
    work_off(reported());
    progress_.finish();
    return interrupted_;
  }

 private:
  // Of runs that had begun or ended.
  int64_t known_steps() const {
    int64_t steps = 0;
    for (const auto& [name, first] : begun_) steps += static_cast<int64_t>(first.steps.size());
    for (const auto& [name, ended] : results_.ended) steps += static_cast<int64_t>(ended.result.steps.size());
    return steps;
  }

  int64_t planned_steps() const {
    const int64_t swept = options_.sweep ? static_cast<int64_t>(options_.sweep->values.size()) - 1 : 0;
    const int64_t arms = static_cast<int64_t>(options_.arms.size() * comparisons_.size());
    return run_.train.budget_steps() * arms * (options_.seeds + swept);
  }

  Task task(const Comparison& all, ArmResult& arm, size_t seed, std::optional<size_t> value) const {
    Task one{.arm = &arm,
             .name = run_name(all, arm, run_.train, seed, value),
             .config = arm.config,
             .train = arm_train(run_, arm.arm, seed),
             .place = seed - all.first_reported(),
             .chooses = false};
    if (value) all.sweep->apply(*value, one.config, one.train);
    return one;
  }

  std::vector<Task> choosing() {
    std::vector<Task> tasks;
    for (Comparison& all : comparisons_)
      for (size_t value = 0; value < all.sweep->values.size(); ++value)
        for (ArmResult& arm : all.arms) {
          tasks.push_back(task(all, arm, 0, value));
          tasks.back().place = value, tasks.back().chooses = true;
        }
    return tasks;
  }

  static void choose(ArmResult& arm) {
    arm.chosen = best_value(arm.swept);
    const bool all_ended = std::ranges::all_of(arm.swept, [](const auto& run) { return run.has_value(); });
    if (all_ended && !arm.chosen) arm.failure = text("every value of the sweep, ", arm.swept.front()->failure);
  }

  std::vector<Task> reported() {
    std::vector<Task> tasks;
    for (Comparison& all : comparisons_)
      for (size_t seed = all.first_reported(); seed < static_cast<size_t>(options_.seeds); ++seed)
        for (ArmResult& arm : all.arms)
          if (!all.sweep || arm.chosen) tasks.push_back(task(all, arm, seed, arm.chosen));
    return tasks;
  }

  void work_off(const std::vector<Task>& tasks) {
    next_ = 0;
    std::vector<std::thread> workers;
    for (int64_t i = 0; i < options_.jobs; ++i) workers.emplace_back([&] { worker(tasks); });
    for (std::thread& t : workers) t.join();
    if (failure_) std::rethrow_exception(failure_);
  }

  void worker(const std::vector<Task>& tasks) {
    at::set_num_threads(static_cast<int>(std::max<int64_t>(options_.threads / options_.jobs, 1)));
    while (true) {
      size_t next;
      {
        const std::scoped_lock lock(mutex_);
        if (failure_ || interrupted_ || next_ == tasks.size()) return;
        next = next_++;
      }
      if (has_failed(*tasks[next].arm)) continue;
      try {
        train(tasks[next]);
      } catch (const Interrupted&) {
        const std::scoped_lock lock(mutex_);
        interrupted_ = true;
        return;
      } catch (...) {
        const std::scoped_lock lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        return;
      }
    }
  }

  // The first steps of runs that had begun, those of runs that had ended go to the results. What a process that was
  // killed had half written is removed.
  std::map<RunName, TrainResult> begun_runs() const {
    for (const fs::path& folder : {options_.folder, options_.folder / "models"}) remove_leftovers(folder);
    std::map<RunName, RunBegun> begun;
    const size_t values = options_.sweep ? options_.sweep->values.size() : 1;
    for (Comparison& all : comparisons_)
      for (ArmResult& arm : all.arms)
        for (size_t seed = 0; seed < static_cast<size_t>(options_.seeds); ++seed)
          for (size_t value = 0; value < values; ++value) {
            const RunName name = run_name(all, arm, run_.train, seed, all.sweep ? std::optional(value) : std::nullopt);
            remove_leftovers(running(name) / "checkpoints");
            if (const auto stored = stored_checkpoints(running(name)); !stored.empty())
              begun[name] = {stored.back().step, !read_state(stored.back()).at("evaluation_due").get<bool>()};
          }
    return cut_metrics(options_.folder, results_, begun);
  }

  fs::path running(const RunName& name) const { return options_.folder / "running" / name.folder(); }

  // A trainer where the run stands: at its checkpoint, or at its beginning.
  std::unique_ptr<Trainer> trainer_for(const Task& task) const {
    const auto stored = stored_checkpoints(running(task.name));
    if (stored.empty()) {
      Model model(task.config, parse_device(task.train.device));
      model->initialize(static_cast<uint64_t>(task.name.seed));
      return std::make_unique<Trainer>(model, data_, task.train);
    }
    const Model model = load_model(open_checkpoint(stored.back().folder), placement(task.train));
    auto trainer = std::make_unique<Trainer>(model, data_, task.train);
    restore(*trainer, {.run = running(task.name),
                       .checkpoint = stored.back().folder,
                       .state = read_state(stored.back()),
                       .config = {}});
    return trainer;
  }

  void train(const Task& task) {
    if (take_ended(task)) return;
    try {
      const std::unique_ptr<Trainer> trainer = trainer_for(task);
      EndedRun ended{.result = train_on(*trainer, task.name), .failure = {}};
      ExtraFiles files = options_.companions.files;
      files.emplace("tokenizer.json", data_.tokenizer->to_json().dump());
      save_model_folder(options_.folder / "models" / task.name.folder(), trainer->model(), files,
                        options_.companions.token_ids);
      set_ended(task, std::move(ended));
    } catch (const Diverged& e) {
      set_ended(task, {.result = {}, .failure = e.what()});
    } catch (const Interrupted&) {
      throw;
    } catch (const UsageError& e) {
      fail_usage(task.name.shown(), ": ", e.what());
    } catch (const std::exception& e) {
      fail(task.name.shown(), ": ", told(e));
    }
  }

  // What is left of a run, behind what was known of it; a checkpoint now and then, and when it is interrupted.
  TrainResult train_on(Trainer& trainer, const RunName& name) {
    const auto before = begun_.find(name);
    CheckpointWriter checkpoints(running(name), 1, 0, false);
    const auto save = [&] {
      checkpoints.save(
          {.state = trainer.state(), .model = model_files(trainer.model(), {}), .optimizer = trainer.tensors()});
    };
    double saved_at = trainer.seconds();
    TrainEvents on = events(name);
    on.between = [&] {
      if (!trainer.checkpoint_due() || trainer.done() || trainer.seconds() < saved_at + kCheckpointSeconds) return;
      save();
      saved_at = trainer.seconds();
    };
    TrainResult result;
    if (before != begun_.end()) result = before->second;
    try {
      TrainResult rest = train_model(trainer, on);
      result.steps.insert(result.steps.end(), rest.steps.begin(), rest.steps.end());
      result.evals.insert(result.evals.end(), rest.evals.begin(), rest.evals.end());
      result.seconds = rest.seconds;
      return result;
    } catch (const Interrupted&) {
      if (trainer.steps_done() > 0) save();
      throw;
    }
  }

  bool take_ended(const Task& task) {
    const std::scoped_lock lock(mutex_);
    const auto ended = results_.ended.find(task.name);
    if (ended == results_.ended.end()) return false;
    place(task, ended->second);
    return true;
  }

  void set_ended(const Task& task, EndedRun ended) {
    std::error_code ignored;
    const std::scoped_lock lock(mutex_);
    place(task, ended);
    results_.ended[task.name] = std::move(ended);
    results_.write(options_.folder);
    fs::remove_all(running(task.name), ignored);
    fs::remove(running(task.name).parent_path(), ignored);  // when it is empty
  }

  static void place(const Task& task, const EndedRun& ended) {
    ArmResult& arm = *task.arm;
    if (task.chooses)
      arm.swept[task.place] = ended;
    else if (ended.failure.empty())
      arm.runs[task.place] = ended.result;
    else if (arm.failure.empty())
      arm.failure = text("seed ", task.name.seed, ", ", ended.failure);
  }

  TrainEvents events(const RunName& name) {
    const auto write = [this, who = name.record()](nlohmann::json record) {
      record.update(who);
      const std::scoped_lock lock(mutex_);
      metrics_.write(record);
    };
    return {.step =
                [this, write, label = name.label](const StepRecord& r) {
                  {
                    const std::scoped_lock lock(mutex_);
                    progress_.update(++steps_, text(label, " loss ", std::round(r.loss * 1000) / 1000));
                  }
                  write(metrics_record(r));
                  if (failure_set()) throw Interrupted("stopped: another run failed");
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

  const RunConfig& run_;
  const TextData& data_;
  const CompareOptions& options_;
  std::vector<Comparison>& comparisons_;
  Results& results_;
  const std::map<RunName, TrainResult> begun_;
  MetricsWriter metrics_;
  int64_t steps_;
  Progress progress_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  bool interrupted_ = false;
  size_t next_ = 0;
};

}  // namespace

Placement placement(const TrainOptions& train) {
  return {train.dtype == TrainDtype::float64 ? at::kDouble : at::kFloat, parse_device(train.device)};
}

bool train_all(std::vector<Comparison>& comparisons, const RunConfig& run, const TextData& data,
               const CompareOptions& options, Results& results) {
  Runs runs(run, data, options, comparisons, results);
  results.write(options.folder);
  return runs.work();
}

}  // namespace motet
