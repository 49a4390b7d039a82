// The operator against its definition: every kernel, every mix part, every kind of visibility, forward and backward.
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "motet/attention/fused.h"
#include "motet/attention/stack.h"
#include "motet/attention/testing.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using namespace testing;

struct Case {
  const char* name;
  Shape shape;
  Mixing mixing;
  void (*change)(Arguments&) = nullptr;
};

std::vector<Case> cases() {
  const auto causal = [](Arguments& a) { a.causal = true; };
  return {
      {"plain", {}, {}},
      {"plain causal square", {.T = 9}, {}, causal},
      {"grouped", {.Gk = 2, .Gv = 1}, {}, causal},
      {"equal widths causal", {.T = 9, .D = 8, .E = 8}, {}, causal},
      {"equal widths bidirectional grouped", {.Gk = 2, .Gv = 2, .D = 8, .E = 8}, {}},
      {"one place", {.T = 1, .S = 1}, {kDcmha, kDcmha}, causal},
      {"one query", {.T = 1, .S = 65}, {kDcmha, kDcmha}, causal},
      {"odd lengths", {.T = 63, .S = 65}, {kDcmha, kDcmha}, causal},
      {"all square parts", {.T = 9}, {kAllSquare, kAllSquare}, causal},
      {"rectangular", {.Hs = 3, .Ha = 5, .Ho = 2, .Gk = 1, .Gv = 2}, {kRect, kRect}},
      {"post only", {}, {{}, kDcmha}, causal},
      {"pre only", {}, {kDcmha, {}}, causal},
      {"static weight alone", {.Ha = 6, .Ho = 3, .Gv = 3}, {{"weight"}, {"weight"}}, causal},
      {"gates alone", {}, {{"query_gate"}, {"key_gate"}}, causal},
      {"pairs number", {.Ho = 2, .Gv = 2}, {{}, {}, 0}, causal},
      {"pairs head", {.Ho = 2, .Gv = 1}, {{}, {}, 1}, causal},
      {"pairs token beside a pre mix", {.Ho = 2, .Gv = 2}, {kDcmha, {}, 3}, causal},
      {"pairs square", {.T = 9, .Ho = 2, .Gv = 2}, {{}, {}, 1}, causal},
      {"pairs square, shared", {.T = 9, .Ho = 2, .Gk = 2, .Gv = 1}, {{}, {}, 3}, causal},
      {"tables",
       {.Gk = 2, .Gv = 3},
       {kDcmha, kDcmha},
       [](Arguments& a) { a.key_of = {0, 1, 0, 1}, a.value_of = {2, 0, 0, 1}; }},
      {"window", {.T = 33, .S = 33}, {kDcmha, kDcmha}, [](Arguments& a) { a.causal = true, a.window = 5; }},
      {"more queries than keys", {.T = 9, .S = 4}, {kDcmha, kDcmha}, causal},
      {"ragged",
       {.B = 3, .T = 6, .S = 9},
       {kDcmha, kDcmha},
       [](Arguments& a) {
         a.causal = true, a.window = 4;
         a.table = {integers({3, 0, -2}), integers({0, 2, 9}), integers({9, 5, 9}), Tensor()};
       }},
      {"documents",
       {.T = 9, .S = 9},
       {kDcmha, kDcmha},
       [](Arguments& a) { a.table[kDocuments] = (at::arange(18) / 4).to(at::kLong).view({2, 9}), a.causal = true; }},
      {"bias shared",
       {},
       {kDcmha, kDcmha},
       [](Arguments& a) { a.input[kBias] = random({1, 1, 7, 9}, 1), a.causal = true; }},
      {"bias per head with hidden places",
       {},
       {},
       [](Arguments& a) {
         a.input[kBias] = random({2, 4, 7, 9}, 1);
         a.input[kBias].slice(3, 2, 5).fill_(-std::numeric_limits<double>::infinity());
         a.input[kBias].select(2, 3).fill_(-std::numeric_limits<double>::infinity());
       }},
      {"scale", {}, {}, [](Arguments& a) { a.scale = -0.3; }},
  };
}

Arguments made(const Case& c, at::ScalarType type = at::kDouble) {
  at::manual_seed(7);
  Arguments a = arguments(c.shape, c.mixing);
  if (c.change) c.change(a);
  for (Tensor& t : a.input)
    if (t.defined()) t = t.to(type);
  return a;
}

