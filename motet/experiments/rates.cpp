#include "motet/experiments/rates.h"

#include <cmath>
#include <limits>

#include "motet/core/error.h"

namespace motet {
namespace {

// The mean of a metric, NaN where one of the cells has none.
struct Candidate {
  double sum = 0;
  size_t cells = 0, ended = 0;

  double mean() const { return sum / static_cast<double>(cells); }
};

template <class Holds>
std::vector<ExperimentCell> cells_where(const Experiment& experiment, const ExperimentScale& scale,
                                        const Holds& holds) {
  std::vector<ExperimentCell> out;
  for (ExperimentCell& cell : cells_of(experiment, scale))
    if (holds(cell)) out.push_back(std::move(cell));
  return out;
}

bool chooses(const ExperimentScale& scale, const ExperimentCell& cell) {
  return !scale.sweep.factors.empty() && static_cast<size_t>(cell.seed) <= scale.sweep.seeds;
}

}  // namespace

std::map<std::string, double> chosen_rates(const Experiment& experiment, const ExperimentScale& scale,
                                           const ExperimentResults& results) {
  std::map<std::string, std::map<double, Candidate>> candidates;  // by arm and rate
  if (!scale.sweep.factors.empty())
    for (const ExperimentCell& cell : cells_of(experiment, scale)) {
      if (!chooses(scale, cell)) continue;
      Candidate& own = candidates[cell.arm][cell.rate];
      ++own.cells;
      const auto found = results.cells.find(cell.hash);
      if (found == results.cells.end()) continue;
      ++own.ended;
      const auto number = found->second.metrics.find(scale.sweep.metric);
      own.sum += number == found->second.metrics.end() ? std::numeric_limits<double>::quiet_NaN() : number->second;
    }
  std::map<std::string, double> chosen;
  for (const ExperimentArm& arm : experiment.arms) {
    const std::vector<double>& rates = scale.rates_of(arm);
    double best = rates.front(), least = std::numeric_limits<double>::infinity();
    bool ended = true;
    for (size_t i = 0; rates.size() > 1 && i < rates.size(); ++i) {
      const Candidate& own = candidates[arm.name][rates[i]];
      ended = ended && own.ended == own.cells;
      const double mean = scale.sweep.highest ? -own.mean() : own.mean();
      if (mean < least) best = rates[i], least = mean;  // NaN is below nothing
    }
    if (ended) chosen[arm.name] = best;
  }
  return chosen;
}

std::vector<ExperimentCell> known_cells(const Experiment& experiment, const ExperimentScale& scale,
                                        const ExperimentResults& results) {
  const std::map<std::string, double> chosen = chosen_rates(experiment, scale, results);
  return cells_where(experiment, scale, [&](const ExperimentCell& cell) {
    const auto own = chosen.find(cell.arm);
    return chooses(scale, cell) || (own != chosen.end() && own->second == cell.rate);
  });
}

std::vector<ExperimentCell> counted_cells(const Experiment& experiment, const ExperimentScale& scale,
                                          const ExperimentResults& results) {
  const std::map<std::string, double> chosen = chosen_rates(experiment, scale, results);
  return cells_where(experiment, scale, [&](const ExperimentCell& cell) {
    const auto own = chosen.find(cell.arm);
    return own != chosen.end() && own->second == cell.rate;
  });
}

size_t planned_cells(const Experiment& experiment, const ExperimentScale& scale) {
  const size_t sweeping = scale.sweep.factors.empty() ? 0 : scale.sweep.seeds;
  size_t cells = 0;
  for (const ExperimentArm& arm : experiment.arms)
    cells += sweeping * scale.rates_of(arm).size() + scale.seeds - sweeping;
  return cells;
}

std::string shown_rate(const ExperimentScale& scale, const ExperimentArm& arm,
                       const std::map<std::string, double>& chosen) {
  const auto own = chosen.find(arm.name);
  if (own == chosen.end()) return "-";
  const std::vector<double>& rates = scale.rates_of(arm);
  const bool edge = rates.size() > 1 && (own->second == rates.front() || own->second == rates.back());
  return text(own->second, edge ? " (edge)" : "");
}

std::string sweep_text(const ExperimentScale& scale) {
  const RateSweep& sweep = scale.sweep;
  if (sweep.factors.empty()) return "";
  std::string factors;
  for (const double factor : sweep.factors) factors += text(factors.empty() ? "" : ", ", factor);
  return text("Each arm trains at the rate, of ", factors, " times the learning rate, with the ",
              sweep.highest ? "highest" : "lowest", " mean ", sweep.metric, " over its first ", sweep.seeds,
              sweep.seeds == 1 ? " seed" : " seeds", "; beside one at the edge another might be better.\n");
}

}  // namespace motet
