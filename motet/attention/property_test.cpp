// The fused kernels against the definition in float64, over random problems: the error of every result is at most four
// times that of the definition in the problem's own dtype, plus rounding. RC_PARAMS="max_success=N seed=S" sets the
// number of cases (2,000) and the seed (1, so that a run repeats; 0 draws one and prints it).
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <sstream>
#include <thread>

#include "motet/attention/cpu/workspace.h"
#include "motet/attention/fused.h"
#include "motet/attention/testing.h"

namespace motet {
namespace {

using namespace motet::testing;

/// Everything that a case is made of; printed when it fails.
struct Case {
  Shape shape;
  Mixing mixing;
  at::ScalarType type = at::kFloat;
  int layout = 0;  // of q, k, v: 0 contiguous, 1 [B,H,T,D] behind, 2 a slice of something wider, 3 the width strided
  bool causal = false, starts = false, lengths = false;
  int window = 0, documents = 0, threads = 1;
  double logits = 1;
  cpu::Instructions instructions = cpu::Instructions::best;
  int seed = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  const Shape& n = c.shape;
  out << "B " << n.B << " T " << n.T << " S " << n.S << " heads " << n.Hs << '/' << n.Ha << '/' << n.Ho << " stored "
      << n.Gk << '/' << n.Gv << " D " << n.D << " E " << n.E << " R " << n.R << " pre";
  for (const std::string& part : c.mixing.pre) out << ' ' << part;
  out << " post";
  for (const std::string& part : c.mixing.post) out << ' ' << part;
  return out << " lambda " << c.mixing.lambda_dim << ' ' << c.type << " layout " << c.layout << " causal " << c.causal
             << " window " << c.window << " starts " << c.starts << " lengths " << c.lengths << " documents "
             << c.documents << " threads " << c.threads << " logits " << c.logits << ' ' << cpu::name(c.instructions)
             << " seed " << c.seed;
}

int64_t between(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }
bool one_in(int n) { return between(1, n) == 1; }

// Mostly short, now and then across several blocks.
int64_t length() { return one_in(8) ? between(65, 130) : one_in(3) ? between(17, 64) : between(1, 20); }

std::vector<std::string> subset(const std::vector<std::string>& all) {
  std::vector<std::string> chosen;
  for (const std::string& name : all) {
    const bool up = name.ends_with("_up");
    if (up ? !chosen.empty() && chosen.back() == name.substr(0, name.size() - 2) + "down" : one_in(2))
      chosen.push_back(name);
  }
  return chosen;
}

std::vector<std::string> square_mix() {
  const int64_t kind = between(0, 4);
  if (kind == 0) return {};
  if (kind == 1) return kDcmha;
  if (kind == 2) return {"weight"};
  return subset(kAllSquare);
}

void choose_mixes(Case& c) {
  Shape& n = c.shape;
  const int64_t kind = between(0, 5);
  if (kind == 0) {  // none
    n.Ha = n.Ho = n.Hs;
  } else if (kind == 1) {  // differential
    n.Ha = n.Hs = n.Hs / 2 * 2 + (n.Hs < 2 ? 2 : 0), n.Ho = n.Ha / 2;
    c.mixing.lambda_dim = static_cast<int>(between(0, 2)) * 3 / 2;
    if (one_in(3)) c.mixing.pre = square_mix();
  } else if (kind == 2) {  // rectangular
    n.Ha = between(1, 6), n.Ho = between(1, 6);
    c.mixing.pre = subset(kRect), c.mixing.post = subset(kRect);
    if (c.mixing.pre.empty()) c.mixing.pre = {"weight"};
    if (c.mixing.post.empty()) c.mixing.post = {"weight"};
  } else {
    n.Ha = n.Ho = n.Hs;
    c.mixing.pre = square_mix(), c.mixing.post = square_mix();
  }
}

int64_t divisor(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all[static_cast<size_t>(between(0, static_cast<int64_t>(all.size()) - 1))];
}

Case random_case() {
  Case c;
  Shape& n = c.shape;
  n.B = one_in(3) ? between(2, 3) : 1;
  n.T = length(), n.S = one_in(2) ? n.T : length();
  n.Hs = between(1, 6);
  n.D = one_in(2) ? 8 * between(1, 6) : between(1, 40), n.E = one_in(2) ? n.D : between(1, 70);
  n.R = one_in(3) ? between(1, 8) : 2;
  choose_mixes(c);
  n.Gk = divisor(n.Hs), n.Gv = divisor(n.Ho);
  c.type = one_in(4) ? (one_in(2) ? at::kBFloat16 : at::kHalf) : at::kFloat;
  c.layout = static_cast<int>(between(0, 3));
  c.causal = !one_in(4);
  if (c.causal && one_in(4)) c.window = static_cast<int>(between(1, 40));
  c.starts = one_in(5), c.lengths = one_in(5);
  c.documents = one_in(5) ? static_cast<int>(between(1, 2)) : 0;
  c.logits = one_in(6) ? 4 : 1;  // up to about +-100 once mixed
  c.threads = static_cast<int>(between(1, 4));
  const std::vector<cpu::Instructions> sets = cpu::available_instructions();
  c.instructions = sets[static_cast<size_t>(between(0, static_cast<int64_t>(sets.size()) - 1))];
  c.seed = static_cast<int>(between(0, 1 << 30));
  return c;
}

Tensor laid_out(const Tensor& x, int layout) {
  if (layout == 1) return x.transpose(1, 2).contiguous().transpose(1, 2);
  if (layout == 2) return at::cat({x, x}, 3).slice(3, 0, x.size(3));
  if (layout == 3) return x.transpose(2, 3).contiguous().transpose(2, 3);
  return x;
}

/// The arguments of a case in its dtype.
Arguments arguments_of(const Case& c) {
  at::manual_seed(c.seed);
  Arguments a = arguments(c.shape, c.mixing, c.type);
  a.input[kQ] = a.input[kQ] * c.logits;
  for (int i : {kQ, kK, kV}) a.input[i] = laid_out(a.input[i], c.layout);
  a.causal = c.causal, a.window = c.window;
  const Shape& n = c.shape;
  const auto table = [&](int64_t low, int64_t high) { return at::randint(low, high + 1, {n.B}, at::kLong); };
  if (c.starts) a.table[kQueryStart] = table(-2, n.S + 1);
  if (c.lengths) a.table[kKeyBegin] = table(0, n.S / 2), a.table[kKeyEnd] = table(n.S / 2, n.S);
  if (c.documents == 1) a.table[kDocuments] = (at::rand({n.B, n.S}) < 0.2).to(at::kLong).cumsum(1);
  if (c.documents == 2) a.table[kDocuments] = at::randint(0, 3, {n.B, n.S}, at::kLong);
  return a;
}

Arguments as(const Arguments& given, at::ScalarType type) {
  Arguments a = given;
  for (Tensor& t : a.input)
    if (t.defined()) t = t.to(type);
  return a;
}

cpu::Runtime threads(const Case& c) {
  return {c.threads,
          [](int64_t n, const std::function<void(int64_t)>& task) {
            std::vector<std::thread> pool;
            for (int64_t i = 0; i < n; ++i) pool.emplace_back(task, i);
            for (std::thread& t : pool) t.join();
          },
          c.instructions};
}

/// Empty when `got` is close enough to `reference`, given what plain torch makes of the same numbers; `terms` is the
/// size of what is summed, for results that cancel.
std::string too_far(const std::string& name, const Tensor& got, const Tensor& plain, const Tensor& reference,
                    double times, double terms) {
  const Tensor finite = reference.isfinite();
  if (!at::equal(got.to(at::kDouble).masked_fill(finite, 0), reference.masked_fill(finite, 0)))
    return name + " is not finite where it should be";
  const auto error = [&](const Tensor& x) {
    return (x.to(at::kDouble) - reference).masked_fill(~finite, 0).abs().max().item<double>();
  };
  const double size = reference.masked_fill(~finite, 0).abs().max().item<double>();
  const double epsilon = got.scalar_type() == at::kFloat ? 1.2e-7 : got.scalar_type() == at::kHalf ? 9.8e-4 : 7.8e-3;
  const double scale = size < 1e-6 ? 4 * terms : std::max(size, terms);
  const double mine = error(got), limit = times * error(plain) + 8 * epsilon * scale;
  if (mine <= limit) return "";
  std::ostringstream text;
  text << name << " errs by " << mine << ", limit " << limit << " (plain torch " << error(plain) << ", size " << size
       << ")";
  return text.str();
}

/// The first result of the fused kernels that is too far from the definition, or nothing.
std::string compare(const Case& c) {
  const Arguments a = arguments_of(c), wide = as(a, at::kDouble);
  const Problem p = checked_problem(a, "test");
  const AttentionMaps reference = definition(checked_problem(wide, "test")), plain = definition(p);
  const Attended got = fused_forward(p, threads(c));
  // Twice, as operator.md has it, is what results keep on the whole; the worst of 20,000 in a run reaches four times.
  const double times = 4;
  if (const std::string bad = too_far("out", got.out_BTHE, plain.out_BTHE, reference.out_BTHE, times, c.logits);
      !bad.empty())
    return bad;
  if (const std::string bad = too_far("lse", got.lse_BHT, plain.lse_BHT, reference.lse_BHT, times, c.logits);
      !bad.empty())
    return bad;
  const Tensor cotangent = random(got.out_BTHE.sizes().vec(), 1, c.type);
  const Gradients expected = definition_gradients(wide, cotangent.to(at::kDouble)),
                  rough = definition_gradients(a, cotangent);
  Backward b{laid_out(cotangent, c.layout), got.out_BTHE, got.lse_BHT, {}};
  for (int i = 0; i < kNumInputs; ++i) b.wanted[i] = a.input[i].defined();
  const Gradients mine = fused_backward(p, b, threads(c));
  for (int i = 0; i < kNumInputs; ++i) {
    if (!a.input[i].defined()) continue;
    const bool whole = i == kLambda || i == kPre + kWeight || i == kPost + kWeight;  // sums over all queries and keys
    const double terms = (whole ? 64 : 4) * c.logits * (c.logits > 1 ? 2 : 1);
    if (const std::string bad = too_far("gradient of " + input_name(i), mine[i], rough[i], expected[i], times, terms);
        !bad.empty())
      return bad;
  }
  return "";
}

TEST(FusedProperty, AnyProblemIsAsCloseToTheDefinitionAsPlainTorch) {
  if (cpu::available_instructions().empty()) GTEST_SKIP() << "this CPU has no AVX2";
  setenv("RC_PARAMS", "max_success=2000 seed=1", 0);
  cpu::poison_workspaces(true);
  const bool passed = rc::check("fused kernels agree with the definition", [] {
    const Case c = random_case();
    std::ostringstream text;
    text << c;
    RC_LOG(text.str());
    const std::string bad = compare(c);
    if (!bad.empty()) RC_FAIL(bad);
  });
  cpu::poison_workspaces(false);
  EXPECT_TRUE(passed);
}

}  // namespace
}  // namespace motet
