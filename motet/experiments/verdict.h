#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "motet/core/words.h"
#include "motet/statistics/statistics.h"

// What the numbers of an experiment say of its claims: one of five words, by rules that no person edits. Torch-free.
namespace motet {

enum class VerdictWord : uint8_t {
  confirmed,
  contradicted,   // a difference of the other sign
  no_effect,      // the 95 % interval lies within the margin: what is claimed is smaller than what counts
  undecided,      // neither; or seeds are missing
  control_failed  // "void": the experiment could not have shown it
};
const Words<VerdictWord>& verdict_words();

/// A metric of each arm by seed; NaN: the run did not end.
using ArmNumbers = std::map<std::string, std::vector<double>>;

enum class ClaimKind : uint8_t {
  less,   // each arm lies below the one behind it
  equal,  // no arm differs from the first by the margin
  falls,  // the metric falls along the arms
  rises,
  above,  // each arm lies above the limit
  below
};
enum class ClaimTest : uint8_t {
  paired_t,   // of a limit: one sample
  sign_flip,  // exact; for accuracies that jump
  exact       // the numbers have no noise: each seed's has to be on the claimed side
};
const Words<ClaimKind>& claim_kinds();
const Words<ClaimTest>& claim_tests();

struct Claim {
  std::string says;
  std::string metric;
  ClaimKind kind = ClaimKind::less;
  std::vector<std::string> arms;  // at least two, of a limit at least one
  std::vector<double> places;     // of the arms, for a trend; empty: 0, 1, 2 ...
  double margin = 0;              // the least difference that counts, of a trend from its first arm to its last
  double limit = 0;               // of above and below
  ClaimTest test = ClaimTest::paired_t;
};

/// What must hold for the experiment to mean anything: the mean of an arm on one side of a number.
struct Control {
  std::string name, arm, metric;
  bool below = true;
  double limit = 0;
};

/// One comparison of a claim. The difference is of the sides in the order in which the claim names them, from the first
/// arm of a trend to its last, or of an arm to the limit.
struct Finding {
  std::string of;  // "dcmha - mha", "along mha ... key_size", "dcmha - 0.745"
  Difference difference;
  double p = 0;  // of the claim's test, corrected for all comparisons of the experiment (Holm)
  VerdictWord word = VerdictWord::undecided;
};
struct Verdict {
  VerdictWord word = VerdictWord::undecided;
  std::string why;  // the rule that gave the word, with its numbers
  std::vector<Finding> findings;
};

struct Evidence {
  std::vector<Claim> claims;
  std::vector<Control> controls;
  std::map<std::string, ArmNumbers> metrics;  // by metric
  size_t seeds = 0;                           // declared: with fewer numbers a claim is undecided
};
/// One verdict a claim. An order is confirmed where p < 0.05 and the sign is right, equality where both one-sided tests
/// reject; a claim of several comparisons is what the weakest of them is. Throws Error for an arm or a metric that is
/// not there.
std::vector<Verdict> decide(const Evidence&);

}  // namespace motet
