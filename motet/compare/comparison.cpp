#include "motet/compare/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "motet/core/error.h"

namespace motet {
namespace {

size_t baseline_of(const std::vector<Arm>& arms) {
  for (size_t i = 0; i < arms.size(); ++i)
    if (arms[i].attention.at("mechanism") == "softmax") return i;
  return 0;
}

// Of one size; `name` is "" without sizes.
Comparison planned_size(const RunConfig& run, const TextData& data, const CompareOptions& options,
                        const std::string& name) {
  Comparison all{.arms = {},
                 .baseline = baseline_of(options.arms),
                 .margin = options.margin,
                 .threads = std::max<int64_t>(options.threads / options.jobs, 1),
                 .size = name,
                 .sweep = options.sweep};
  const int64_t vocabulary = vocabulary_for(*data.tokenizer, run.train);
  const auto planned = [&](size_t i, std::optional<double> target) {
    ArmResult arm{.arm = options.arms[i]};
    try {
      arm.config = arm_config(run, arm.arm, vocabulary);
      if (target) match_size(arm.config, options.match, *target);
      Model shape(arm.config, at::kMeta);
      check_training(*shape, data, run.train, 1);
      arm.cost = model_cost(*shape);
    } catch (const UsageError& e) {
      fail_usage(arm.arm.label, name.empty() ? "" : ", --sizes " + name, ": ", e.what());
    }
    return arm;
  };
  const ArmResult baseline = planned(all.baseline, std::nullopt);
  const double target = size_of(baseline.config, options.match);
  for (size_t i = 0; i < options.arms.size(); ++i)
    all.arms.push_back(i == all.baseline ? baseline : planned(i, target));
  return all;
}

// Width, layers and heads of the plain Transformer.
std::array<int64_t, 3> numbers_of(const RunConfig& run) {
  const Option& heads = find_option(common_attention_options().table(), "num_heads", "model.attention");
  return {run.model.hidden_size, run.model.num_layers,
          run.attention_given.value("num_heads", heads.default_value).get<int64_t>()};
}

// Throws for a size that is written in two ways: "16" and "16x2" of 2 layers.
void check_sizes_differ(const RunConfig& run, const std::vector<ModelSize>& sizes) {
  std::map<std::array<int64_t, 3>, std::string> known;
  for (const ModelSize& size : sizes)
    if (const auto [same, is_new] = known.try_emplace(numbers_of(sized(run, size)), size.name); !is_new)
      fail_usage("--sizes: ", same->second, " and ", size.name, " are one size, want each once");
}

void check_sweep(const CompareOptions& options, const TrainOptions& train) {
  const Sweep& sweep = *options.sweep;
  if (sweep.section == "train") check_has_effect(sweep.key, train, "--sweep: ");
  if (options.seeds < 2)
    fail_usage("--sweep: --seeds is ", options.seeds,
               ", want at least 2: the first seed chooses, the others are reported");
  for (const Arm& arm : options.arms)
    if (sweep.section == "train" && arm.train.contains(sweep.key))
      fail_usage("--sweep: ", arm.label, " has a ", sweep.key, " of its own");
}

}  // namespace

std::vector<Comparison> planned_comparisons(const RunConfig& run, const TextData& data, const CompareOptions& options) {
  if (options.sweep) check_sweep(options, run.train);
  for (const Arm& arm : options.arms)
    for (const auto& own : arm.train.items()) check_has_effect(own.key(), run.train, arm.label + ": ");
  if (options.sizes.empty()) return {planned_size(run, data, options, "")};
  std::string labels;
  for (const Arm& arm : options.arms) labels += (labels.empty() ? "" : ",") + arm.label;
  std::vector<Comparison> all;
  for (const ModelSize& size : options.sizes) {
    const RunConfig own = sized(run, size);
    CompareOptions of_size = options;
    of_size.arms = parse_arms(labels, own.attention_given);
    all.push_back(planned_size(own, data, of_size, size.name));
  }
  check_sizes_differ(run, options.sizes);  // they can be built, so their numbers are numbers
  return all;
}

Comparison planned_comparison(const RunConfig& run, const TextData& data, const CompareOptions& options) {
  return planned_comparisons(run, data, options).front();
}

RunName run_name(const Comparison& all, const ArmResult& arm, const TrainOptions& train, size_t seed,
                 std::optional<size_t> value) {
  return {.label = arm.arm.label,
          .size = all.size,
          .setting = value ? all.sweep->setting(*value) : "",
          .seed = train.seed + static_cast<int64_t>(seed)};
}

std::optional<size_t> best_value(const std::vector<std::optional<EndedRun>>& swept) {
  std::optional<size_t> best;
  for (size_t i = 0; i < swept.size(); ++i) {
    if (!swept[i]) return std::nullopt;
    if (swept[i]->failure.empty() && (!best || swept[i]->loss() < swept[*best]->loss())) best = i;
  }
  return best;
}

std::vector<double> ArmResult::finished() const {
  std::vector<double> found;
  for (const double loss : losses)
    if (!std::isnan(loss)) found.push_back(loss);
  return found;
}

const ArmResult* Comparison::lowest() const {
  const bool paired = std::ranges::any_of(arms, [](const ArmResult& arm) { return arm.difference.pairs > 0; });
  const auto height = [&](const ArmResult& arm) {
    if (!paired) return mean(arm.finished());
    return &arm == &arms[baseline] ? 0 : arm.difference.mean;
  };
  const ArmResult* lowest = nullptr;
  for (const ArmResult& arm : arms) {
    const bool known = paired ? arm.difference.pairs > 0 || &arm == &arms[baseline] : !arm.finished().empty();
    if (known && (!lowest || height(arm) < height(*lowest))) lowest = &arm;
  }
  return lowest;
}

std::string Comparison::failures() const {
  std::string out;
  for (const ArmResult& arm : arms)
    if (!arm.failure.empty()) out += text(out.empty() ? "" : "; ", arm.arm.label, " diverged: ", arm.failure);
  return out;
}

bool by_minutes(const RunConfig& run) { return run.train.minutes > 0; }

double steps_of(const ArmResult& arm, const RunConfig& run) {
  if (!by_minutes(run)) return static_cast<double>(run.train.budget_steps());
  std::vector<double> steps;
  for (const TrainResult& r : arm.runs)
    if (!r.steps.empty()) steps.push_back(static_cast<double>(r.steps.size()));
  return mean(steps);
}

double training_flops(const ArmResult& arm, const RunConfig& run) {
  return 3 * arm.cost.flops_per_token * steps_of(arm, run) * static_cast<double>(run.train.tokens_per_step());
}

void judge(Comparison& all) {
  const ArmResult& baseline = all.arms[all.baseline];
  std::vector<double> p_values;
  for (ArmResult& arm : all.arms) {
    arm.difference = &arm == &baseline ? Difference() : paired_difference(arm.losses, baseline.losses);
    p_values.push_back(arm.difference.p);
  }
  const std::vector<double> corrected = holm(p_values);
  for (size_t i = 0; i < all.arms.size(); ++i) all.arms[i].p_value = corrected[i];
}

std::string verdict(const Comparison& all, const ArmResult& arm) {
  const ArmResult& baseline = all.arms[all.baseline];
  const Difference& d = arm.difference;
  if (!arm.failure.empty()) return "diverged";
  if (&arm == &baseline) return "baseline";
  if (!baseline.failure.empty()) return "no baseline";
  if (d.pairs == 0) return "not finished";
  if (d.pairs == 1) return "one seed";
  const bool differs = arm.p_value < 0.05;
  const bool beyond = d.low > all.margin || d.high < -all.margin;
  if (d.pairs < kSeedsForVerdict && !(differs && beyond)) return "n too small";
  if (!differs) return "within noise";
  return d.mean < 0 ? "better" : "worse";
}

}  // namespace motet
