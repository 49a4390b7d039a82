// The edges of the operator, on every kernel of the table that takes the problem: queries that see nothing, padding,
// NaN, logits beyond what exp can take, strides, autocast. Exact values.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "motet/attention/testing.h"

namespace motet {
namespace {

using namespace testing;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Gradients gradients(const Kernel& kernel, const Arguments& a, const Problem& p, const Attended& done,
                    const Tensor& dout) {
  return kernel.backward(p, {dout, done.out_BTHE, done.lse_BHT, all_wanted(a)});
}

TEST(Edges, QueryThatSeesNoKeyReturnsZeroAndPassesNoGradient) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    Arguments a = arguments({.B = 1, .T = 5, .S = 3}, {kDcmha, kDcmha}, type);
    a.causal = true;
    const Problem p = checked_problem(a, "test");
    for (const Kernel* kernel : able_kernels(p, true)) {
      const Attended done = kernel->forward(p);
      EXPECT_TRUE(done.out_BTHE.slice(1, 0, 2).eq(0).all().item<bool>()) << kernel->name;
      EXPECT_TRUE(done.out_BTHE.slice(1, 2).ne(0).all().item<bool>()) << kernel->name;
      EXPECT_TRUE(done.lse_BHT.isneginf().sum().item<int64_t>() == 2 * 4) << kernel->name;
      EXPECT_TRUE(done.lse_BHT.slice(2, 0, 2).isneginf().all().item<bool>()) << kernel->name;
      const Gradients g = gradients(*kernel, a, p, done, at::ones_like(done.out_BTHE));
      EXPECT_TRUE(g[kQ].slice(1, 0, 2).eq(0).all().item<bool>()) << kernel->name;
      for (int i = 0; i < kNumInputs; ++i)
        if (g[i].defined()) {
          EXPECT_TRUE(g[i].isfinite().all().item<bool>()) << kernel->name << " " << input_name(i);
        }
    }
  }
}

TEST(Edges, BlocksOfQueriesThatSeeNothingHaveNoLse) {  // so many heads that a block has 16 queries
  for (const auto type : {at::kFloat, at::kDouble}) {
    const int64_t heads = 4096, T = 50, S = 18;
    Arguments a = arguments({.B = 1, .T = T, .S = S, .Hs = heads, .Gk = 1, .Gv = 1, .D = 1, .E = 1}, {}, type);
    a.causal = true;
    const Problem p = checked_problem([&] { return a.input[kV] = at::ones_like(a.input[kV]), a; }(), "test");
    for (const Kernel* kernel : able_kernels(p, true)) {
      const Attended done = kernel->forward(p);
      EXPECT_TRUE(done.lse_BHT.slice(2, 0, T - S).isneginf().all().item<bool>()) << kernel->name;
      EXPECT_TRUE(done.lse_BHT.slice(2, T - S).isfinite().all().item<bool>()) << kernel->name;
      EXPECT_TRUE(done.out_BTHE.slice(1, 0, T - S).eq(0).all().item<bool>()) << kernel->name;
      EXPECT_LE((done.out_BTHE.slice(1, T - S) - 1).abs().max().item<double>(), 1e-6) << kernel->name;
      if (kernel->lse) {
        EXPECT_TRUE(kernel->lse(p).equal(done.lse_BHT)) << kernel->name;
      }
    }
  }
}

// Padding may hold anything: outputs are those of clean padding, bit for bit, and gradients there are 0.
TEST(Edges, PaddingNeverLeaksWhateverItHolds) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf}) {
    at::manual_seed(4);
    Arguments a = arguments({.B = 2, .T = 4, .S = 9}, {kDcmha, kDcmha}, type);
    a.table = {Tensor(), integers({0, 3}), integers({7, 9}), Tensor()};
    const Problem clean = checked_problem(a, "test");
    Arguments spoilt = a;
    const std::vector<int> of_keys{
        kK, kV, kPre + kKeyDown, kPre + kKeyUp, kPre + kKeyGate, kPost + kKeyDown, kPost + kKeyUp, kPost + kKeyGate};
    for (const int i : of_keys) {
      spoilt.input[i] = a.input[i].clone();
      spoilt.input[i].select(0, 0).slice(0, 7, 9).fill_(NAN);
      spoilt.input[i].select(0, 1).slice(0, 0, 3).fill_(kInfinity);
    }
    const Problem p = checked_problem(spoilt, "test");
    EXPECT_TRUE(definition(p).out_BTHE.equal(definition(clean).out_BTHE));
    for (const Kernel* kernel : able_kernels(p, true)) {
      const Attended want = kernel->forward(clean), done = kernel->forward(p);
      EXPECT_TRUE(done.out_BTHE.equal(want.out_BTHE)) << kernel->name;
      EXPECT_TRUE(done.lse_BHT.equal(want.lse_BHT)) << kernel->name;
      EXPECT_TRUE(kernel->lse(p).equal(kernel->lse(clean))) << kernel->name;
      EXPECT_TRUE(kernel->given_lse(p, done.lse_BHT).equal(kernel->given_lse(clean, done.lse_BHT))) << kernel->name;
      const Tensor dout = random(done.out_BTHE.sizes().vec(), 1, type);
      const Gradients g = gradients(*kernel, a, p, done, dout), clean_g = gradients(*kernel, a, clean, want, dout);
      for (int i = 0; i < kNumInputs; ++i)
        if (g[i].defined()) {
          EXPECT_TRUE(g[i].equal(clean_g[i])) << kernel->name << " " << input_name(i);
        }
      for (const int i : of_keys) {
        EXPECT_TRUE(g[i].select(0, 0).slice(0, 7, 9).eq(0).all().item<bool>()) << kernel->name << " " << input_name(i);
        EXPECT_TRUE(g[i].select(0, 1).slice(0, 0, 3).eq(0).all().item<bool>()) << kernel->name << " " << input_name(i);
      }
    }
  }
}

