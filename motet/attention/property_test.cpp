// Every kernel of the table against the definition in float64, over random problems: outputs, lse, gradients and the
// two-phase forms stay inside the bound that attention.h states, element by element; what is hidden may hold NaN, what
// is not wanted is not made. RC_PARAMS="max_success=N seed=S" sets the number of cases (2,000) and the seed (1, so that
// a run repeats; 0 draws one and prints it).
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <sstream>

#include "motet/attention/cpu/workspace.h"
#include "motet/attention/cuda.h"
#include "motet/attention/cuda_products.h"
#include "motet/attention/fused.h"
#include "motet/attention/testing.h"
#include "motet/core/testing.h"
#include "motet/cuda/emulation.h"

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
  int window = 0, documents = 0, bias = 0, threads = 1;
  double logits = 1, scale = 1;  // scale: times the default
  cpu::Instructions instructions = cpu::Instructions::best;
  int seed = 0;

  bool tiles() const {
    return instructions == cpu::Instructions::amx || instructions == cpu::Instructions::emulated_amx;
  }
  bool high() const { return tiles() && seed % 3 == 0; }  // the precision
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
             << c.documents << " bias " << c.bias << " threads " << c.threads << " logits " << c.logits << " scale "
             << c.scale << ' ' << cpu::name(c.instructions) << " seed " << c.seed;
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

// What every kernel runs.
void make_plain(Case& c) {
  Shape& n = c.shape;
  c.mixing = {};
  n.Ha = n.Ho = n.Hs, n.Gk = divisor(n.Hs), n.Gv = divisor(n.Hs), n.E = n.D;
  c.starts = c.lengths = false, c.window = c.documents = c.bias = 0;
  if (c.causal) n.S = n.T;
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
  c.type = one_in(10) ? at::kDouble : one_in(4) ? (one_in(2) ? at::kBFloat16 : at::kHalf) : at::kFloat;
  c.layout = static_cast<int>(between(0, 3));
  c.causal = !one_in(4);
  if (c.causal && one_in(4)) c.window = static_cast<int>(between(1, 40));
  c.starts = one_in(5), c.lengths = one_in(5);
  c.documents = one_in(5) ? static_cast<int>(between(1, 2)) : 0;
  c.bias = one_in(8) ? static_cast<int>(between(1, 2)) : 0;
  c.logits = one_in(6) ? 4 : 1;  // up to about +-100 once mixed
  if (one_in(8)) c.scale = static_cast<double>(-between(0, 1));
  c.threads = static_cast<int>(between(1, 4));
  std::vector<cpu::Instructions> sets = cpu::available_instructions();  // without any the fused row is left out
  if (!sets.empty()) sets.push_back(cpu::Instructions::emulated_amx);
  if (!sets.empty()) c.instructions = sets[static_cast<size_t>(between(0, static_cast<int64_t>(sets.size()) - 1))];
  c.seed = static_cast<int>(between(0, 1 << 30));
  if (one_in(6)) make_plain(c);
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
  if (c.scale != 1) a.scale = c.scale / std::sqrt(static_cast<double>(c.shape.D));
  const Shape& n = c.shape;
  const auto table = [&](int64_t low, int64_t high) { return at::randint(low, high + 1, {n.B}, at::kLong); };
  if (c.starts) a.table[kQueryStart] = table(-2, n.S + 1);
  if (c.lengths) a.table[kKeyBegin] = table(0, n.S / 2), a.table[kKeyEnd] = table(n.S / 2, n.S);
  if (c.documents == 1) a.table[kDocuments] = (at::rand({n.B, n.S}) < 0.2).to(at::kLong).cumsum(1);
  if (c.documents == 2) a.table[kDocuments] = at::randint(0, 3, {n.B, n.S}, at::kLong);
  if (c.bias) {
    Tensor bias = random({c.bias == 1 ? 1 : n.B, c.bias == 1 ? 1 : n.Ha, n.T, n.S}, 1, c.type);
    a.input[kBias] = bias.masked_fill(at::rand(bias.sizes()) < 0.1, -std::numeric_limits<double>::infinity());
  }
  return a;
}

Arguments as(const Arguments& given, at::ScalarType type) {
  Arguments a = given;
  for (Tensor& t : a.input)
    if (t.defined()) t = t.to(type);
  return a;
}

cpu::Runtime threads(const Case& c) { return {own_threads(c.threads), c.instructions}; }