TEST(Attention, EveryKernelEqualsTheDefinition) {
  for (const Case& c : cases()) {
    const Problem p = checked_problem(made(c), "test");
    const AttentionMaps want = definition(p);
    for (const Kernel* kernel : able_kernels(p)) {
      const Attended got = kernel->forward(p);
      EXPECT_LE(relative_error(got.out_BTHE, want.out_BTHE), 1e-12) << c.name << " " << kernel->name;
      const Tensor seen = want.lse_BHT.isfinite();
      EXPECT_TRUE(got.lse_BHT.isneginf().equal(want.lse_BHT.isneginf())) << c.name;
      EXPECT_LE(relative_error(got.lse_BHT.masked_select(seen), want.lse_BHT.masked_select(seen)), 1e-12) << c.name;
    }
  }
}

TEST(Attention, EveryKernelsGradientsEqualTheDefinitions) {
  for (const Case& c : cases()) {
    const Arguments a = made(c);
    const Problem p = checked_problem(a, "test");
    const Tensor cotangent = random({p.B, p.T, p.output_heads, p.E}, 1);
    const Gradients want = definition_gradients(a, cotangent);
    for (const Kernel* kernel : able_kernels(p)) {
      const Attended done = kernel->forward(p);
      const Gradients got = kernel->backward(p, {cotangent, done.out_BTHE, done.lse_BHT, all_wanted(a)});
      for (int i = 0; i < kNumInputs; ++i) {
        if (!a.input[i].defined()) continue;
        ASSERT_EQ(got[i].sizes(), a.input[i].sizes()) << c.name << " " << input_name(i);
        EXPECT_LE(relative_error(got[i], want[i], 1e-3), 1e-11)
            << c.name << " " << kernel->name << " " << input_name(i);
      }
    }
  }
}

TEST(Attention, MixesWhoseNumbersHaveGapsAreThoseWithout) {
  Arguments a = made({"", {.T = 9}, {kDcmha, kDcmha}});
  for (Tensor& t : a.input)
    if (t.defined()) t = t.to(at::kFloat);
  for (const Kernel* kernel : able_kernels(checked_problem(a, "test"))) {
    const Tensor want = kernel->forward(checked_problem(a, "test")).out_BTHE;
    Arguments gaps = a;
    for (int i = kPre; i < kNumInputs; ++i)
      if (a.input[i].defined()) gaps.input[i] = a.input[i].transpose(-1, -2).contiguous().transpose(-1, -2);
    const Tensor got = kernel->forward(checked_problem(gaps, "test")).out_BTHE;
    EXPECT_LE(relative_error(got, want), 1e-6) << kernel->name;
  }
}

TEST(Attention, BlocksDoNotChangeTheResult) {  // long enough for several blocks
  at::manual_seed(1);
  Arguments a = arguments({.B = 1, .T = 700, .S = 700, .D = 4, .E = 4}, {kDcmha, kDcmha});
  a.causal = true;
  a.window = 300;
  const Problem p = checked_problem(a, "test");
  EXPECT_LE(relative_error(kBlocked.forward(p).out_BTHE, definition(p).out_BTHE), 1e-12);
}

TEST(Attention, AutogradReachesEveryInputThroughTheOperator) {
  at::manual_seed(3);
  const Arguments a = with_gradients(arguments({.T = 9}, {kAllSquare, kAllSquare}));
  Queries q{a.input[kQ], {}, {}, {}};
  Keys k{a.input[kK], a.input[kV], {}, {}};
  Attention at;
  at.visibility.causal = true;
  const auto fill = [&](int first, StaticMix& s, QueryMix& qm, KeyMix& km) {
    s = {true, a.input[first + kWeight]};
    qm = {a.input[first + kQueryDown], a.input[first + kQueryUp], a.input[first + kQueryGate],
          a.input[first + kQueryFull]};
    km = {a.input[first + kKeyDown], a.input[first + kKeyUp], a.input[first + kKeyGate], a.input[first + kKeyFull]};
  };
  fill(kPre, at.pre, q.pre, k.pre);
  fill(kPost, at.post, q.post, k.post);
  const Attended got = composed_attention(q, k, at);
  EXPECT_FALSE(got.lse_BHT.requires_grad());
  const Tensor cotangent = at::randn_like(got.out_BTHE);
  got.out_BTHE.backward(cotangent);
  Arguments same = a;
  same.causal = same.pre_identity = same.post_identity = true;
  const Gradients want = definition_gradients(same, cotangent);
  for (int i = 0; i < kNumInputs; ++i)
    if (a.input[i].defined()) {
      EXPECT_LE(relative_error(a.input[i].grad(), want[i]), 1e-11) << input_name(i);
    }
}