// Places of out [B,T,H,E] that are NaN, as index lists; -1 stands for all.
Tensor places(const Tensor& like, std::array<int64_t, 4> at) {
  Tensor t = at::zeros(like.sizes(), at::kBool), part = t;
  for (int64_t d = 0; d < 4; ++d)
    if (at[d] >= 0) part = part.narrow(d, at[d], 1);
  part.fill_(true);
  return t;
}

TEST(Edges, NanReachesExactlyWhatSeesIt) {
  struct Spoilt {
    int input;
    std::array<int64_t, 4> place, reached, reached_when_mixed;
  };
  const std::vector<Spoilt> all{{kQ, {1, 2, 3, 0}, {1, 2, 3, -1}, {1, 2, -1, -1}},  // a query: its row
                                {kK, {0, 4, 1, 2}, {0, -1, 1, -1}, {0, -1, -1, -1}},
                                {kV, {0, 4, 2, 5}, {0, -1, 2, 5}, {0, -1, 2, 5}}};  // a value: its column
  for (const auto& [queries, type] :
       std::vector<std::pair<int64_t, at::ScalarType>>{{5, at::kFloat},
                                                       {5, at::kDouble},
                                                       {5, at::kBFloat16},
                                                       {20, at::kFloat}})  // beyond 16 none is a decoding one
    for (const bool mixes : {false, true})
      for (const Spoilt& spoilt : all) {
        at::manual_seed(6);
        const Mixing mixing = mixes ? Mixing{kDcmha, kDcmha} : Mixing{};
        Arguments a = arguments({.B = 2, .T = queries, .S = 6, .D = 8, .E = 8}, mixing, type);
        const auto at = spoilt.place;
        a.input[spoilt.input] = a.input[spoilt.input].clone();
        a.input[spoilt.input][at[0]][at[1]][at[2]][at[3]].fill_(NAN);
        const Problem p = checked_problem(a, "test");
        for (const Kernel* kernel : able_kernels(p, true)) {
          const Attended done = kernel->forward(p);
          const Tensor want = places(done.out_BTHE, mixes ? spoilt.reached_when_mixed : spoilt.reached);
          EXPECT_TRUE(done.out_BTHE.isnan().equal(want))
              << kernel->name << " " << input_name(spoilt.input) << " mixes " << mixes << " " << type;
          const Tensor logits = want.select(3, 0).transpose(1, 2);
          EXPECT_TRUE(done.lse_BHT.isnan().equal(spoilt.input == kV ? at::zeros_like(logits) : logits))
              << kernel->name << " lse " << input_name(spoilt.input) << " mixes " << mixes << " " << type;
        }
      }
}

TEST(Edges, NanInTheFirstKeyReachesEveryQueryBehindIt) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    Arguments a = arguments({.B = 2, .T = 6, .S = 6, .D = 8, .E = 8}, {}, type);
    a.causal = true;
    a.input[kK][1][0][2][0].fill_(NAN);
    const Problem p = checked_problem(a, "test");
    for (const Kernel* kernel : able_kernels(p, true)) {
      const Attended done = kernel->forward(p);
      EXPECT_TRUE(done.out_BTHE.isnan().equal(places(done.out_BTHE, {1, -1, 2, -1}))) << kernel->name << " " << type;
    }
  }
}

