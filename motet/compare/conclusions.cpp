#include "motet/compare/conclusions.h"

#include "motet/compare/scaling.h"

namespace motet {
namespace {

using nlohmann::json;

json swept(const Comparison& all, const ArmResult& arm) {
  json values = json::array();
  for (size_t i = 0; i < arm.swept.size(); ++i) {
    if (!arm.swept[i]) continue;
    json one{{"value", all.sweep->values[i]}};
    if (const EndedRun& run = *arm.swept[i]; run.failure.empty())
      one["validation_loss"] = run.loss();
    else
      one["failure"] = run.failure;
    values.push_back(one);
  }
  json out{{"mechanism", arm.arm.label}, {"key", all.sweep->path()}, {"values", values}};
  if (!all.size.empty()) out["size"] = all.size;
  if (arm.chosen) out["chosen"] = all.sweep->values[*arm.chosen];
  return out;
}

}  // namespace

json conclusions(const std::vector<Comparison>& comparisons, const RunConfig& run) {
  json out = json::object();
  for (const Comparison& all : comparisons)
    for (const ArmResult& arm : all.arms)
      if (all.sweep) out["sweep"].push_back(swept(all, arm));
  if (const std::vector<Scaling> laws = scaling(comparisons, run); !laws.empty()) out["scaling"] = scaling_record(laws);
  return out;
}

}  // namespace motet
