#include "motet/lab/lab.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "motet/bench/machine.h"
#include "motet/core/error.h"
#include "motet/ops/device.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

const CellKind& kind_of(const Experiment& experiment) {
  std::vector<std::string> known;
  for (const CellKind* kind : {&kTrainCell, &kBenchCell, &kFitCell}) {
    if (kind->name == experiment.kind) return *kind;
    known.emplace_back(kind->name);
  }
  fail_usage((experiment.folder / "experiment.toml").string(), ": ", unknown_name("kind", experiment.kind, known));
}

// What a message of a cell begins with.
template <class Action>
auto named(const Experiment& experiment, const ExperimentCell& cell, const Action& action) {
  try {
    return action();
  } catch (const Interrupted&) {
    throw;
  } catch (const UsageError& e) {
    fail_usage(experiment.id, ", ", cell.arm, ": ", e.what());
  } catch (const Error& e) {
    fail(experiment.id, ", ", cell.arm, ", seed ", cell.seed, ": ", e.what());
  }
}

}  // namespace

std::string Lab::machine() const {
  if (!parse_device(options_.device).is_cpu()) return gpu_name();
  return text(processor_name(), ", ", options_.threads, options_.threads == 1 ? " thread" : " threads");
}

bool Lab::alone(const Experiment& experiment) {
  if (kind_of(experiment).alone) return true;
  const auto by_minutes = [](const nlohmann::json& options, const char* place) {
    const nlohmann::json::json_pointer minutes(place);
    return options.contains(minutes) && options[minutes].is_number() && options[minutes] > 0;
  };
  for (const ExperimentScale& scale : experiment.scales)
    for (const ExperimentCell& cell : cells_of(experiment, scale))
      if (by_minutes(cell.options, "/train/minutes") || by_minutes(cell.options, "/then/train/minutes")) return true;
  return false;
}

nlohmann::json Lab::configuration(const Experiment& experiment, const ExperimentCell& cell) {
  const CellKind& kind = kind_of(experiment);
  return named(experiment, cell, [&] { return kind.configuration(*this, cell); });
}

std::vector<std::string> Lab::metrics(const Experiment& experiment, const ExperimentCell& cell) {
  const CellKind& kind = kind_of(experiment);
  return named(experiment, cell, [&] { return kind.metrics(*this, cell); });
}

bool is_measured(const std::string& metric, const std::vector<std::string>& names) {
  constexpr std::string_view kAny = "...}";
  return std::ranges::any_of(names, [&](const std::string& name) {
    if (!name.ends_with(kAny)) return name == metric;
    return metric.starts_with(name.substr(0, name.size() - kAny.size())) && metric.ends_with('}');
  });
}

CellResult Lab::run(const Experiment& experiment, const ExperimentCell& cell, const CellProgress& progress) {
  const CellKind& kind = kind_of(experiment);
  CellResult out{.scale = cell.scale, .arm = cell.arm, .seed = cell.seed, .rate = cell.rate};
  out.machine = machine();
  const auto start = std::chrono::steady_clock::now();
  named(experiment, cell, [&] {
    try {
      kind.run(*this, cell, out, progress);
    } catch (const Diverged& e) {
      out.failure = e.what();
    }
  });
  std::erase_if(out.metrics, [&](const auto& metric) {
    if (std::isfinite(metric.second)) return false;
    if (out.failure.empty()) out.failure = text(metric.first, " is ", metric.second);
    return true;
  });
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

std::optional<double> Lab::seconds(const Experiment& experiment, const ExperimentCell& cell) {
  const CellKind& kind = kind_of(experiment);
  return named(experiment, cell, [&] { return kind.seconds(*this, cell); });
}

std::shared_ptr<const TextData> Lab::data_of(const RunConfig& run) {
  nlohmann::json given = run.as_given();
  given["data"]["context"] = run.train.context;
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<const TextData>& found = data_[given["data"].dump()];
  if (!found) found = std::make_shared<const TextData>(load_text_data(run));
  return found;
}

}  // namespace motet
