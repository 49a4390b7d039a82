#include "motet/experiments/results.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/experiments/rates.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int kFormatVersion = 1;

fs::path file_of(const Experiment& experiment) { return experiment.folder / "results.json"; }

json record(const CellResult& cell) {
  json out{{"scale", cell.scale}, {"arm", cell.arm}, {"seed", cell.seed}, {"machine", cell.machine}};
  if (cell.rate != 1) out["rate"] = cell.rate;
  out["seconds"] = std::round(cell.seconds * 10) / 10;
  if (!cell.failure.empty()) out["failure"] = cell.failure;
  if (!cell.metrics.empty()) out["metrics"] = cell.metrics;
  if (!cell.curve.empty()) out["curve"] = cell.curve;
  if (cell.tokens > 0) out["tokens"] = cell.tokens;
  if (cell.parameters > 0) out["parameters"] = cell.parameters;
  if (cell.flops > 0) out["flops"] = cell.flops;
  return out;
}

CellResult cell_of(const json& stored) {
  CellResult out{.scale = stored.at("scale"), .arm = stored.at("arm"), .seed = stored.at("seed")};
  out.machine = stored.at("machine"), out.seconds = stored.at("seconds");
  out.rate = stored.value("rate", 1.0), out.failure = stored.value("failure", "");
  if (stored.contains("metrics"))
    for (const auto& [name, number] : stored["metrics"].items())
      if (number.is_number()) out.metrics[name] = number;
  if (stored.contains("curve")) out.curve = stored["curve"].get<std::vector<std::pair<double, double>>>();
  out.tokens = stored.value("tokens", int64_t{0}), out.parameters = stored.value("parameters", int64_t{0});
  out.flops = stored.value("flops", 0.0);
  return out;
}

json finding_record(const Finding& f) {
  return {{"of", f.of},
          {"mean", f.difference.mean},
          {"low", f.difference.low},
          {"high", f.difference.high},
          {"n", f.difference.pairs},
          {"p", f.p}};
}

json verdict_records(const Experiment& experiment, const ExperimentResults& results) {
  json out = json::object();
  for (const ExperimentScale& scale : experiment.scales) {
    const std::vector<Verdict> decided = verdicts(experiment, scale, results);
    for (size_t i = 0; i < decided.size(); ++i) {
      json one{{"says", experiment.claims[i].says},
               {"verdict", word_of(verdict_words(), decided[i].word)},
               {"why", decided[i].why}};
      for (const Finding& f : decided[i].findings) one["findings"].push_back(finding_record(f));
      out[scale.name].push_back(std::move(one));
    }
  }
  return out;
}

std::string text_of(const Experiment& experiment, const ExperimentResults& results) {
  json out{{"version", kFormatVersion}, {"cells", json::object()}, {"configurations", json::object()}};
  for (const auto& [hash, cell] : results.cells) out["cells"][hash] = record(cell);
  for (const auto& [who, configuration] : results.configurations)
    out["configurations"][who.first][who.second] = configuration;
  out["verdicts"] = verdict_records(experiment, results);
  for (const ExperimentScale& scale : experiment.scales)
    if (!scale.sweep.factors.empty()) out["rates"][scale.name] = chosen_rates(experiment, scale, results);
  // A cell a line, so that a change shows which.
  std::string text = "{\n";
  for (const auto& [key, value] : out.items()) {
    text += (text.size() > 2 ? ",\n" : "") + json(key).dump() + ": ";
    if (!value.is_object() || value.empty()) {
      text += value.dump();
      continue;
    }
    std::string lines;
    for (const auto& [name, one] : value.items())
      lines += (lines.empty() ? "\n" : ",\n") + json(name).dump() + ": " + one.dump();
    text += "{" + lines + "\n}";
  }
  return text + "\n}\n";
}

void write(const Experiment& experiment, const ExperimentResults& results) {
  write_file_atomic(file_of(experiment), text_of(experiment, results));
}

// One process at a time reads, changes and writes a results.json.
class Lock {
 public:
  explicit Lock(const fs::path& folder) : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ < 0) fail("cannot open ", quote(folder.string()));
    ::flock(descriptor_, LOCK_EX);  // some file systems have none: then the last one wins
  }
  ~Lock() { ::close(descriptor_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int descriptor_;
};

}  // namespace

std::string results_json(const Experiment& experiment) { return text_of(experiment, read_results(experiment)); }