// Key s is the unit vector e_s, query t is 16384 e_[t * 5 mod S]: each query sees that key alone. The mixes are a
// permutation of heads before the softmax and twice another behind it.
TEST(Edges, HugeLogitsGiveTheValueOfTheOneKey) {
  const int64_t S = 8, H = 4;
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    for (const bool mixes : {false, true})
      for (const double sign : {1.0, -1.0}) {
        at::manual_seed(8);
        Arguments a = arguments({.B = 1, .T = S, .S = S, .D = S, .E = S}, {}, type);
        const Tensor chosen = at::arange(S).mul(5).remainder(S), eye = at::eye(S, type);
        a.input[kK] = eye.view({1, S, 1, S}).expand({1, S, H, S}).contiguous();
        a.input[kQ] =
            eye.index_select(0, chosen).mul(sign * 16384).view({1, S, 1, S}).expand({1, S, H, S}).contiguous();
        a.scale = 1.0;
        Tensor want = a.input[kV].index_select(1, chosen);                                 // [1,T,H,E]
        if (sign < 0) want = (a.input[kV].to(at::kDouble).sum(1, true) - want) / (S - 1);  // all others alike
        if (mixes) {
          const Tensor turn = at::eye(H, type).roll(1, 1);  // head n goes to head n + 1
          a.input[kPre + kWeight] = turn, a.input[kPost + kWeight] = 2 * turn;
          // Output head m reads the weights of softmax head m - 1, all alike, and the values of head m.
          want = 2 * want;
        }
        const Problem p = checked_problem(a, "test");
        for (const Kernel* kernel : able_kernels(p, true)) {
          const Attended done = kernel->forward(p);
          const std::string where = c10::str(kernel->name, " ", type, " mixes ", mixes, " sign ", sign);
          const double lse = sign > 0 ? 16384 : std::log(S - 1.0);
          // PyTorch's exponential beside operands of 16 bits is off by 5e-5 where there is no AVX-512.
          const double off = at::elementSize(type) == 2 ? 1e-4 : 1e-5;
          EXPECT_LE((done.lse_BHT - lse).abs().max().item<double>(), sign > 0 ? 0 : off) << where;
          if (sign > 0) {
            EXPECT_TRUE(done.out_BTHE.equal(want)) << where;
          } else {
            EXPECT_LE(relative_error(done.out_BTHE, want), at::elementSize(type) == 2 ? 1e-2 : 1e-6) << where;
            continue;
          }
          const Tensor dout = random(done.out_BTHE.sizes().vec(), 1, type);
          const Gradients g = gradients(*kernel, a, p, done, dout);
          // P is 0 or 1, so nothing but rounding flows through the softmax; keys meet it times 16384.
          const double rounding = type == at::kDouble ? 1e-12 : 1e-5;
          EXPECT_LE(g[kQ].abs().max().item<double>(), rounding) << where;
          EXPECT_LE(g[kK].abs().max().item<double>(), rounding * 16384) << where;
          const Tensor dv = at::zeros_like(a.input[kV]).index_copy(1, chosen, mixes ? 2 * dout : dout);
          EXPECT_TRUE(g[kV].equal(dv)) << where;
        }
      }
}

TEST(Edges, StridedInputGivesTheSameNumbers) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    at::manual_seed(9);
    Arguments a = arguments({.T = 9, .D = 8, .E = 8}, {}, type);
    a.causal = true;
    Arguments strided = a;
    for (int i : {kQ, kK, kV}) strided.input[i] = at::stack({a.input[i], a.input[i]}, -1).select(-1, 0);
    const Problem p = checked_problem(strided, "test"), same = checked_problem(a, "test");
    for (const Kernel* kernel : able_kernels(p, true)) {
      const Attended got = kernel->forward(p), want = kernel->forward(same);
      EXPECT_TRUE(got.out_BTHE.allclose(want.out_BTHE, 1e-6, 1e-7)) << kernel->name;
      const Tensor dout = random(got.out_BTHE.sizes().vec(), 1, type);
      const Tensor turned = dout.transpose(1, 2).contiguous().transpose(1, 2);
      const Gradients g = gradients(*kernel, strided, p, got, turned), h = gradients(*kernel, a, same, want, dout);
      for (int i : {kQ, kK, kV}) EXPECT_TRUE(g[i].allclose(h[i], 1e-5, 1e-6)) << kernel->name << " " << input_name(i);
    }
  }
}

TEST(Edges, AutocastComputesInTheLowerDtype) {
  at::manual_seed(10);
  const Tensor q = at::randn({1, 4, 2, 8}), k = at::randn({1, 4, 2, 8}), v = at::randn({1, 4, 2, 8});
  Attention attention;
  attention.post = {true, at::randn({2, 2})};
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    const Keys narrow{k.to(type), v.to(type), {}, {}};
    const Attended want = composed_attention({q.to(type), {}, {}, {}}, narrow, attention);
    const auto before = at::autocast::get_autocast_dtype(at::kCPU);
    at::autocast::set_autocast_dtype(at::kCPU, type);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const Attended got = composed_attention({q, {}, {}, {}}, {k, v, {}, {}}, attention);
    const Tensor lse = attention_lse({q, {}, {}, {}}, {k, v, {}, {}}, attention);
    const Tensor out = attention_given_lse({q, {}, {}, {}}, {k, v, {}, {}}, attention, lse);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, before);
    at::autocast::clear_cache();
    EXPECT_EQ(got.out_BTHE.scalar_type(), type);
    EXPECT_TRUE(got.out_BTHE.equal(want.out_BTHE));
    EXPECT_TRUE(got.lse_BHT.equal(want.lse_BHT));
    EXPECT_TRUE(lse.equal(attention_lse({q.to(type), {}, {}, {}}, narrow, attention)));
    EXPECT_EQ(out.scalar_type(), type);
    const Attended exact = composed_attention({q, {}, {}, {}}, {k, v, {}, {}}, attention);
    EXPECT_GT(relative_error(got.out_BTHE, exact.out_BTHE), 1e-4);
  }
}

}  // namespace
}  // namespace motet
