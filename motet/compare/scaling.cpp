#include "motet/compare/scaling.h"

#include <algorithm>
#include <cmath>

#include "motet/core/error.h"

namespace motet {
namespace {

using nlohmann::json;

// Losses by size and seed.
using Losses = std::vector<std::vector<double>>;

// By size, over these seeds.
std::vector<double> means(const Losses& losses, const std::vector<size_t>& seeds) {
  std::vector<double> out;
  for (const std::vector<double>& of_size : losses) {
    double sum = 0;
    for (const size_t seed : seeds) sum += of_size[seed];
    out.push_back(sum / static_cast<double>(seeds.size()));
  }
  return out;
}

std::vector<double> compute_factors(const PowerLaw& baseline, const std::vector<double>& flops,
                                    const std::vector<double>& losses) {
  std::vector<double> factors;
  for (size_t i = 0; i < flops.size(); ++i) factors.push_back(baseline.cost_of(losses[i]) / flops[i]);
  return factors;
}

double mean_log(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += std::log(v);
  return sum / static_cast<double>(x.size());
}

// The losses of an arm where a run has finished.
Losses losses_of(const std::vector<Comparison>& comparisons, size_t arm) {
  Losses losses;
  for (const Comparison& all : comparisons)
    if (!all.arms[arm].finished().empty()) losses.push_back(all.arms[arm].losses);
  return losses;
}

// The seeds that have ended in all of these.
std::vector<size_t> common_seeds(const Losses& a, const Losses& b) {
  std::vector<size_t> seeds;
  const size_t most = a.empty() ? 0 : a.front().size();
  for (size_t seed = 0; seed < most; ++seed) {
    const auto ended = [&](const auto& of_size) { return seed < of_size.size() && !std::isnan(of_size[seed]); };
    if (std::ranges::all_of(a, ended) && std::ranges::all_of(b, ended)) seeds.push_back(seed);
  }
  return seeds;
}

// Of these seeds; without any, of no size.
Scaling laws_of(const std::vector<Comparison>& comparisons, size_t index, const RunConfig& run,
                const std::vector<size_t>& seeds) {
  Scaling out{.label = comparisons.front().arms[index].arm.label};
  if (seeds.empty()) return out;
  for (const Comparison& all : comparisons) {
    const ArmResult& arm = all.arms[index];
    if (arm.finished().empty()) continue;
    out.sizes.push_back(all.size);
    out.parameters.push_back(static_cast<double>(arm.cost.parameters));
    out.flops.push_back(training_flops(arm, run));
  }
  out.losses = means(losses_of(comparisons, index), seeds);
  out.by_parameters = fit_power_law(out.parameters, out.losses);
  out.by_flops = fit_power_law(out.flops, out.losses);
  return out;
}

// Around a factor, by Student's t of what each seed alone gives on the log scale; nothing where one gives no number.
Interval interval_of(double factor, const std::vector<double>& logs) {
  if (!std::ranges::all_of(logs, [](double x) { return std::isfinite(x); })) return {};
  const Difference d = difference_of(logs);
  const double half = (d.high - d.low) / 2;
  return {.low = factor * std::exp(-half), .high = factor * std::exp(half)};
}

json law_record(const PowerLaw& law) {
  return {{"floor", law.floor}, {"factor", law.factor}, {"exponent", law.exponent}};
}

const Cell kUnknown("-", nullptr);
Cell number(double value, int digits) { return std::isnan(value) ? kUnknown : Cell(fixed(value, digits), value); }

}  // namespace

std::vector<Scaling> scaling(const std::vector<Comparison>& comparisons, const RunConfig& run) {
  if (comparisons.front().size.empty()) return {};
  const size_t baseline = comparisons.front().baseline;
  const Losses plain = losses_of(comparisons, baseline);
  std::vector<Scaling> out;
  for (size_t i = 0; i < comparisons.front().arms.size(); ++i) {
    const Losses losses = losses_of(comparisons, i);
    const std::vector<size_t> seeds = common_seeds(losses, plain);
    out.push_back(laws_of(comparisons, i, run, seeds));
    Scaling& own = out.back();
    if (i == baseline && own.sizes.size() >= 2) own.factor = 1;  // of fewer there is no law
    if (i == baseline || seeds.empty() || plain.empty()) continue;
    const Scaling reference = laws_of(comparisons, baseline, run, seeds);
    const auto factors = [&](const std::vector<size_t>& of) {
      return compute_factors(fit_power_law(reference.flops, means(plain, of)), own.flops, means(losses, of));
    };
    own.factors = factors(seeds);
    own.factor = std::exp(mean_log(own.factors));
    std::vector<double> logs;
    for (const size_t seed : seeds) logs.push_back(mean_log(factors({seed})));
    own.interval = interval_of(own.factor, logs);
  }
  return out;
}

Table scaling_table(const std::vector<Scaling>& all) {
  Table table{.columns = {{"mechanism", Align::left},
                          {"sizes"},
                          {"exponent", Align::right, "of FLOPs", "exponent_of_flops"},
                          {"exponent", Align::right, "of parameters", "exponent_of_parameters"},
                          {"floor", Align::right, "nats/token", "floor"},
                          {"compute factor", Align::right, "", "compute_factor"},
                          {"95 % interval", Align::right, "", "interval"}}};
  for (const Scaling& one : all) {
    const bool has_floor = one.sizes.size() >= kPointsForFloor;
    const auto& [low, high] = one.interval;
    table.rows.push_back(
        {one.label,
         {std::to_string(one.sizes.size()), one.sizes.size()},
         number(one.by_flops.exponent, 4),
         number(one.by_parameters.exponent, 4),
         has_floor ? number(one.by_flops.floor, 4) : kUnknown,
         number(one.factor, 3),
         std::isnan(low) ? kUnknown : Cell(text(fixed(low, 3), " to ", fixed(high, 3)), json::array({low, high}))});
  }
  table.note = text(
      "Power laws of the losses, L = floor + a C^-exponent by least squares; a floor from ", kPointsForFloor,
      " sizes on. Compute factor: how many times the training FLOPs the baseline's law needs for the same "
      "loss, geometric mean over sizes, of the seeds that both have; its interval: Student's t of the logarithms of "
      "what each seed alone gives.");
  return table;
}

std::string scaling_summary(const std::vector<Scaling>& all, const std::string& baseline) {
  std::string out;
  for (const Scaling& one : all)
    if (one.label == baseline && one.sizes.size() < 2)
      return text("No compute factors: ", one.sizes.empty() ? "no seed" : "one size", " of ", baseline,
                  one.sizes.empty() ? " has ended at every size." : " has finished, want two.");
  for (const Scaling& one : all) {
    if (one.label == baseline) continue;
    if (!out.empty()) out += " ";
    if (one.factors.empty()) {
      out += text("No compute factor of ", one.label, ": no seed of it and of ", baseline, " has ended at every size.");
      continue;
    }
    const auto& [low, high] = one.interval;
    if (std::isnan(one.factor))
      return text("No compute factors: the loss of ", baseline, " does not fall over these sizes.");
    out += text("For the loss of ", one.label, ", ", baseline, " needs ", fixed(one.factor, 3),
                " times the training FLOPs",
                std::isnan(low) ? "" : text(" (95 % interval ", fixed(low, 3), " to ", fixed(high, 3), ")"), ".");
  }
  return out;
}

json scaling_record(const std::vector<Scaling>& all) {
  json out = json::array();
  for (const Scaling& one : all) {
    json sizes = json::array();
    for (size_t i = 0; i < one.sizes.size(); ++i) {
      sizes.push_back({{"size", one.sizes[i]},
                       {"parameters", one.parameters[i]},
                       {"training_flops", one.flops[i]},
                       {"validation_loss", one.losses[i]}});
      if (!one.factors.empty()) sizes.back()["compute_factor"] = one.factors[i];
    }
    out.push_back({{"mechanism", one.label},
                   {"sizes", sizes},
                   {"by_flops", law_record(one.by_flops)},
                   {"by_parameters", law_record(one.by_parameters)},
                   {"compute_factor", one.factor},
                   {"interval", {one.interval.low, one.interval.high}}});
  }
  return out;
}

}  // namespace motet