/// The same beside products of matrices, in blocks of few queries.
constexpr BlockSize kFew{1 << 10, 16};
const Kernel kEmulatedBetween{
    "cuda between products, emulated",
    [](const Problem& p) {
      const bool one_type = p.q_BTHD.scalar_type() == p.k_BSGD.scalar_type();
      return one_type ? cuda_why_not(p, cuda::attention()) : "keys of another type";
    },
    [](const Problem& p) { return products_forward(p, cuda::attention(), kFew); },
    [](const Problem& p, const Backward& b) { return products_backward(p, b, cuda::attention(), kFew); },
    [](const Problem& p) { return products_lse(p, cuda::attention(), kFew); },
    [](const Problem& p, const Tensor& lse) { return products_given_lse(p, lse, cuda::attention(), kFew); }};

// Emulated kernels are slow: one case in eight.
std::vector<const Kernel*> kernels(const Case& c) {
  std::vector<const Kernel*> all(kernel_table().begin(), kernel_table().end());
  if (c.seed % 8 == 0) all.insert(all.end(), {&kEmulatedCuda, &kEmulatedBetween});
  return all;
}

/// The error bound of attention.h for one problem: the absolute sizes of what is summed.
struct Bound {
  AttentionMaps reference;
  Gradients expected, terms;  // gradients and, for each element, the sum of the absolute values of its terms
  Tensor out_terms;
  bool narrow = false;  // q has 16 bits
  bool tiles = false;   // the row fused multiplies by tiles, and in three products
  bool high = false;
  double largest_logit = 0;  // sum of the absolute values of the terms of a visible logit, at most
};

// The definition with absolute values everywhere. The softmax is replaced by what is linear in the logits and has the
// gradient P (|g| + sum_s P |g|), the absolute terms of P (g - sum_s P g).
Bound bound_of(const Arguments& wide, const Tensor& cotangent) {
  Bound b{definition(checked_problem(wide, "test")), definition_gradients(wide, cotangent), {}, {}};
  Arguments a = wide;
  for (Tensor& t : a.input)
    if (t.defined()) t = t.masked_fill(t.isinf(), 0).abs();
  a = with_gradients(a);
  const Problem p = checked_problem(a, "test");
  const auto heads = [](const Tensor& x, const std::vector<int64_t>& of) {
    return x.index_select(2, at::tensor(of, at::kLong));
  };
  const Tensor scores = std::abs(p.scale) * at::einsum("bthd,bshd->bhts", {p.q_BTHD, heads(p.k_BSGD, p.key_of)});
  Tensor logits = mixed_heads(scores, p.pre);
  if (p.bias_BHTS.defined()) logits = logits + p.bias_BHTS;
  b.largest_logit = logits.detach().masked_fill(b.reference.hidden_BHTS, 0).abs().max().item<double>();
  const Tensor weights = b.reference.weights_BHTS.detach();
  const Tensor slope = weights * (logits + (weights * logits).sum(-1, true));
  const Tensor linear = weights + (slope - slope.detach());
  const Tensor mixed =
      p.lambda.defined() ? subtracted_pairs(linear, -p.lambda) : mixed_heads(linear, p.post);  // all terms added
  const Tensor out = at::einsum("bhts,bshe->bthe", {mixed, heads(p.v_BSGE, p.value_of)});
  b.out_terms = out.detach();
  std::vector<Tensor> leaves;
  for (const Tensor& t : a.input)
    if (t.defined()) leaves.push_back(t);
  const auto found = torch::autograd::grad({out}, leaves, {cotangent.abs()}, {}, false, true);
  size_t next = 0;
  for (int i = 0; i < kNumInputs; ++i)
    if (a.input[i].defined()) b.terms[i] = found[next].defined() ? found[next] : at::zeros_like(a.input[i]), ++next;
  return b;
}

/// Whether weights, or their gradients, were rounded to q's 16 bits on the way to the result.
bool weights_are_rounded(const Kernel& kernel, const std::string& result, at::ScalarType type, bool tiles) {
  const bool product = result == "gradient of q" || result == "gradient of k" || result == "gradient of v";
  if (&kernel == &kEmulatedBetween) return type != at::kFloat && (product || result == "out");
  if ((&kernel != &kFused && &kernel != &kFusedAmx) || type != at::kBFloat16) return false;
  return result == "out" || (product && (tiles || &kernel == &kFusedAmx));
}