TEST(Attention, SecondDerivativesAreRefused) {
  const Tensor q = random({1, 3, 2, 4}, 1).requires_grad_(), k = random({1, 3, 2, 4}, 1), v = random({1, 3, 2, 4}, 1);
  const Tensor out = composed_attention({q, {}, {}, {}}, {k, v, {}, {}}, {}).out_BTHE;
  const Tensor dq = torch::autograd::grad({out.pow(2).sum()}, {q}, {}, true, true)[0];
  try {
    torch::autograd::grad({dq.sum()}, {q});
    FAIL() << "want an error";
  } catch (const c10::Error& e) {
    EXPECT_NE(std::string(e.what()).find("second derivatives are not implemented"), std::string::npos) << e.what();
  }
}

TEST(Attention, SplitOverKeysAddsUpUnderTheCommonLse) {
  at::manual_seed(5);
  const Arguments a = arguments({.B = 2, .T = 3, .S = 12}, {kDcmha, kDcmha});
  const auto keys = [&](int64_t begin, int64_t end) {
    const auto cut = [&](int i) { return a.input[i].slice(1, begin, end); };
    return Keys{cut(kK),
                cut(kV),
                {cut(kPre + kKeyDown), cut(kPre + kKeyUp), cut(kPre + kKeyGate), {}},
                {cut(kPost + kKeyDown), cut(kPost + kKeyUp), cut(kPost + kKeyGate), {}}};
  };
  const auto side = [&](int first) {
    return QueryMix{a.input[first + kQueryDown], a.input[first + kQueryUp], a.input[first + kQueryGate], {}};
  };
  const Queries q{a.input[kQ], side(kPre), side(kPost), {}};
  Attention at;
  at.pre.identity = at.post.identity = true;
  const Attended whole = composed_attention(q, keys(0, 12), at);
  const Tensor lse = at::logsumexp(at::stack({attention_lse(q, keys(0, 5), at), attention_lse(q, keys(5, 12), at)}), 0);
  EXPECT_LE(relative_error(lse, whole.lse_BHT), 1e-12);
  const Tensor sum = attention_given_lse(q, keys(0, 5), at, lse) + attention_given_lse(q, keys(5, 12), at, lse);
  EXPECT_LE(relative_error(sum, whole.out_BTHE), 1e-12);
}

// An independent oracle: query-side mixes are plain attention over longer, concatenated queries and keys.
TEST(Attention, QuerySideMixEqualsPlainAttentionOverConcatenatedHeads) {
  at::manual_seed(13);
  const Shape n{.B = 2, .T = 6, .S = 6};
  Arguments a = arguments(n, {{"identity", "weight", "query_down", "query_up"}, {}});
  a.causal = true;
  const Tensor low = at::matmul(a.input[kPre + kQueryDown].transpose(2, 3), a.input[kPre + kQueryUp]);
  const Tensor mix_BTNM = low + a.input[kPre + kWeight] + at::eye(4, at::kDouble);
  Arguments plain = a;
  for (int i = 0; i < kNumMixParts; ++i) plain.input[kPre + i] = Tensor();
  plain.pre_identity = false;
  plain.input[kQ] = at::einsum("btnm,btnd->btmnd", {mix_BTNM, a.input[kQ]}).flatten(3);
  plain.input[kK] = a.input[kK].flatten(2).unsqueeze(2);
  plain.scale = 1 / std::sqrt(5.0);
  const Tensor got = kBlocked.forward(checked_problem(a, "test")).out_BTHE;
  EXPECT_LE(relative_error(got, kBlocked.forward(checked_problem(plain, "test")).out_BTHE), 1e-12);
}

