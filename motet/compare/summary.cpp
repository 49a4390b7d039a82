#include "motet/compare/summary.h"

#include <algorithm>

#include "motet/compare/scaling.h"
#include "motet/core/error.h"
#include "motet/report/table.h"

namespace motet {
namespace {

// "; 2 of 3 seeds of dcmha" of what an interrupted comparison has.
std::string unfinished(const Comparison& all) {
  std::string out;
  for (const ArmResult& arm : all.arms)
    if (arm.failure.empty() && arm.finished().size() < arm.runs.size())
      out += text(out.empty() ? "" : ", ", arm.arm.label, " (", arm.finished().size(), " of ", arm.runs.size(), ")");
  return out;
}

// What the lead of the lowest over the baseline is worth.
std::string lead_text(const Comparison& all, const ArmResult& lowest) {
  const std::string word = verdict(all, lowest);
  const Difference& d = lowest.difference;
  if (d.pairs == 0) return ".";
  const std::string gap = text(", ", fixed(-d.mean, 4), " below ", all.arms[all.baseline].arm.label);
  if (word == "one seed") return gap + ". One seed gives no verdict: the difference may be noise.";
  const std::string interval =
      text(" (95 % interval ", fixed(-d.high, 4), " to ", fixed(-d.low, 4), ", p = ", fixed(lowest.p_value, 3), ")");
  if (word == "better") {
    const char* others = all.arms.size() > 2 ? "; what lies between it and the others is not tested" : "";
    return gap + interval + ": better than " + all.arms[all.baseline].arm.label + others + ".";
  }
  if (word == "n too small") return gap + interval + text(". ", d.pairs, " seeds give no verdict.");
  return gap + interval + "; the difference is within noise.";
}

// What is not known where the baseline has the lowest loss.
std::string hedge(const Comparison& all) {
  for (const ArmResult& arm : all.arms) {
    const std::string word = verdict(all, arm);
    if (word == "one seed") return ". One seed gives no verdict: the differences may be noise";
    if (word == "n too small") return text(". ", arm.difference.pairs, " seeds give no verdict on every difference");
  }
  return "";
}

// "0.002 for mha, 0.004 (at the edge of the sweep) for dcmha"
std::string chosen_text(const Comparison& all) {
  std::string out;
  for (const ArmResult& arm : all.arms) {
    if (!arm.chosen) continue;
    const double value = all.sweep->values[*arm.chosen];
    const auto [least, most] = std::ranges::minmax(all.sweep->values);
    out += text(out.empty() ? "" : ", ", all.sweep->shown(*arm.chosen),
                value == least || value == most ? " (at the edge of the sweep)" : "", " for ", arm.arm.label);
  }
  return out;
}

}  // namespace

std::string comparison_summary(const Comparison& all) {
  const ArmResult *lowest = all.lowest(), &baseline = all.arms[all.baseline];
  std::string after = all.failures().empty() ? "" : " " + all.failures() + ".";
  if (const std::string missing = unfinished(all); all.interrupted && !missing.empty())
    after += " Stopped before all seeds had finished: " + missing + ".";
  if (const std::string chosen = all.sweep ? chosen_text(all) : ""; !chosen.empty())
    after += text(" ", all.sweep->path(), " by the loss of the first seed: ", chosen, ".");
  if (!lowest) return after.empty() ? "No run has finished." : after.substr(1);
  const std::string loss = fixed(mean(lowest->finished()), 4);
  if (all.arms.size() == 1)
    return text(lowest->arm.label, " has a validation loss of ", loss,
                " nats a token; there is nothing to compare with.", after);
  const std::string lead = text(lowest->arm.label, " has the lowest validation loss, ", loss, " nats a token");
  if (lowest == &baseline)
    return text(lead, "; no other mechanism beats ", baseline.arm.label, " here", hedge(all), ".", after);
  return lead + lead_text(all, *lowest) + after;
}

std::string summary_of(const std::vector<Comparison>& comparisons, const RunConfig& run) {
  std::string out;
  for (const Comparison& all : comparisons)
    out += text(out.empty() ? "" : "\n", all.size.empty() ? "" : all.size + ": ", comparison_summary(all));
  const Comparison& first = comparisons.front();
  const std::string laws = scaling_summary(scaling(comparisons, run), first.arms[first.baseline].arm.label);
  return laws.empty() ? out : text(out, "\n", laws);
}

std::string all_failures(const std::vector<Comparison>& comparisons) {
  std::string out;
  for (const Comparison& all : comparisons)
    if (const std::string own = all.failures(); !own.empty())
      out += text(out.empty() ? "" : "; ", all.size.empty() ? "" : all.size + ": ", own);
  return out;
}

}  // namespace motet
