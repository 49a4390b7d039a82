#include "motet/commands/train_run.h"

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/core/progress.h"
#include "motet/report/table.h"

namespace motet {

TrainRun::TrainRun(const RunConfig& run, const TextData& data, Model model, const Companions& companions,
                   const std::vector<std::string>& frozen, const std::filesystem::path& folder)
    : run_(run),
      data_(data),
      companions_(companions),
      frozen_(frozen),
      folder_(folder),
      trainer_(std::move(model), data, run.train),
      checkpoints_(folder, run.train.keep_last, run.train.keep_best, run.train.async_checkpoint) {}

void TrainRun::go_on(const ResumePoint& from) {
  restore(trainer_, from);
  tidy_run(from);
}

TrainResult TrainRun::run(const RunMachine& machine, const std::function<void()>& stopped) {
  RunMetrics metrics(folder_, machine, trainer_.seconds());
  if (run_.train.async_checkpoint) {
    Snapshot like = snapshot();
    if (!run_.train.average.empty()) like.average = like.model;
    checkpoints_.make_room(like);
  }
  Progress progress("training", trainer_.planned_steps() > 1 ? trainer_.planned_steps() : 0);
  TrainEvents events;
  events.step = [&](const StepRecord& r) {
    metrics.write(r);
    if (r.skipped) log_warn(text("step ", r.step, " is left out: loss ", r.loss, ", gradient ", r.gradient_norm));
    progress.update(r.step, text("loss ", fixed(r.loss, 3)));
    validation_loss_ = std::nullopt, saved_ = false;
  };
  events.diagnosed = [&](const DiagnosisRecord& r) { metrics.write(r); };
  events.evaluated = [&](const EvalRecord& r) {
    metrics.write(r);
    log_info(text("step ", r.step, "  validation loss ", fixed(r.loss, 4),
                  r.average ? text(" (average ", fixed(r.average->loss, 4), ")") : "",
                  r.task ? text("  accuracy ", fixed(r.task->all.accuracy(), 4)) : "",
                  r.average_task ? text(" (average ", fixed(r.average_task->all.accuracy(), 4), ")") : ""));
    validation_loss_ = r.loss, saved_ = false;
  };
  events.between = [&] {
    if (trainer_.checkpoint_due() || trainer_.done()) save();
  };
  try {
    TrainResult result = train_model(trainer_, events);
    progress.finish();
    checkpoints_.wait();
    return result;
  } catch (const Interrupted&) {
    if (trainer_.steps_done() == 0) throw;
    finish(stopped);
    throw Interrupted(text("stopped at step ", trainer_.steps_done(), " of ", trainer_.planned_steps(),
                           "; to go on: motet train --resume ", folder_.string()));
  } catch (const Diverged& error) {
    if (trainer_.steps_done() == 0) throw;
    finish(stopped);
    throw Diverged(text(error.what(), "; the step before it is ", checkpoints_.last().string()));
  }
}

Snapshot TrainRun::snapshot() {
  const auto files = [&] { return model_files(trainer_.model(), companions_.files, companions_.token_ids); };
  Snapshot snapshot{.state = run_state(trainer_, run_, data_, frozen_, validation_loss_),
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
  checkpoints_.save(snapshot());
  saved_ = true;
}

void TrainRun::finish(const std::function<void()>& stopped) {
  save();
  checkpoints_.wait();
  try {
    stopped();
  } catch (const std::exception& error) {
    log_warn(text("report.html is not written: ", error.what()));
  }
}

}  // namespace motet
