#include "motet/experiments/verdict.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <optional>

#include "motet/core/error.h"

namespace motet {
namespace {

constexpr double kAlpha = 0.05;

std::string number(double x) {
  char shown[32];
  std::snprintf(shown, sizeof shown, "%.4g", x);
  return shown;
}

const std::vector<double>& numbers(const Evidence& evidence, const std::string& metric, const std::string& arm) {
  const auto of = evidence.metrics.find(metric);
  if (of == evidence.metrics.end()) fail("there are no numbers of ", quote(metric));
  const auto found = of->second.find(arm);
  if (found == of->second.end()) fail("there is no arm ", quote(arm), " with a ", quote(metric));
  return found->second;
}

// By seed: what one comparison of a claim is about, and what it is called.
struct Compared {
  std::string of;
  std::vector<double> differences;
};

std::vector<Compared> compared(const Evidence& evidence, const Claim& claim) {
  const auto of = [&](size_t arm) -> const std::vector<double>& {
    return numbers(evidence, claim.metric, claim.arms.at(arm));
  };
  const size_t count = claim.arms.size();
  const bool limited = claim.kind == ClaimKind::above || claim.kind == ClaimKind::below;
  const size_t least = limited ? 1 : 2;
  if (count < least) fail("the claim ", quote(claim.says), " has ", count, " arms, want at least ", least);
  std::vector<Compared> all;
  if (limited) {
    for (size_t i = 0; i < count; ++i) {
      all.push_back({text(claim.arms[i], " - ", number(claim.limit)), {}});
      for (const double x : of(i))
        if (all.back().differences.size() < evidence.seeds) all.back().differences.push_back(x - claim.limit);
    }
    return all;
  }
  if (claim.kind == ClaimKind::less || claim.kind == ClaimKind::equal) {
    for (size_t i = 0; i + 1 < count; ++i) {
      const size_t left = claim.kind == ClaimKind::less ? i : 0;
      Compared one{claim.arms[left] + " - " + claim.arms[i + 1], {}};
      for (size_t seed = 0; seed < evidence.seeds; ++seed) {
        const std::vector<double>&a = of(left), &b = of(i + 1);
        if (seed < a.size() && seed < b.size()) one.differences.push_back(a[seed] - b[seed]);
      }
      all.push_back(std::move(one));
    }
    return all;
  }
  std::vector<double> places = claim.places;
  if (places.empty()) places.resize(count), std::iota(places.begin(), places.end(), 0.0);
  if (places.size() != count) fail("the claim ", quote(claim.says), " has ", places.size(), " places, want ", count);
  Compared trend{"along " + claim.arms.front() + " ... " + claim.arms.back(), {}};
  for (size_t seed = 0; seed < evidence.seeds; ++seed) {
    std::vector<double> values;
    for (size_t arm = 0; arm < count; ++arm)
      if (seed < of(arm).size()) values.push_back(of(arm)[seed]);
    if (values.size() == count) trend.differences.push_back(slope(places, values) * (places.back() - places.front()));
  }
  all.push_back(std::move(trend));
  return all;
}

double p_of(const Claim& claim, const std::vector<double>& differences) {
  if (claim.test == ClaimTest::exact) return std::numeric_limits<double>::quiet_NaN();
  if (claim.kind == ClaimKind::equal) return equivalence(differences, claim.margin);
  return claim.test == ClaimTest::sign_flip ? sign_flip(differences) : difference_of(differences).p;
}

// P of a mean as far from +- margin as this one, on the other side of it, if the true one were there.
double beyond(const Difference& d, double margin) {
  const double past = std::abs(d.mean) - margin, freedom = static_cast<double>(d.pairs - 1);
  const double error = (d.high - d.mean) / t_quantile(0.05, freedom);
  if (past <= 0) return 1;
  return error > 0 ? two_sided_t(past / error, freedom) : 0;
}

// Of `comparisons` in the experiment.
VerdictWord word_for(const Claim& claim, const Finding& f, const std::vector<double>& differences, size_t seeds,
                     size_t comparisons) {
  const Difference& d = f.difference;
  const bool exact = claim.test == ClaimTest::exact;
  if (d.pairs < std::max<size_t>(seeds, exact ? 1 : 2)) return VerdictWord::undecided;
  const bool positive = claim.kind == ClaimKind::rises || claim.kind == ClaimKind::above;
  if (exact) {  // of every seed
    const auto all = [&](const auto& holds) { return std::ranges::all_of(differences, holds); };
    const auto small = [&](double x) { return std::abs(x) <= claim.margin; };
    if (claim.kind == ClaimKind::equal) return all(small) ? VerdictWord::confirmed : VerdictWord::contradicted;
    if (claim.margin > 0 && all(small)) return VerdictWord::no_effect;
    if (all([&](double x) { return positive ? x > claim.margin : x < -claim.margin; })) return VerdictWord::confirmed;
    return all([&](double x) { return positive ? x < 0 : x > 0; }) ? VerdictWord::contradicted : VerdictWord::undecided;
  }
  const bool within = d.low > -claim.margin && d.high < claim.margin;
  if (claim.kind == ClaimKind::equal)
    return f.p < kAlpha                                                          ? VerdictWord::confirmed
           : beyond(d, claim.margin) * static_cast<double>(comparisons) < kAlpha ? VerdictWord::contradicted
                                                                                 : VerdictWord::undecided;
  if (within) return VerdictWord::no_effect;
  if (!(f.p < kAlpha)) return VerdictWord::undecided;
  return (d.mean > 0) == positive ? VerdictWord::confirmed : VerdictWord::contradicted;
}

// The weakest comparison decides; one against the claim is against all of it.
VerdictWord weakest(const std::vector<Finding>& findings) {
  for (const VerdictWord word : {VerdictWord::contradicted, VerdictWord::undecided, VerdictWord::no_effect})
    if (std::ranges::any_of(findings, [&](const Finding& f) { return f.word == word; })) return word;
  return VerdictWord::confirmed;
}

std::string shown(const Claim& claim, const Finding& f, size_t seeds) {
  const Difference& d = f.difference;
  if (d.pairs < seeds) return text(f.of, ": ", d.pairs, " of ", seeds, " seeds");
  const std::string margin = claim.margin > 0 ? text(", margin ", number(claim.margin)) : "";
  if (claim.test == ClaimTest::exact) return text(f.of, " = ", number(d.mean), " (exact)", margin);
  const bool limited = claim.kind == ClaimKind::above || claim.kind == ClaimKind::below;
  const char* test = claim.kind == ClaimKind::equal       ? "two one-sided t tests"
                     : claim.test == ClaimTest::sign_flip ? "sign flips"
                     : limited                            ? "t"
                                                          : "paired t";
  return text(f.of, " = ", number(d.mean), " [", number(d.low), ", ", number(d.high), "], p ", number(f.p), " (", test,
              ", Holm)", margin);
}

// What is wrong with the first control that fails; "" when all hold.
std::string failed_control(const Evidence& evidence) {
  for (const Control& control : evidence.controls) {
    const std::vector<double>& all = numbers(evidence, control.metric, control.arm);
    std::vector<double> ended;
    for (const double x : all)
      if (std::isfinite(x)) ended.push_back(x);
    if (ended.size() < evidence.seeds) continue;  // the claims say that seeds are missing
    const double found = mean(ended);
    if (control.below ? found < control.limit : found > control.limit) continue;
    return text("the control ", control.name, " failed: ", control.metric, " of ", control.arm, " is ", number(found),
                ", want ", control.below ? "below " : "above ", number(control.limit));
  }
  return "";
}

bool controls_are_done(const Evidence& evidence) {
  return std::ranges::all_of(evidence.controls, [&](const Control& control) {
    const std::vector<double>& all = numbers(evidence, control.metric, control.arm);
    return static_cast<size_t>(std::ranges::count_if(all, [](double x) { return std::isfinite(x); })) >= evidence.seeds;
  });
}

}  // namespace

const Words<VerdictWord>& verdict_words() {
  static const Words<VerdictWord> all{{"confirmed", VerdictWord::confirmed},
                                      {"contradicted", VerdictWord::contradicted},
                                      {"no effect at this scale", VerdictWord::no_effect},
                                      {"undecided", VerdictWord::undecided},
                                      {"void", VerdictWord::control_failed}};
  return all;
}

const Words<ClaimKind>& claim_kinds() {
  static const Words<ClaimKind> all{{"less", ClaimKind::less},   {"equal", ClaimKind::equal},
                                    {"falls", ClaimKind::falls}, {"rises", ClaimKind::rises},
                                    {"above", ClaimKind::above}, {"below", ClaimKind::below}};
  return all;
}

const Words<ClaimTest>& claim_tests() {
  static const Words<ClaimTest> all{
      {"t", ClaimTest::paired_t}, {"sign_flip", ClaimTest::sign_flip}, {"exact", ClaimTest::exact}};
  return all;
}

std::vector<Verdict> decide(const Evidence& evidence) {
  std::vector<Verdict> verdicts;
  std::vector<double> p;
  std::vector<std::vector<double>> differences;
  for (const Claim& claim : evidence.claims) {
    verdicts.emplace_back();
    for (Compared& one : compared(evidence, claim)) {
      verdicts.back().findings.push_back({.of = std::move(one.of), .difference = difference_of(one.differences)});
      differences.push_back(one.differences);
      p.push_back(p_of(claim, one.differences));
      if (claim.test != ClaimTest::exact && std::isnan(p.back())) p.back() = 1;  // it counts among the comparisons
    }
  }
  const std::vector<double> corrected = holm(p);
  const std::string failed = failed_control(evidence);
  const bool done = controls_are_done(evidence);
  size_t next = 0;
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const Claim& claim = evidence.claims[i];
    Verdict& verdict = verdicts[i];
    for (Finding& f : verdict.findings) {
      f.p = corrected[next];
      f.word = word_for(claim, f, differences[next], evidence.seeds, p.size());
      ++next;
      verdict.why += (verdict.why.empty() ? "" : "; ") + shown(claim, f, evidence.seeds);
    }
    verdict.word = weakest(verdict.findings);
    if (!failed.empty())
      verdict.word = VerdictWord::control_failed, verdict.why = failed;
    else if (!done)
      verdict.word = VerdictWord::undecided, verdict.why = "a control is not done";
  }
  return verdicts;
}

}  // namespace motet
