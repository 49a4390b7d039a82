#include "motet/compare/arms.h"

#include <cmath>
#include <set>

#include "motet/core/error.h"
#include "motet/models/cost.h"

namespace motet {
namespace {

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts{""};
  for (char c : text) {
    if (c == by)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

std::vector<Preset> all_presets() {
  std::vector<Preset> presets;
  for (const MechanismEntry& entry : mechanism_registry()) {
    presets.insert(presets.end(), entry.presets.begin(), entry.presets.end());
    bool named = false;
    for (const Preset& p : entry.presets) named |= p.name == entry.name;
    if (!named) presets.push_back({entry.name, false, {{"mechanism", entry.name}}});
  }
  return presets;
}

Preset find_preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& p : all_presets()) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  throw UsageError(unknown_name("mechanism", name, names));
}

bool has_option(const OptionTable& table, const std::string& name) {
  for (const Option& o : table)
    if (o.name == name) return true;
  return false;
}

// Common keys that no contender knows are mistakes; the rest goes to those that have them.
void spread(const nlohmann::json& common, std::vector<Arm>& arms) {
  for (const auto& item : common.items()) {
    if (item.key() == "mechanism") fail_usage("model.attention.mechanism: a comparison takes --mechanisms instead");
    bool known = false;
    for (Arm& arm : arms) {
      const OptionTable table = attention_options(find_mechanism(arm.attention["mechanism"]));
      if (!has_option(table, item.key())) continue;
      known = true;
      if (!arm.attention.contains(item.key())) arm.attention[item.key()] = item.value();
    }
    if (!known)
      find_option(attention_options(find_mechanism(arms.front().attention["mechanism"])), item.key(),
                  "model.attention");
  }
}

}  // namespace

std::vector<Arm> parse_arms(const std::string& list, const nlohmann::json& common) {
  std::vector<Arm> arms;
  std::set<std::string> labels;
  if (list.empty()) {
    for (const Preset& p : all_presets())
      if (p.compared) arms.push_back({p.name, p.attention});
  } else {
    for (const std::string& item : split(list, ',')) {
      const std::vector<std::string> parts = split(item, ':');
      Arm arm{item, find_preset(parts[0]).attention};
      for (size_t i = 1; i < parts.size(); ++i) {
        const size_t equal = parts[i].find('=');
        if (equal == std::string::npos)
          fail_usage("--mechanisms: '", parts[i], "' in '", item, "' is no option, want key=value");
        if (parts[i].substr(0, equal) == "mechanism")
          fail_usage("--mechanisms: '", parts[i], "' in '", item, "': the mechanism stands before the first colon");
        arm.attention[parts[i].substr(0, equal)] = parts[i].substr(equal + 1);
      }
      if (!labels.insert(item).second) fail_usage("--mechanisms: ", item, " appears twice");
      arms.push_back(arm);
    }
  }
  spread(common, arms);
  return arms;
}

ModelConfig arm_config(const RunConfig& run, const Arm& arm, int64_t vocab_size) {
  return {run.model, resolve_attention(arm.attention, "model.attention"), vocab_size,
          run.train.at("context").get<int64_t>()};
}

Match parse_match(const std::string& name) {
  if (name == "parameters") return Match::parameters;
  if (name == "flops") return Match::flops;
  if (name == "none") return Match::none;
  throw UsageError("--match: " + unknown_name("choice", name, {"parameters", "flops", "none"}));
}

double size_of(const ModelConfig& config, Match match) {
  Model model(config);
  const ModelCost cost = model_cost(*model);
  return match == Match::flops ? cost.flops_per_token : static_cast<double>(cost.parameters);
}

void match_size(ModelConfig& config, Match match, double target) {
  if (match == Match::none) return;
  const int64_t width = config.intermediate_size();
  config.options["intermediate_size"] = width;
  const double here = size_of(config, match);
  config.options["intermediate_size"] = width + 1;
  const double slope = size_of(config, match) - here;  // both measures are linear in the width
  const int64_t matched = width + std::llround((target - here) / slope);
  if (matched < 1)
    fail_usage(
        "--match: the ", config.attention.at("mechanism").get<std::string>(),
        " model is larger than the baseline even without feed-forward; want --match none or a larger hidden_size");
  config.options["intermediate_size"] = matched;
}

}  // namespace motet