/// The u of attention.h: what a result may be off for each X, and each M X.
double allowed(const Kernel& kernel, const std::string& result, at::ScalarType type, const Bound& bound) {
  const bool narrow = bound.narrow;
  const double largest_logit = bound.largest_logit;
  const double last_place = type == at::kHalf ? 0x1p-10 : type == at::kBFloat16 ? 0x1p-7 : 0;
  const double places = &kernel == &kSdpa ? 4 : weights_are_rounded(kernel, result, type, bound.tiles) ? 1 : 0.5;
  const double wide = &kernel == &kFused && bound.high ? 0x1p-14 : 4 * (type == at::kDouble ? 0x1p-52 : 0x1p-23);
  const bool rough = &kernel == &kSdpa && narrow;
  if (&kernel == &kEmulatedCuda && narrow)  // tensor cores: scores, weights and parts of mixes pass through float16
    return (0.5 + (type == at::kBFloat16)) * last_place + 0x1p-9 * (1 + largest_logit);
  return places * last_place + (rough ? 0x1p-15 : wide) * (1 + largest_logit);
}

/// Empty when every element of `got` keeps the bound, else the worst.
std::string too_far(const Kernel& kernel, const std::string& name, const Tensor& got, const Tensor& reference,
                    const Tensor& terms, const Bound& bound) {
  const Tensor finite = reference.isfinite(), x = got.to(at::kDouble);
  if (!got.defined() || got.sizes() != reference.sizes()) return name + " has another shape";
  if (!at::equal(x.masked_fill(finite, 0), reference.masked_fill(finite, 0)))
    return name + " is not infinite where it should be";
  const auto type = got.scalar_type();
  const bool by_halves = &kernel == &kSdpa || (&kernel == &kEmulatedCuda && bound.narrow) ||
                         (&kernel == &kEmulatedBetween && type == at::kHalf);
  const double smallest = by_halves ? 0x1p-14 : type != at::kHalf ? 1e-35 : 0x1p-24;  // below it numbers vanish
  const double relative = allowed(kernel, name, type, bound);
  const Tensor excess = (x - reference).masked_fill(~finite, 0).abs() / (terms * relative + smallest);
  const double worst = excess.numel() ? excess.max().item<double>() : 0;
  if (worst <= 1) return "";  // not so for NaN
  std::ostringstream text;
  text << kernel.name << ": " << name << " errs by " << worst << " times what is allowed";
  return text.str();
}

// Keys that nobody may read hold NaN.
Arguments with_spoilt_padding(const Arguments& given) {
  Arguments a = given;
  if (!a.table[kKeyBegin].defined()) return a;
  for (int i = 0; i < kNumInputs; ++i) {
    const bool of_keys = i == kK || i == kV || (i >= kPre && kMixParts[(i - kPre) % kNumMixParts].side == Side::key);
    if (!of_keys || !a.input[i].defined()) continue;
    const int64_t S = a.input[i].size(1);
    a.input[i] = a.input[i].clone();
    for (int64_t b = 0; b < a.input[i].size(0); ++b) {
      a.input[i][b].slice(0, 0, a.table[kKeyBegin][b].item<int64_t>()).fill_(NAN);
      a.input[i][b].slice(0, a.table[kKeyEnd][b].item<int64_t>(), S).fill_(NAN);
    }
  }
  return a;
}

// Outputs and gradients of one kernel; a random choice of gradients is not wanted.
std::string check_whole(const Kernel& kernel, const Case& c, Problem p, const Tensor& cotangent, const Bound& bound) {
  const bool fused = &kernel == &kFused;
  if (fused && c.high()) p.precision = Precision::high;
  const Attended got = fused ? fused_forward(p, threads(c)) : kernel.forward(p);
  const Tensor ones = at::ones_like(bound.reference.lse_BHT);
  std::string bad = too_far(kernel, "out", got.out_BTHE, bound.reference.out_BTHE, bound.out_terms, bound);
  if (bad.empty()) bad = too_far(kernel, "lse", got.lse_BHT, bound.reference.lse_BHT, ones, bound);
  Backward b{laid_out(cotangent, c.layout), got.out_BTHE, got.lse_BHT, {}};
  for (int i = 0; i < kNumInputs; ++i) b.wanted[i] = bound.terms[i].defined() && (c.seed >> i) % 4 != 0;
  const Gradients mine = fused ? fused_backward(p, b, threads(c)) : kernel.backward(p, b);
  for (int i = 0; i < kNumInputs && bad.empty(); ++i) {
    const std::string name = "gradient of " + input_name(i);
    if (mine[i].defined() != b.wanted[i]) return std::string(kernel.name) + ": " + name + " is made though not wanted";
    if (b.wanted[i]) bad = too_far(kernel, name, mine[i], bound.expected[i], bound.terms[i], bound);
  }
  return bad;
}

