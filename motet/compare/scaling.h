#pragma once
#include "motet/compare/comparison.h"
#include "motet/compare/power_law.h"
#include "motet/report/table.h"

namespace motet {

/// What the losses of a contender at several sizes come to. The baseline stands for plain attention.
struct Scaling {
  std::string label;
  std::vector<std::string> sizes;  // of which a run has finished; none without a seed that has ended at all of them, of
                                   // this contender and of the baseline
  std::vector<double> parameters, flops, losses;  // by size: FLOPs of its training; mean loss over those seeds
  PowerLaw by_parameters, by_flops;               // of two or more sizes
  /// By size: the FLOPs with which the baseline's law reaches this loss, as a multiple of those it took; none of the
  /// baseline itself.
  std::vector<double> factors;
  double factor = std::numeric_limits<double>::quiet_NaN();  // their geometric mean; 1 of the baseline
  Interval interval;  // 95 % of factor, by Student's t of the logarithms of what each seed gives; NaN below two
};

/// In the order of the arms; empty without sizes.
std::vector<Scaling> scaling(const std::vector<Comparison>&, const RunConfig&);

Table scaling_table(const std::vector<Scaling>&);
/// "For the loss of dcmha, mha needs 1.200 times the training FLOPs (95 % interval 1.100 to 1.310).", of every other;
/// or why there are none.
std::string scaling_summary(const std::vector<Scaling>&, const std::string& baseline);
nlohmann::json scaling_record(const std::vector<Scaling>&);

}  // namespace motet
