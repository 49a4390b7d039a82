#include "motet/commands/train_run.h"

#include <algorithm>
#include <cmath>

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/core/progress.h"
#include "motet/core/shell.h"
#include "motet/ops/failure.h"
#include "motet/report/table.h"

namespace motet {
namespace {

bool is_finite(const ModelImpl& model) {
  return std::ranges::all_of(model.parameters(), [](const Tensor& p) { return p.isfinite().all().item<bool>(); });
}

}  // namespace

TrainRun::TrainRun(const RunConfig& run, const TextData& data, Model model, const Companions& companions,
                   const std::vector<std::string>& frozen, const std::filesystem::path& folder,
                   std::shared_ptr<Processes> processes)
    : run_(run),
      data_(data),
      companions_(companions),
      frozen_(frozen),
      folder_(folder),
      trainer_(std::move(model), data, run.train, std::move(processes)),
      checkpoints_(folder, run.train.keep_last, run.train.keep_best, run.train.async_checkpoint) {}

void TrainRun::go_on(const ResumePoint& from) {
  restore(trainer_, from);
  trainer_.processes().everyones(nlohmann::json());  // all have read what is tidied now
  if (trainer_.processes().first()) tidy_run(from);
}

std::string TrainRun::advice() const { return "; to go on: motet train --resume " + shell_quoted(folder_.string()); }

// `metrics` are null where another process writes.
TrainEvents TrainRun::events(RunMetrics* metrics, Progress& progress) {
  TrainEvents events;
  events.step = [this, metrics, &progress](const StepRecord& r) {
    evaluation_ = std::nullopt, saved_ = false;
    if (!metrics) return;
    metrics->write(r);
    if (r.skipped)
      log_warn(text("step ", r.step, " is left out: loss ", r.loss, ", gradient ", std::abs(r.gradient_norm)));
    progress.update(r.step, text("loss ", fixed(r.loss, 3)));
  };
  if (metrics) events.diagnosed = [metrics](const DiagnosisRecord& r) { metrics->write(r); };
  events.evaluated = [this, metrics](const EvalRecord& r) {
    evaluation_ = r, saved_ = false;
    if (!metrics) return;
    metrics->write(r);
    log_info(text("step ", r.step, "  validation loss ", fixed(r.loss, 4),
                  r.average ? text(" (average ", fixed(r.average->loss, 4), ")") : "",
                  r.task ? text("  accuracy ", fixed(r.task->all.accuracy(), 4)) : "",
                  r.average_task ? text(" (average ", fixed(r.average_task->all.accuracy(), 4), ")") : ""));
  };
  events.between = [this] {
    if (trainer_.checkpoint_due() || trainer_.done()) save();
  };
  return events;
}

TrainResult TrainRun::run(const RunMachine& machine, const Stopped& stopped) {
  const Processes& processes = trainer_.processes();
  std::optional<RunMetrics> metrics;
  if (processes.first()) metrics.emplace(folder_, machine, trainer_.seconds());
  if (run_.train.async_checkpoint) {
    Snapshot like = snapshot();
    if (!run_.train.average.empty()) like.average = like.model;
    if (processes.first()) checkpoints_.make_room(like);
  }
  Progress progress("training", trainer_.planned_steps() > 1 ? trainer_.planned_steps() : 0, trainer_.steps_done());
  try {
    TrainResult result = train_model(trainer_, events(metrics ? &*metrics : nullptr, progress));
    progress.finish();
    checkpoints_.wait();
    return result;
  } catch (const Interrupted&) {
    if (trainer_.steps_done() == 0) throw;
    finish(stopped, "");
    throw StoppedTogether(text("stopped at step ", trainer_.steps_done(), " of ", trainer_.planned_steps(), advice()));
  } catch (const DivergedAfterStep& error) {
    tell(stopped, error.what());
    throw Diverged(error.what() + last_checkpoint_text());
  } catch (const Diverged& error) {
    if (trainer_.steps_done() == 0) throw;
    if (!is_finite(trainer_.model())) {  // since the step before: its gradients were, its update was not
      tell(stopped, error.what());
      throw Diverged(error.what() + last_checkpoint_text());
    }
    finish(stopped, error.what());
    throw Diverged(
        text(error.what(), "; the step before it is ", checkpoint_folder(folder_, trainer_.steps_done()).string()));
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    // Another process is gone in the middle of a step, of which nothing is done yet; where each has all of the state
    // the steps before it need not be lost.
    const bool whole = !run_.train.shard_optimizer && run_.train.minutes == 0;
    if (processes.first() && whole && trainer_.steps_done() > 0 && !processes.lost().empty())
      finish(stopped, "another process is gone");
    throw;
  }
}

TrainResult TrainRun::scored_again() {
  return {.steps = {}, .evals = {trainer_.evaluate()}, .seconds = trainer_.seconds()};
}

std::optional<std::filesystem::path> TrainRun::last_checkpoint() const {
  const std::vector<StoredCheckpoint> all = stored_checkpoints(folder_);
  return all.empty() ? std::nullopt : std::optional(all.back().folder);
}

Snapshot TrainRun::snapshot() {
  const auto files = [&] { return model_files(trainer_.model(), companions_.files, companions_.token_ids); };
  Snapshot snapshot{.state = run_state(trainer_, run_, data_, frozen_, evaluation_),
                    .model = files(),
                    .optimizer = trainer_.tensors()};
  if (trainer_.average().ready()) {
    const WeightAverage::Applied averaged(trainer_.average());
    snapshot.average = files();
  }
  return snapshot;
}

void TrainRun::save() {
  if (saved_) return;
  Processes& processes = trainer_.processes();
  if (processes.first()) {
    checkpoints_.save(snapshot());
  } else if (run_.train.shard_optimizer) {
    snapshot();  // all have a part of it
  }
  processes.set_advice(advice());
  saved_ = true;
}

std::string TrainRun::last_checkpoint_text() const {
  const auto last = last_checkpoint();
  return last ? "; the last checkpoint is " + last->string() : "; there is no checkpoint";
}

void TrainRun::finish(const Stopped& stopped, const std::string& why) {
  save();
  tell(stopped, why);
}

void TrainRun::tell(const Stopped& stopped, const std::string& why) {
  if (!trainer_.processes().first()) return;
  checkpoints_.wait();
  try {
    stopped(why);
  } catch (const std::exception& error) {
    log_warn(text("report.html is not written: ", told(error)));
  }
}

}  // namespace motet
