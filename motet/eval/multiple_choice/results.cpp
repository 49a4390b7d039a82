#include "motet/eval/multiple_choice/results.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "motet/core/error.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

size_t best(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

ChoiceResult result_of(const std::string& file, const std::vector<json>& lines, const ChoiceTask& task) {
  std::vector<double> right, by_length;
  double nats = 0;
  for (const json& line : lines) {
    const auto gold = line.at("gold").get<size_t>();
    right.push_back(task.one_ending ? line.at("greedy").at(gold).get<bool>() : line.at("chosen") == gold);
    by_length.push_back(line.at("chosen_by_length") == gold);
    nats -= line.at("log_likelihood").at(gold).get<double>();
  }
  const double count = static_cast<double>(lines.size());
  return {file, static_cast<int64_t>(lines.size()), rate_of(right), rate_of(by_length), nats / count};
}

}  // namespace

bool is_line_of(const json& line, const ScoredItem& item) {
  const size_t count = item.choices.size();
  const auto is = [&](const char* key, size_t value) { return line.contains(key) && line[key] == value; };
  const auto each = [&](const char* key, auto good) {
    return line.contains(key) && line[key].is_array() && line[key].size() == count &&
           std::all_of(line[key].begin(), line[key].end(), good);
  };
  const auto index = [&](const char* key) {
    return line.contains(key) && line[key].is_number_unsigned() && line[key] < count;
  };
  return line.is_object() && is("file", item.file) && is("item", item.item) && is("gold", item.gold) &&
         each("log_likelihood", [](const json& x) { return x.is_number(); }) &&
         each("greedy", [](const json& x) { return x.is_boolean(); }) && index("chosen") && index("chosen_by_length");
}

json item_line(const ScoredItem& item, const ItemScore& score, const std::string& file) {
  std::vector<double> by_length;
  for (size_t i = 0; i < item.bytes.size(); ++i) {
    if (!std::isfinite(score.log_likelihood[i]))
      fail(file, ": item ", item.item, ": the log-likelihood of ending ", i, " is ", score.log_likelihood[i],
           ", want a finite number");
    by_length.push_back(score.log_likelihood[i] / static_cast<double>(item.bytes[i]));
  }
  json line{{"file", item.file},
            {"item", item.item},
            {"gold", item.gold},
            {"log_likelihood", score.log_likelihood},
            {"greedy", score.greedy},
            {"chosen", best(score.log_likelihood)},
            {"chosen_by_length", best(by_length)}};
  if (item.cut) line["cut"] = true;
  return line;
}

Rate rate_of(const std::vector<double>& values) {
  const double count = static_cast<double>(values.size());
  Rate rate;
  for (const double value : values) rate.mean += value;
  rate.mean /= count;
  double squares = 0;
  for (const double value : values) squares += (value - rate.mean) * (value - rate.mean);
  if (values.size() > 1) rate.error = std::sqrt(squares / (count - 1) / count);
  return rate;
}

std::vector<ChoiceResult> choice_results(const std::vector<std::string>& files, const std::vector<json>& lines,
                                         const ChoiceTask& task) {
  std::vector<ChoiceResult> out;
  for (size_t f = 0; f < files.size(); ++f) {
    std::vector<json> own;
    for (const json& line : lines)
      if (line.at("file") == f) own.push_back(line);
    out.push_back(result_of(fs::path(files[f]).filename().string(), own, task));
  }
  if (files.size() > 1) out.push_back(result_of("all", lines, task));
  return out;
}

}  // namespace motet