// The keys in two parts, each under the lse of both: the parts' outputs add up.
std::string check_parts(const Kernel& kernel, const Case& c, const Arguments& a, const Bound& bound) {
  if (!kernel.given_lse) return "";
  const int64_t middle = c.seed % (c.shape.S + 1);
  const Tensor begin = a.table[kKeyBegin].defined() ? a.table[kKeyBegin] : at::zeros({c.shape.B}, at::kLong);
  const Tensor end = a.table[kKeyEnd].defined() ? a.table[kKeyEnd] : at::full({c.shape.B}, c.shape.S, at::kLong);
  Arguments first = a, second = a;
  first.table[kKeyBegin] = begin.clamp_max(middle), first.table[kKeyEnd] = end.clamp_max(middle);
  second.table[kKeyBegin] = begin.clamp_min(middle), second.table[kKeyEnd] = end.clamp_min(middle);
  const Problem p = checked_problem(first, "test"), q = checked_problem(second, "test");
  const Tensor lse = at::logaddexp(kernel.lse(p), kernel.lse(q));
  const Tensor out = kernel.given_lse(p, lse).to(at::kDouble) + kernel.given_lse(q, lse).to(at::kDouble);
  const Tensor ones = at::ones_like(bound.reference.lse_BHT);
  // Two roundings where there is one otherwise: of lse, which each weight meets, and to q's dtype.
  Bound twice = bound;
  twice.largest_logit = 3 * bound.largest_logit + 2;
  const std::string bad = too_far(kernel, "lse", lse, bound.reference.lse_BHT, ones, twice);
  return bad.empty() ? too_far(kernel, "out", out.to(a.input[kQ].scalar_type()), bound.reference.out_BTHE,
                               2 * bound.out_terms, twice)
                     : bad;
}

/// The first result of a kernel that is too far from the definition, or nothing.
std::string compare(const Case& c) {
  const Arguments a = arguments_of(c), spoilt = with_spoilt_padding(a);
  const Tensor cotangent = random({c.shape.B, c.shape.T, c.shape.Ho, c.shape.E}, 1, c.type);
  Bound bound = bound_of(as(a, at::kDouble), cotangent.to(at::kDouble));
  bound.narrow = at::elementSize(c.type) == 2;
  bound.tiles = c.tiles(), bound.high = c.high();
  const Problem p = checked_problem(spoilt, "test");
  for (const Kernel* kernel : kernels(c)) {
    if (!kernel->why_not(p).empty()) continue;
    std::string bad = check_whole(*kernel, c, p, cotangent, bound);
    if (bad.empty()) bad = check_parts(*kernel, c, spoilt, bound);
    if (bad.empty()) bad = cuda::emulated::take_fault();
    if (!bad.empty()) return bad;
  }
  return "";
}

TEST(KernelProperty, EveryKernelKeepsTheStatedBoundOnAnyProblem) {
  setenv("RC_PARAMS", "max_success=2000 seed=1", 0);
  cpu::poison_workspaces(cpu::Poison::nan);
  const bool passed = rc::check("kernels agree with the definition", [] {
    const Case c = random_case();
    std::ostringstream text;
    text << c;
    RC_LOG(text.str());
    const std::string bad = compare(c);
    if (!bad.empty()) RC_FAIL(bad);
  });
  cpu::poison_workspaces(cpu::Poison::none);
  EXPECT_TRUE(passed);
}

// One chain of additions over all keys would be off by several times the bound.
TEST(KernelProperty, SumsOverManyKeysKeepItToo) {
  std::vector<cpu::Instructions> all = cpu::available_instructions();
  if (!all.empty()) all.push_back(cpu::Instructions::emulated_amx);
  for (const bool mixed : {false, true})
    for (const cpu::Instructions instructions : all) {
      Case c;
      c.shape.B = 1, c.shape.T = 32, c.shape.S = 8192, c.shape.D = c.shape.E = 16;
      c.shape.Hs = c.shape.Ha = c.shape.Ho = c.shape.Gk = c.shape.Gv = 2;
      if (mixed) c.mixing = {{"weight"}, {"weight"}};
      c.instructions = instructions, c.logits = 0.3;
      Arguments a = arguments_of(c);
      a.input[kV] += 1;
      const Tensor cotangent = random({1, c.shape.T, 2, 16}, 1, c.type);
      const Bound bound = bound_of(as(a, at::kDouble), cotangent.to(at::kDouble));
      EXPECT_EQ(check_whole(kFused, c, checked_problem(a, "test"), cotangent, bound), "") << c;
    }
}

}  // namespace
}  // namespace motet