ExperimentResults read_results(const Experiment& experiment) {
  ExperimentResults out;
  const fs::path file = file_of(experiment);
  if (!fs::exists(file)) return out;
  const json stored = read_json(file.string());
  const json version = stored.is_object() && stored.contains("version") ? stored["version"] : json(0);
  if (version != kFormatVersion)
    fail(file.string(), ": is of version ", version, ", want ", kFormatVersion, ": of another Motet");
  try {
    for (const auto& [hash, cell] : stored.at("cells").items()) out.cells[hash] = cell_of(cell);
    for (const auto& [scale, arms] : stored.at("configurations").items())
      for (const auto& [arm, configuration] : arms.items()) out.configurations[{scale, arm}] = configuration;
  } catch (const json::exception& e) {
    fail(file.string(), ": is damaged: ", e.what());
  }
  return out;
}

void add_results(const Experiment& experiment, const ExperimentResults& more) {
  const Lock lock(experiment.folder);
  ExperimentResults all = read_results(experiment);
  all.cells.insert(more.cells.begin(), more.cells.end());  // what has ended stays
  for (const auto& [who, configuration] : more.configurations) all.configurations[who] = configuration;
  write(experiment, all);
}

void drop_void(const Experiment& experiment) {
  const Lock lock(experiment.folder);
  const ExperimentResults all = read_results(experiment);
  ExperimentResults kept;
  for (const ExperimentScale& scale : experiment.scales) {
    for (const ExperimentCell& cell : cells_of(experiment, scale))
      if (const auto found = all.cells.find(cell.hash); found != all.cells.end()) {
        kept.cells.insert(*found);
        if (const auto of = all.configurations.find({cell.scale, cell.arm}); of != all.configurations.end())
          kept.configurations.insert(*of);
      }
  }
  write(experiment, kept);
}

std::vector<ExperimentCell> open_cells(const Experiment& experiment, const ExperimentScale& scale,
                                       const ExperimentResults& results) {
  std::vector<ExperimentCell> open;
  for (ExperimentCell& cell : known_cells(experiment, scale, results))
    if (!results.cells.contains(cell.hash)) open.push_back(std::move(cell));
  return open;
}

std::map<std::string, size_t> void_cells(const Experiment& experiment, const ExperimentResults& results) {
  std::map<std::string, CellResult> left = results.cells;
  for (const ExperimentScale& scale : experiment.scales)
    for (const ExperimentCell& cell : cells_of(experiment, scale)) left.erase(cell.hash);
  std::map<std::string, size_t> by_arm;
  for (const auto& [hash, cell] : left) ++by_arm[cell.arm];
  return by_arm;
}

std::string changed_key(const json& stored, const json& now, const std::string& path) {
  if (stored.is_object() && now.is_object()) {
    for (const auto& [key, value] : stored.items()) {
      const std::string own = path.empty() ? key : path + "." + key;
      if (!now.contains(key)) return own + " is gone";
      if (const std::string found = changed_key(value, now[key], own); !found.empty()) return found;
    }
    return "";
  }
  return stored == now ? "" : text(path, " was ", stored.dump(), " and is ", now.dump());
}

ArmNumbers numbers_of(const Experiment& experiment, const ExperimentScale& scale, const ExperimentResults& results,
                      const std::string& metric) {
  ArmNumbers out;
  for (const ExperimentArm& arm : experiment.arms) out[arm.name].assign(scale.seeds, NAN);
  for (const ExperimentCell& cell : counted_cells(experiment, scale, results)) {
    const auto found = results.cells.find(cell.hash);
    if (found == results.cells.end()) continue;
    const auto number = found->second.metrics.find(metric);
    if (number != found->second.metrics.end()) out[cell.arm][static_cast<size_t>(cell.seed - 1)] = number->second;
  }
  return out;
}

std::vector<Verdict> verdicts(const Experiment& experiment, const ExperimentScale& scale,
                              const ExperimentResults& results) {
  if (open_cells(experiment, scale, results).size() == known_cells(experiment, scale, results).size()) return {};
  Evidence evidence{.claims = experiment.claims, .controls = experiment.controls, .metrics = {}, .seeds = scale.seeds};
  const auto add = [&](const std::string& metric) {
    if (!evidence.metrics.contains(metric)) evidence.metrics[metric] = numbers_of(experiment, scale, results, metric);
  };
  for (const Claim& claim : experiment.claims) add(claim.metric);
  for (const Control& control : experiment.controls) add(control.metric);
  return decide(evidence);
}

const ExperimentScale* shown_scale(const Experiment& experiment, const ExperimentResults& results) {
  const ExperimentScale* found = nullptr;
  for (const ExperimentScale& scale : experiment.scales)
    if (open_cells(experiment, scale, results).empty()) found = &scale;
  return found;
}

}  // namespace motet
