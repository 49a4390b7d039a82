#include "motet/compare/compare.h"

#include <cmath>

#include "motet/compare/conclusions.h"
#include "motet/compare/runs.h"
#include "motet/compare/speed.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/shell.h"

namespace motet {
namespace {

// Of a comparison that goes on what was measured stays, unless there are new arms or other threads: only times of one
// run compare.
void measure(Comparison& all, const RunConfig& run, const TextData& data, Results& results) {
  bool known = true;
  for (const ArmResult& arm : all.arms) {
    const auto before = results.measured.find({arm.arm.label, all.size});
    known = known && before != results.measured.end() && before->second.threads == all.threads;
    if (before == results.measured.end() || before->second.intermediate_size == arm.config.intermediate_size())
      continue;
    fail_usage("--mechanisms: the feed-forward of ", arm.arm.label, " was ", before->second.intermediate_size,
               " wide and is ", arm.config.intermediate_size(), ", for another mechanism is the baseline");
  }
  if (!known) measure_speed(run, data, all);
  for (ArmResult& arm : all.arms) {
    Measured& own = results.measured[{arm.arm.label, all.size}];
    if (known) arm.tokens_per_second = own.tokens_per_second, arm.peak_bytes = own.peak_bytes;
    own = {arm.config.intermediate_size(), arm.tokens_per_second, arm.peak_bytes, all.threads};
  }
}

// The losses of the reported runs, and the model of the first that ended.
void collect(Comparison& all, const TrainOptions& train, const CompareOptions& options, const Results& results) {
  for (ArmResult& arm : all.arms) {
    if (!arm.failure.empty()) continue;
    for (size_t i = 0; i < arm.runs.size(); ++i) {
      const RunName name = run_name(all, arm, train, all.first_reported() + i, arm.chosen);
      const bool ended = !arm.runs[i].evals.empty() && results.ended.contains(name);
      arm.losses.push_back(ended ? arm.runs[i].evals.back().loss : NAN);
      if (ended && !arm.model)
        arm.model = load_model(open_checkpoint(options.folder / "models" / name.folder()), placement(train));
    }
  }
  judge(all);
}

bool any_finished(const std::vector<Comparison>& comparisons) {
  for (const Comparison& all : comparisons)
    for (const ArmResult& arm : all.arms)
      if (!arm.finished().empty()) return true;
  return false;
}

}  // namespace

nlohmann::json comparison_record(const RunConfig& run, const TextData& data, const CompareOptions& options) {
  nlohmann::json labels = nlohmann::json::array();
  for (const Arm& arm : options.arms) labels.push_back(arm.label);
  nlohmann::json record{
      {"mechanisms", labels},     {"seeds", options.seeds}, {"match", word_of(match_words(), options.match)},
      {"margin", options.margin}, {"run", run.as_given()},  {"data", data.hashes}};
  if (by_minutes(run)) record["threads"] = options.threads, record["jobs"] = options.jobs;
  if (options.sweep) record["sweep"] = options.sweep->text();
  for (const ModelSize& size : options.sizes) record["sizes"].push_back(size.name);
  return record;
}

void run_comparisons(std::vector<Comparison>& comparisons, const RunConfig& run, const TextData& data,
                     const CompareOptions& options, Results results) {
  results.comparison = comparison_record(run, data, options);
  if (results.ended.empty()) results.write(options.folder);  // --resume wants it; of runs that ended it is there
  try {
    for (Comparison& all : comparisons) measure(all, run, data, results);
  } catch (const Interrupted&) {
    throw Interrupted(text("compare: stopped while speed was measured; to go on: motet compare --resume ",
                           shell_quoted(options.folder.string())));
  }
  const bool interrupted = train_all(comparisons, run, data, options, results);
  at::set_num_threads(static_cast<int>(options.threads));
  for (Comparison& all : comparisons) {
    all.interrupted = interrupted;
    collect(all, run.train, options, results);
  }
  results.conclusions = conclusions(comparisons, run);
  results.write(options.folder);
  if (interrupted && !any_finished(comparisons))
    throw Interrupted(text("compare: stopped before a reported run had finished; to go on: motet compare --resume ",
                           shell_quoted(options.folder.string())));
}

}  // namespace motet
