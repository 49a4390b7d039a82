#include "motet/bench/attention_bench.h"

#include <algorithm>
#include <limits>

#include "motet/attention/kernels.h"
#include "motet/bench/passes.h"
#include "motet/bench/shape.h"
#include "motet/core/error.h"

namespace motet {
namespace {

// Sizes for all mechanisms without --shape: short rows in a batch, and one long row.
constexpr AttentionSize kSizes[] = {{4, 128, 8, 64}, {1, 512, 8, 64}};

// Terms of a gradient that is one number: their sum is compared at this size at least, each of n numbers at an n-th.
constexpr double kSumTerms = 64;

// The definition keeps about this many [B,H,T,T] tensors for its backward pass (dcmha); above this memory it is left
// out.
constexpr double kEagerTensors = 40, kEagerBytes = 6e9;

std::vector<std::string> result_names(const Arguments& a) {
  std::vector<std::string> names{"out"};
  for (int i = 0; i < kNumInputs; ++i)
    if (a.input[i].defined()) names.push_back("the gradient of " + input_name(i));
  return names;
}

double largest(const Tensor& t) { return t.abs().max().item<double>(); }
double norm(const Tensor& t) { return t.norm().item<double>(); }

// How far a result in a dtype may be from float64: `share` of the rival's error + `units` of the reference's size, or,
// where it is n numbers, which may be right by chance in the rival, an n-th of `number_units` if that is more.
struct Rounding {
  Forward rival;
  double (*size)(const Tensor&);
  double share, units, number_units;
};
Rounding rounding_of(at::ScalarType type) {
  constexpr double single = 16 * std::numeric_limits<float>::epsilon();  // gradients that cancel: up to 10
  if (type == at::kFloat) return {run_definition, largest, 2, single, single};
  if (type == at::kHalf) return {run_eager, norm, 1.75, 0, std::numeric_limits<c10::Half>::epsilon()};
  return {run_eager, norm, 1, 0, std::numeric_limits<c10::BFloat16>::epsilon()};
}

bool eager_fits(const AttentionSize& n) {
  return kEagerTensors * 4.0 * static_cast<double>(n.B * n.H * n.T) * static_cast<double>(n.T) < kEagerBytes;
}

}  // namespace

const OptionTable& attention_shape_options() {
  using enum OptionType;
  static const OptionTable table = [] {
    std::vector<std::string> names = benched_names();
    names.emplace_back("all");
    return OptionTable{
        {"T", integer, 512, 1, 1 << 20, {}, "queries and keys"},
        {"H", integer, 8, 1, 1024, {}, "heads of plain attention"},
        {"D", integer, 64, 1, 4096, {}, "width of a head"},
        {"B", integer, 1, 1, 4096, {}, "sequences"},
        {"mechanism", string, "all", {}, {}, names, "whose operator"},
    };
  }();
  return table;
}

std::vector<AttentionCase> attention_cases(const std::string& given, at::ScalarType type) {
  const nlohmann::json shape = parse_shape(given, attention_shape_options());
  const auto size = [&](const char* key) { return shape.at(key).get<int64_t>(); };
  std::vector<AttentionSize> sizes{{size("B"), size("T"), size("H"), size("D")}};
  if (given.empty()) sizes.assign(std::begin(kSizes), std::end(kSizes));
  std::vector<AttentionCase> cases;
  for (const AttentionSize& n : sizes) {
    for (const BenchedOperator& row : benched_operators()) {
      if (shape["mechanism"] != "all" && shape["mechanism"] != row.name) continue;
      if (row.pairs && n.H % 2)
        fail_usage("--shape: H is ", n.H, ", want an even number of heads for ", row.name, ", which pairs them");
      cases.push_back({row.name, n, type});
    }
  }
  return cases;
}

void check_operator(const AttentionCase& what, at::Device device, const std::function<Arguments(Arguments)>& change) {
  AttentionSize small = what.size;
  small.B = std::min<int64_t>(small.B, 2), small.T = std::min<int64_t>(small.T, 512);
  Arguments given = as_leaves(benched_operator(what.mechanism).arguments(small), what.type, device);
  if (change) given = change(given);
  const at::ScalarType type = given.input[kQ].scalar_type();
  const Rounding rounding = rounding_of(type);
  const Arguments narrow = as_leaves(given, type, device), wide = as_leaves(narrow, at::kDouble);  // the same numbers
  const auto forward = [&](Forward run) {
    at::NoGradGuard no_grad;
    return run(narrow);
  };
  const Tensor dout = drawn_like(forward(run_operator));
  auto have = both_passes(run_operator, narrow, dout), plain = both_passes(rounding.rival, narrow, dout),
       want = both_passes(run_definition, wide, dout.to(at::kCPU));
  auto names = result_names(given);
  have.push_back(forward(run_operator)), plain.push_back(plain[0]), want.push_back(want[0]);
  names.emplace_back("out without autograd");
  for (size_t i = 0; i < want.size(); ++i) {
    const auto distance = [&](const std::vector<Tensor>& from) {
      return rounding.size(from[i].to(at::kCPU, at::kDouble) - want[i]);
    };
    // One number for the whole call, such as lambda's gradient, is what is left of thousands of terms that cancel, and
    // so are the few of one query's gates: the fewer they are, the likelier all are right by chance in the rival.
    const auto numbers = static_cast<double>(want[i].numel());
    const double size = std::max(rounding.size(want[i]), kSumTerms / numbers),
                 units = std::max(rounding.units, rounding.number_units / numbers);
    const double error = distance(have), bound = rounding.share * distance(plain) + units * size;
    if (!(error <= bound))
      fail("bench attention: ", what.mechanism, " in ", at::toString(type), ": ", names[i], " is ", error,
           " from the float64 definition, want at most ", bound, "; no time is shown for a wrong result");
  }
}

std::vector<AttentionTimes> measure_attention(const AttentionCase& what, Turns turns, at::Device device) {
  check_operator(what, device);
  const Arguments a = as_leaves(benched_operator(what.mechanism).arguments(what.size), what.type, device);
  const Arguments plain = as_leaves(benched_operator("mha").arguments(what.size), what.type, device);
  const bool with_eager = eager_fits(what.size);
  std::vector<AttentionTimes> all;
  for (const bool backward : {false, true}) {
    const auto times = interleaved({pass(run_operator, a, backward), pass(run_sdpa, plain, backward),
                                    with_eager ? pass(run_eager, a, backward) : nullptr},
                                   turns, device);
    all.push_back({.what = what,
                   .kernel = choose(checked_problem(a, "bench"), backward ? Form::train : Form::attend, {}).name,
                   .backward = backward,
                   .ours = times[0],
                   .sdpa = times[1],
                   .eager = with_eager ? std::optional(times[2]) : std::nullopt});
  }
  return all;
}

}  // namespace motet
