#include "motet/compare/scaling.h"

#include <cmath>

#include "motet/core/error.h"

namespace motet {
namespace {

using nlohmann::json;

// Losses by size and seed; those of the places drawn, averaged.
using Losses = std::vector<std::vector<double>>;

std::vector<double> means(const Losses& losses, const std::vector<size_t>& drawn) {
  std::vector<double> out;
  for (const std::vector<double>& of_size : losses) {
    double sum = 0;
    for (const size_t seed : drawn) sum += of_size[seed];
    out.push_back(sum / static_cast<double>(drawn.size()));
  }
  return out;
}

std::vector<double> compute_factors(const PowerLaw& baseline, const std::vector<double>& flops,
                                    const std::vector<double>& losses) {
  std::vector<double> factors;
  for (size_t i = 0; i < flops.size(); ++i) factors.push_back(baseline.cost_of(losses[i]) / flops[i]);
  return factors;
}

double geometric_mean(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += std::log(v);
  return std::exp(sum / static_cast<double>(x.size()));
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
  for (size_t seed = 0; seed < a.front().size(); ++seed) {
    const auto ended = [&](const auto& of_size) { return seed < of_size.size() && !std::isnan(of_size[seed]); };
    if (std::ranges::all_of(a, ended) && std::ranges::all_of(b, ended)) seeds.push_back(seed);
  }
  return seeds;
}

Scaling laws_of(const std::vector<Comparison>& comparisons, size_t index, const RunConfig& run) {
  Scaling out{.label = comparisons.front().arms[index].arm.label};
  for (const Comparison& all : comparisons) {
    const ArmResult& arm = all.arms[index];
    if (arm.finished().empty()) continue;
    out.sizes.push_back(all.size);
    out.parameters.push_back(static_cast<double>(arm.cost.parameters));
    out.flops.push_back(training_flops(arm, run));
    out.losses.push_back(mean(arm.finished()));
  }
  out.by_parameters = fit_power_law(out.parameters, out.losses);
  out.by_flops = fit_power_law(out.flops, out.losses);
  return out;
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
  const Scaling reference = laws_of(comparisons, baseline, run);
  std::vector<Scaling> out;
  for (size_t i = 0; i < comparisons.front().arms.size(); ++i) {
    out.push_back(laws_of(comparisons, i, run));
    Scaling& own = out.back();
    const Losses losses = losses_of(comparisons, i);
    if (i == baseline) own.factor = 1;
    if (i == baseline || losses.empty() || plain.empty()) continue;
    own.factors = compute_factors(reference.by_flops, own.flops, own.losses);
    own.factor = geometric_mean(own.factors);
    const std::vector<size_t> seeds = common_seeds(plain, losses);
    own.interval = bootstrap(seeds.size(), [&](const std::vector<size_t>& draw) {
      std::vector<size_t> drawn;
      for (const size_t place : draw) drawn.push_back(seeds[place]);
      const PowerLaw law = fit_power_law(reference.flops, means(plain, drawn));
      return geometric_mean(compute_factors(law, own.flops, means(losses, drawn)));
    });
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
  table.note =
      text("Power laws of the losses, L = floor + a C^-exponent by least squares; a floor from ", kPointsForFloor,
           " sizes on. Compute factor: how many times the training FLOPs the baseline's law needs for the same "
           "loss, geometric mean over sizes; its interval: bootstrap over seeds, from ",
           kUnitsForBootstrap, " on.");
  return table;
}

std::string scaling_summary(const std::vector<Scaling>& all, const std::string& baseline) {
  std::string out;
  for (const Scaling& one : all) {
    if (one.label == baseline || one.factors.empty()) continue;
    if (!out.empty()) out += " ";
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
