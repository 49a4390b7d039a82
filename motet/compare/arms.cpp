#include "motet/compare/arms.h"

#include <cmath>
#include <set>

#include "motet/compare/sweep.h"
#include "motet/core/error.h"
#include "motet/mechanisms/contender.h"
#include "motet/models/cost.h"

namespace motet {
namespace {

Arm parse_arm(const std::string& label) {
  Arm arm{label, parse_contender(label, "--mechanisms")};
  for (const std::string& key : own_training()) {
    if (!arm.attention.contains(key)) continue;
    arm.train[key] =
        checked(find_option(train_options().table(), key, "train"), arm.attention[key], label + ": " + key);
    arm.attention.erase(key);
  }
  return arm;
}

bool has_option(const OptionTable& table, const std::string& name) {
  for (const Option& o : table)
    if (o.name == name) return true;
  return false;
}

// Common keys that no contender knows are mistakes; the rest goes to those that have them.
void spread(const nlohmann::json& common, std::vector<Arm>& arms) {
  if (common.contains("mechanism")) fail_usage("model.attention.mechanism: a comparison takes --mechanisms instead");
  for (const auto& item : common.items()) {
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
  for (const std::string& label : list.empty() ? compared_names() : split(list, ',')) {
    if (!labels.insert(label).second) fail_usage("--mechanisms: ", label, " appears twice");
    arms.push_back(parse_arm(label));
  }
  spread(common, arms);
  return arms;
}

ModelConfig arm_config(const RunConfig& run, const Arm& arm, int64_t vocab_size) {
  RunConfig own = run;
  own.attention_given = arm.attention;
  return own.model_config(vocab_size);
}

TrainOptions arm_train(const RunConfig& run, const Arm& arm, size_t number) {
  nlohmann::json all = train_options().write(run.train);
  all.update(arm.train);
  TrainOptions train = train_options().read(all);
  train.seed += static_cast<int64_t>(number);
  train.data_seed += static_cast<int64_t>(number);
  return train;
}

double size_of(const ModelConfig& config, Match match) {
  Model model(config, at::kMeta);
  const ModelCost cost = model_cost(*model);
  return match == Match::flops ? cost.flops_per_token : static_cast<double>(cost.parameters);
}

void match_size(ModelConfig& config, Match match, double target) {
  if (match == Match::none) return;
  const int64_t width = config.intermediate_size();
  config.options.intermediate_size = width;
  const double here = size_of(config, match);
  config.options.intermediate_size = width + 1;
  const double slope = size_of(config, match) - here;  // both measures are linear in the width
  const int64_t matched = width + std::llround((target - here) / slope);
  if (matched < 1)
    fail_usage(
        "--match: the ", config.attention.at("mechanism").get<std::string>(),
        " model is larger than the baseline even without feed-forward; want --match none or a larger hidden_size");
  config.options.intermediate_size = matched;
}

}  // namespace motet