// Attention mass on a span of keys is the operator with a 0/1 column as values.
TEST(Attention, MassOnSpansIsTheOperatorWithIndicatorValues) {
  at::manual_seed(14);
  Arguments a = arguments({.B = 1, .T = 4, .S = 8, .E = 2}, {kDcmha, kDcmha});
  Tensor spans = at::zeros({1, 8, 4, 2}, at::kDouble);
  spans.slice(1, 0, 3).select(3, 0).fill_(1);
  spans.slice(1, 3, 8).select(3, 1).fill_(1);
  a.input[kV] = spans;
  const Problem p = checked_problem(a, "test");
  const Tensor mixed = definition(p).mixed_BHTS;
  const Tensor mass = at::stack({mixed.slice(3, 0, 3).sum(3), mixed.slice(3, 3, 8).sum(3)}, -1).transpose(1, 2);
  EXPECT_LE(relative_error(kBlocked.forward(p).out_BTHE, mass), 1e-12);
}

TEST(Attention, KeysIn16BitsCountAsTheirWidenedSelves) {
  at::manual_seed(15);
  const auto attend = [](const Arguments& a) {
    torch::jit::Stack stack;
    push(stack, a);
    c10::Dispatcher::singleton().findSchemaOrThrow("motet::composed_attention", "").callBoxed(&stack);
    return stack[0].toTensor();
  };
  const std::vector<Mixing> mixings{{}, {kDcmha, kDcmha}, {{"key_full"}, kAllSquare}};
  const auto is_cached = [](int i) {
    return i == kK || i == kV || (i >= kPre && plain::by_key((i - kPre) % kNumMixParts));
  };
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const Mixing& mixing : mixings)
      for (const auto [T, S, D] : {std::array<int64_t, 3>{1, 600, 16}, {3, 70, 12}, {40, 40, 16}}) {
        Arguments a = arguments({.T = T, .S = S, .Gk = 2, .Gv = 2, .D = D, .E = D}, mixing, at::kFloat);
        a.causal = true;
        std::vector<int> cached;
        for (int i = 0; i < kNumInputs; ++i)
          if (a.input[i].defined() && is_cached(i)) cached.push_back(i);
        for (const int i : cached) a.input[i] = a.input[i].to(type).requires_grad_();
        Arguments wide = a;
        for (const int i : cached) wide.input[i] = a.input[i].detach().to(at::kFloat).requires_grad_();
        const Tensor narrow_out = attend(a), wide_out = attend(wide);
        EXPECT_EQ(narrow_out.scalar_type(), at::kFloat);
        EXPECT_TRUE(at::equal(narrow_out, wide_out)) << type << " T " << T;
        narrow_out.sum().backward(), wide_out.sum().backward();
        for (const int i : cached) {
          EXPECT_EQ(a.input[i].grad().scalar_type(), type);
          EXPECT_TRUE(at::equal(a.input[i].grad(), wide.input[i].grad().to(type))) << type << " T " << T << " " << i;
        }
      }
}

// In inference mode the dispatcher is left out, but where it has something to do.
TEST(Attention, WithoutTheDispatcherNothingIsLeftOut) {
  c10::InferenceMode inference;
  const auto x = [] { return at::randn({1, 5, 2, 8}); };
  const Queries q{x(), {}, {}, {}};
  const Keys k{x(), x(), {}, {}};
  EXPECT_EQ(composed_attention(q, k, {}).out_BTHE.scalar_type(), at::kFloat);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::ScalarType cast = composed_attention(q, k, {}).out_BTHE.scalar_type();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(cast, at::kBFloat16);
  static int seen = 0;
  const at::CallbackHandle counting = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& f) -> std::unique_ptr<at::ObserverContext> {
        seen += std::string(f.name()) == "motet::composed_attention";
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  composed_attention(q, k, {});
  at::removeCallback(counting);
  EXPECT_EQ(seen, 1);
}

TEST(Attention, ExplainSaysWhyNot) {
  const Tensor x = at::randn({1, 4, 2, 8});
  const Choice plain = explain({x, {}, {}, {}}, {x, x, {}, {}}, {.post = {false, at::randn({2, 2})}});
  EXPECT_EQ(plain.kernel, "fused");
  using Reason = std::pair<std::string, std::string>;
  const std::string no_tiles = cpu::why_not(cpu::Instructions::amx);
  const std::vector<Reason> no_gpu{{"flash", "only on a GPU"}, {"cuda", "only on a GPU"}};
  std::vector<Reason> reasons = no_gpu;
  reasons.emplace_back("fused_amx", no_tiles.empty() ? "by itself it takes bfloat16 in one phase" : no_tiles);
  EXPECT_EQ(plain.passed_over, reasons);
  const Tensor wide = x.to(at::kDouble);
  const Choice mixed = explain({wide, {}, {}, {}}, {wide, wide, {}, {}}, {.post = {false, at::randn({2, 2})}});
  EXPECT_EQ(mixed.kernel, "blocked");
  reasons = no_gpu;
  reasons.insert(reasons.end(), {{"fused_amx", "float64 stays on the plain paths"},
                                 {"fused", "float64 stays on the plain paths"},
                                 {"sdpa", "heads are mixed"}});
  EXPECT_EQ(mixed.passed_over, reasons);
}

