#include "motet/compare/sweep.h"

#include <algorithm>

#include "motet/core/error.h"

namespace motet {
namespace {

const std::vector<std::string>& keys_of(const std::string& section) {
  static const std::vector<std::string> model{"norm_eps", "initializer_range"};
  return section == "train" ? own_training() : model;
}

std::string sweepable() {
  std::string out;
  for (const char* section : {"train", "model"})
    for (const std::string& key : keys_of(section)) out += text(out.empty() ? "" : ", ", section, ".", key);
  return out;
}

}  // namespace

const std::vector<std::string>& own_training() {
  static const std::vector<std::string> keys{"learning_rate",
                                             "muon_learning_rate",
                                             "final_learning_rate",
                                             "warmup",
                                             "decay",
                                             "weight_decay",
                                             "beta1",
                                             "beta2",
                                             "epsilon",
                                             "momentum",
                                             "clip",
                                             "label_smoothing",
                                             "z_loss",
                                             "skip_outliers"};
  return keys;
}

void check_has_effect(const std::string& key, const TrainOptions& train, const std::string& place) {
  const Option& option = find_option(train_options().table(), key, "train");
  const nlohmann::json all = train_options().write(train);
  if (!has_effect(option, all))
    fail_usage(place, "train.", key, ": has no effect with ", option.where.option, " = ",
               all.at(option.where.option).get<std::string>(), ", want ", words(option.where));
}

std::string Sweep::shown(size_t value) const { return nlohmann::json(values.at(value)).dump(); }
std::string Sweep::text() const {
  std::string out = path();
  for (size_t i = 0; i < values.size(); ++i) out += (i == 0 ? "=" : ",") + shown(i);
  return out;
}
std::string Sweep::setting(size_t value) const { return path() + "=" + shown(value); }

void Sweep::apply(size_t value, ModelConfig& config, TrainOptions& train) const {
  const auto with = [&](const auto& table, auto& options) {
    nlohmann::json all = table.write(options);
    all[key] = values.at(value);
    options = table.read(all);
  };
  if (section == "train")
    with(train_options(), train);
  else
    with(model_options(), config.options);
}

Sweep parse_sweep(const std::string& given) {
  const size_t equals = given.find('='), dot = given.find('.');
  if (equals == std::string::npos || dot > equals)
    fail_usage("--sweep: ", quote(given), ", want SECTION.KEY=VALUE,VALUE,..., as in train.learning_rate=1e-3,2e-3");
  Sweep sweep{given.substr(0, dot), given.substr(dot + 1, equals - dot - 1), {}};
  if (sweep.section != "train" && sweep.section != "model")
    fail_usage("--sweep: ", sweep.path(), ": want a key of [train] or [model]");
  const OptionTable& table = sweep.section == "train" ? train_options().table() : model_options().table();
  const Option& option = find_option(table, sweep.key, sweep.section);
  if (std::ranges::find(keys_of(sweep.section), sweep.key) == keys_of(sweep.section).end())
    fail_usage("--sweep: ", sweep.path(),
               " is no number, or changes the data, the budget, the memory or the model's size; want one of ",
               sweepable());
  for (const std::string& value : split(given.substr(equals + 1), ',')) {
    sweep.values.push_back(checked(option, value, "--sweep: " + sweep.path()).get<double>());
    if (std::ranges::count(sweep.values, sweep.values.back()) > 1)
      fail_usage("--sweep: ", sweep.path(), ": ", value, " stands there twice");
  }
  if (sweep.values.size() < 2)
    fail_usage("--sweep: ", sweep.path(), " has ", sweep.values.size(), " value, want at least 2");
  return sweep;
}

}  // namespace motet
