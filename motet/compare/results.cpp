#include "motet/compare/results.h"

#include <cmath>
#include <fstream>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kResultsVersion = 2;

StepRecord step_in(const json& r) {
  const json& norm = r.at("gradient_norm");  // JSON has no word for that of a skipped step which is not finite
  return {.step = r.at("step"),
          .loss = r.at("loss"),
          .learning_rate = r.at("learning_rate"),
          .gradient_norm = norm.is_null() ? NAN : norm.get<double>(),
          .seconds = r.at("seconds"),
          .skipped = r.value("skipped", false)};
}

EvalRecord eval_in(const json& r) {
  return {{.loss = r.at("validation_loss"),
           .error = r.at("standard_error"),
           .windows = r.at("windows"),
           .tokens = r.at("tokens"),
           .bytes = r.value("bytes", int64_t{0})},
          r.at("step")};
}

}  // namespace

json RunName::record() const {
  json out{{"mechanism", label}, {"seed", seed}};
  if (!size.empty()) out["size"] = size;
  if (!setting.empty()) out["setting"] = setting;
  return out;
}

RunName RunName::of(const json& record) {
  return {record.at("mechanism"), record.value("size", ""), record.value("setting", ""), record.at("seed")};
}

std::string RunName::folder() const {
  std::string name;
  for (const std::string& part : {label, size, setting})
    if (!part.empty()) name += part + "-";
  for (char& c : name)
    if (c == ':' || c == '=' || c == '/') c = '-';
  return text(name, "seed", seed);
}

std::string RunName::shown() const {
  std::string name;
  for (const std::string& part : {label, size, setting})
    if (!part.empty()) name += part + ", ";
  return text(name, "seed ", seed);
}

void Results::write(const fs::path& folder) const {
  json all{{"version", kResultsVersion},
           {"comparison", comparison},
           {"commands", commands},
           {"measured", json::array()},
           {"runs", json::array()}};
  all.update(conclusions);
  for (const auto& [name, m] : measured) {
    json one{{"mechanism", name.first},
             {"intermediate_size", m.intermediate_size},
             {"tokens_per_second", m.tokens_per_second},
             {"peak_bytes", m.peak_bytes},
             {"threads", m.threads}};
    if (!name.second.empty()) one["size"] = name.second;
    all["measured"].push_back(one);
  }
  for (const auto& [name, run] : ended) {
    json one = name.record();
    if (!run.failure.empty())
      one["failure"] = run.failure;
    else
      one["steps"] = run.result.steps.size(), one["seconds"] = run.result.seconds, one["validation_loss"] = run.loss();
    all["runs"].push_back(one);
  }
  write_file_atomic(folder / "results.json", all.dump(1) + "\n");
}

Results read_results(const fs::path& folder) {
  const fs::path path = folder / "results.json";
  if (!fs::exists(path)) fail_usage("--resume: ", folder.string(), " holds no comparison that can go on");
  const json all = read_json(path.string());
  if (!all.is_object() || all.value("version", 0) != kResultsVersion)
    fail(path.string(), ": is of another version of Motet, want version ", kResultsVersion);
  Results results;
  try {
    results.comparison = all.at("comparison");
    results.commands = all.value("commands", std::vector<std::string>());  // earlier versions wrote none
    for (const json& m : all.at("measured"))
      results.measured[{m.at("mechanism"), m.value("size", "")}] = {.intermediate_size = m.at("intermediate_size"),
                                                                    .tokens_per_second = m.at("tokens_per_second"),
                                                                    .peak_bytes = m.at("peak_bytes"),
                                                                    .threads = m.value("threads", int64_t{0})};
    for (const json& run : all.at("runs")) {
      EndedRun& own = results.ended[RunName::of(run)];
      own.failure = run.value("failure", "");
      own.result.seconds = run.value("seconds", 0.0);
    }
  } catch (const json::exception& error) {
    fail(path.string(), ": is damaged: ", error.what());
  }
  return results;
}

std::map<RunName, TrainResult> cut_metrics(const fs::path& folder, Results& results,
                                           const std::map<RunName, RunBegun>& begun) {
  const fs::path path = folder / "metrics.jsonl";
  std::map<RunName, TrainResult> first_steps;
  std::ifstream in(path);
  std::string lines;
  for (std::string line; read_line(in, line, path.string());) {
    const json record = json::parse(line, nullptr, false);
    if (record.is_discarded()) break;  // cut off where the process ended
    try {
      const RunName name = RunName::of(record);
      const bool is_step = record.contains("loss");
      const auto ended = results.ended.find(name);
      if (ended == results.ended.end()) {
        const auto at = begun.find(name);
        if (at == begun.end() || record.at("step") > at->second.step) continue;
        if (!is_step && record.at("step") == at->second.step && !at->second.evaluated) continue;
      }
      TrainResult& run = ended == results.ended.end() ? first_steps[name] : ended->second.result;
      if (is_step)
        run.steps.push_back(step_in(record));
      else
        run.evals.push_back(eval_in(record));
    } catch (const json::exception& error) {
      fail(path.string(), ": is damaged: ", error.what());
    }
    lines += line + "\n";
  }
  in.close();
  for (const auto& [name, run] : results.ended)
    if (run.failure.empty() && run.result.evals.empty())
      fail(path.string(), ": has no evaluation of ", name.shown(), ", which results.json names");
  write_file_atomic(path, lines);
  return first_steps;
}

}  // namespace motet