// What a call says on a CPU without AMX; on one with it, the same of what else it wants.
TEST(Attention, PrecisionHighIsRefusedWhereNoTilesMultiplyFloat32) {
  const std::string wanted = "it is of float32 products by AMX tiles (amx_tile, amx_bf16)";
  const auto said = [](at::ScalarType type, const char* kernel) {
    const Tensor x = at::randn({1, 4, 2, 8}).to(type);
    Attention attention;
    attention.precision = Precision::high;
    try {
      composed_attention({x, {}, {}, {}}, {x, x, {}, {}}, attention, kernel);
    } catch (const c10::ValueError& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string();
  };
  const std::string why = cpu::why_not(cpu::Instructions::amx);
  for (const char* kernel : {static_cast<const char*>(nullptr), "fused_amx"})
    EXPECT_EQ(said(at::kFloat, kernel),
              why.empty() ? "" : "composed_attention: precision is high, want highest: " + wanted + ", and " + why);
  for (const auto type : {at::kBFloat16, at::kHalf, at::kDouble})
    EXPECT_EQ(said(type, nullptr),
              "composed_attention: precision is high, want highest: " + wanted + ", not " + c10::toString(type));
  EXPECT_EQ(why_not_high(at::Device("cuda:0"), at::kFloat), wanted + " on a CPU, not cuda:0");
  const Problem p = [] {
    Arguments a = arguments({.T = 9, .D = 8, .E = 8}, {}, at::kFloat);
    a.precision = "high";
    return checked_problem(a, "test");
  }();
  const KernelTable names{"attention", {"fused"}};
  const Kernel* const rows[] = {&kFused};
  try {
    choose_of(rows, names, p, Form::attend, "fused");
    FAIL();
  } catch (const c10::ValueError& error) {
    EXPECT_NE(std::string(error.what()).find("precision is high, which fused_amx alone has"), std::string::npos);
  }
}

// Through the operator's own problem: three products, forward and backward, of six.
TEST(Attention, PrecisionReachesTheTiles) {
  if (cpu::available_instructions().empty()) GTEST_SKIP() << "this CPU has neither AVX2 nor NEON";
  Arguments a = arguments({.B = 1, .T = 40, .S = 40, .D = 32, .E = 32}, {kDcmha, kDcmha}, at::kFloat);
  a.causal = true;
  const cpu::Runtime run{motet::testing::own_threads(1), cpu::Instructions::emulated_amx};
  const Tensor cotangent = random({1, 40, 4, 32}, 1, at::kFloat);
  const auto made = [&](const char* precision) {
    a.precision = precision;
    const Problem p = checked_problem(a, "test");
    const Attended done = fused_forward(p, run);
    Gradients g = fused_backward(p, {cotangent, done.out_BTHE, done.lse_BHT, all_wanted(a)}, run);
    g[kBias] = done.out_BTHE;
    return g;
  };
  const Gradients six = made("highest"), three = made("high");
  for (const int i : {kQ, kK, kV, kBias}) {
    EXPECT_LE(relative_error(three[i], six[i]), 0x1p-13) << i;
    EXPECT_GE(relative_error(three[i], six[i]), 0x1p-20) << i;
  }
}

// Stored heads in any order, some read by several heads and one by none: with mixes and without, on every kernel.
TEST(Attention, HeadTablesAreReadInTheOrderOfTheHeads) {
  const std::vector<Mixing> mixings{{}, {kDcmha, kDcmha}};
  for (const auto type : {at::kFloat, at::kDouble})
    for (const Mixing& mixing : mixings) {
      at::manual_seed(16);
      Arguments a = arguments({.T = 9, .Gk = 3, .Gv = 3, .D = 8, .E = 8}, mixing, type);
      a.key_of = {2, 0, 2, 0}, a.value_of = {2, 0, 0, 1};
      a.scale = 0.7;
      const Problem p = checked_problem(a, "test");
      const Tensor want = definition(p).out_BTHE, cotangent = random(want.sizes().vec(), 1, type);
      const Gradients wanted = definition_gradients(a, cotangent);
      const double bound = type == at::kDouble ? 1e-11 : 1e-5;
      for (const Kernel* kernel : able_kernels(p)) {
        const Attended done = kernel->forward(p);
        EXPECT_LE(relative_error(done.out_BTHE, want), bound) << kernel->name << " " << type;
        const Gradients got = kernel->backward(p, {cotangent, done.out_BTHE, done.lse_BHT, all_wanted(a)});
        for (const int i : {kQ, kK, kV})
          EXPECT_LE(relative_error(got[i], wanted[i]), bound) << kernel->name << " " << input_name(i) << " " << type;
      }
    }
}

TEST(Attention, ATwoPhaseProblemGoesToAKernelThatHasThatForm) {
  const Arguments a = arguments({.T = 9, .D = 8, .E = 8}, {});  // float64 without a mix: sdpa's, but for two phases
  const Problem p = checked_problem(a, "test");
  EXPECT_STREQ(choose(p, Form::attend, {}).name, "sdpa");
  const Kernel& kernel = choose(p, Form::two_phase, {});
  ASSERT_STREQ(kernel.name, "blocked");
  const AttentionMaps want = definition(p);
  const Tensor lse = kernel.lse(p);
  EXPECT_LE(relative_error(lse, want.lse_BHT), 1e-12);
  EXPECT_LE(relative_error(kernel.given_lse(p, lse), want.out_BTHE), 1e-12);
}

// The table's choice on a CPU that has tiles.
TEST(Attention, TilesTakeBfloat16ByThemselves) {
  Kernel tiles = kFusedAmx;
  tiles.why_not = [](const Problem&) { return std::string(); };
  const Kernel* const rows[] = {&tiles, &kBlocked};
  const KernelTable names{"attention", {"fused_amx", "blocked"}};
  const auto chosen = [&](at::ScalarType type, Form form, const std::optional<std::string>& kernel = {}) {
    const Problem p = checked_problem(arguments({.T = 9, .D = 8, .E = 8}, {}, type), "test");
    return std::string(choose_of(rows, names, p, form, kernel).name);
  };
  EXPECT_EQ(chosen(at::kBFloat16, Form::attend), "fused_amx");
  EXPECT_EQ(chosen(at::kBFloat16, Form::train), "fused_amx");
  EXPECT_EQ(chosen(at::kBFloat16, Form::two_phase), "blocked");
  EXPECT_EQ(chosen(at::kFloat, Form::attend), "blocked");
  EXPECT_EQ(chosen(at::kFloat, Form::train), "blocked");
  EXPECT_EQ(chosen(at::kHalf, Form::attend), "blocked");
  EXPECT_EQ(chosen(at::kFloat, Form::train, "fused_amx"), "fused_amx");
}

// A device's first kernel may have no backward pass: then a training call takes the next row, and no null function.
TEST(Attention, AKernelWithoutAFormIsPassedOverForIt) {
  Kernel forward_only = kBlocked;
  forward_only.name = "forward_only", forward_only.backward = nullptr, forward_only.lse = nullptr;
  const Kernel* const rows[] = {&forward_only, &kBlocked};
  const KernelTable names{"attention", {"forward_only", "blocked"}};
  const Problem p = checked_problem(arguments({.T = 9, .D = 8, .E = 8}, {}), "test");
  EXPECT_STREQ(choose_of(rows, names, p, Form::attend, {}).name, "forward_only");
  EXPECT_STREQ(choose_of(rows, names, p, Form::train, {}).name, "blocked");
  EXPECT_STREQ(choose_of(rows, names, p, Form::two_phase, {}).name, "blocked");
  EXPECT_THROW(choose_of(rows, names, p, Form::train, "forward_only"), c10::ValueError);
}

TEST(Attention, TheTableNamesItsRowsInOrderAndTheLastTakesEverything) {
  EXPECT_EQ(kernel_names(), (std::vector<std::string>{"flash", "cuda", "fused_amx", "fused", "sdpa", "blocked"}));
  ASSERT_EQ(kernel_table().size(), 6u);
  for (const Case& c : cases())
    EXPECT_EQ(kernel_table().back()->why_not(checked_problem(made(c), "test")), "") << c.name;
}

}  // namespace
}  // namespace motet
