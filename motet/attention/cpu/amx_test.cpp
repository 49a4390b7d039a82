// The fused kernels whose products are made by tiles, emulated, and where the CPU has them by its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "motet/attention/cpu/fused_testing.h"

namespace motet::cpu {
namespace {

using namespace motet::cpu::testing;

// Of the 2-norm.
double distance(const std::vector<float>& x, const std::vector<double>& exact) {
  double square = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) square += (x[i] - exact[i]) * (x[i] - exact[i]), size += exact[i] * exact[i];
  return std::sqrt(square / size);
}

// Each thread has tiles of its own.
TEST_F(Fused, BitsOfTilesDoNotDependOnTheNumberOfThreads) {
  std::vector<Named> some;
  for (const Named& c : cases())
    if (c.name == std::string("wide") || c.name == std::string("ragged") || c.name == std::string("bfloat"))
      some.push_back(c);
  ASSERT_EQ(some.size(), 3u);
  expect_same_bits(some, Instructions::emulated_amx, {3});
}

// What the CPU's tiles and their loops make of the same call, to the bit.
TEST_F(Fused, TilesOfTheCpuGiveTheBitsOfTheirEmulation) {
  if (const std::string reason = why_not(Instructions::amx); !reason.empty()) GTEST_SKIP() << reason;
  for (const Named& c : cases()) {
    SCOPED_TRACE(c.name);
    Sample s(c.options);
    const std::vector<float> dout = cotangent(s);
    const Results own = run_all(s, dout, runtime(1, Instructions::amx));
    const Results loops = run_all(s, dout, runtime(1, Instructions::emulated_amx));
    EXPECT_TRUE(same_bits(own.out, loops.out) && same_bits(own.lse, loops.lse));
    EXPECT_TRUE(same_bits(own.q, loops.q) && same_bits(own.k, loops.k) && same_bits(own.v, loops.v));
  }
}

// Large logits carry the rounding of the scores to the outputs. Squares of the errors, all together.
TEST_F(Fused, Float32InThreePartsIsAsGoodAsFloat32) {
  const auto error_with = [](const Sample& s, const std::vector<double>& want, Instructions instructions) {
    std::vector<float> lse;
    const std::vector<float> out = attended(s, lse, runtime(1, instructions));
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += (out[i] - want[i]) * (out[i] - want[i]);
    return sum;
  };
  for (const double logits : {1.0, 20.0, 200.0}) {
    double floats = 0, parts = 0;
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      Options options;
      options.T = options.S = 96, options.D = options.E = 64, options.logits = logits, options.seed = seed;
      const Sample s(options);
      const std::vector<double> want = naive_forward(s.p).out;
      floats += error_with(s, want, Instructions::best), parts += error_with(s, want, Instructions::emulated_amx);
    }
    RecordProperty("parts_over_floats_" + std::to_string(static_cast<int>(logits)), std::to_string(parts / floats));
    EXPECT_LE(parts, floats) << logits;
  }
}

// Sums over many keys: those of a tile are added in one step, beside which the smallest products would be rounded away.
TEST_F(Fused, SumsInThreePartsOverManyKeysStayApart) {
  double floats = 0, parts = 0;
  for (uint32_t seed = 1; seed <= 2; ++seed) {
    Options options;
    options.T = 32, options.S = 8192, options.D = options.E = 32, options.seed = seed, options.logits = 0.3;
    Sample s(options);
    float* const v = const_cast<float*>(static_cast<const float*>(s.p.v.data));
    for (int64_t i = 0; i < s.p.B * s.p.v.batch_stride; ++i) v[i] += 1;
    const std::vector<double> want = naive_forward(s.p).out;
    const auto add = [&](double& sum, Instructions instructions) {
      std::vector<float> lse;
      const std::vector<float> out = attended(s, lse, runtime(1, instructions));
      for (size_t i = 0; i < out.size(); ++i) sum += (out[i] - want[i]) * (out[i] - want[i]);
    };
    add(floats, Instructions::best), add(parts, Instructions::emulated_amx);
  }
  RecordProperty("parts_over_floats", std::to_string(parts / floats));
  EXPECT_LE(parts, 1.5 * floats);  // 3.4 where they are added one by one
}

// Over two blocks of queries and more, the last one ragged, and of each gradient.
TEST_F(Fused, GradientsInThreePartsAreAsGoodAsFloat32) {
  const auto squares = [](const std::vector<float>& x, const std::vector<double>& want) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - want[i]) * (x[i] - want[i]);
    return sum;
  };
  for (const bool mixed : {false, true}) {
    std::array<double, 3> floats{}, parts{};  // of q, k and v
    for (uint32_t seed = 1; seed <= 3; ++seed) {
      Options options;
      options.T = options.S = 277, options.D = options.E = 64, options.causal = true, options.seed = seed;
      if (mixed) options.pre = options.post = kDcmha, options.pre_identity = options.post_identity = true;
      Sample s(options);
      const std::vector<float> dout = cotangent(s);
      const NaiveGradients want = naive_backward(s.p, widened(dout));
      const auto add = [&](std::array<double, 3>& sums, Instructions instructions) {
        const Results r = run_all(s, dout, runtime(2, instructions));
        sums[0] += squares(r.q, want.q), sums[1] += squares(r.k, want.k), sums[2] += squares(r.v, want.v);
      };
      add(floats, Instructions::best), add(parts, Instructions::emulated_amx);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string which = std::string(mixed ? "mixed d" : "plain d") + "qkv"[i];
      RecordProperty("parts_over_floats_" + which, std::to_string(parts[i] / floats[i]));
      EXPECT_LE(parts[i], floats[i]) << which;
    }
  }
}

// Operands are exact, sums and mixes float32: what is left is the rounding of weights and of their gradients, 2^-8 of
// each at most and less than half of that on average. A missing scale or a rounding more would be seen.
TEST_F(Fused, GradientsOfBfloat16TilesRoundWeightsAlone) {
  for (const bool mixed : {false, true}) {
    SCOPED_TRACE(mixed ? "mixed" : "plain");
    Options options;
    options.T = options.S = 133, options.D = 48, options.E = 64, options.causal = true, options.type = Type::bfloat16;
    options.logits = 3;  // a scale that no power of 2 is
    if (mixed) options.pre = options.post = kDcmha, options.pre_identity = options.post_identity = true;
    Sample s(options);
    const std::vector<float> dout = cotangent(s);
    const NaiveGradients want = naive_backward(s.p, widened(dout));
    const Results r = run_all(s, dout, runtime(2, Instructions::emulated_amx));
    const auto expect_rounded = [](const char* which, const std::vector<float>& x, const std::vector<double>& exact) {
      const double off = distance(x, exact);
      RecordProperty(which, std::to_string(off));
      EXPECT_LT(off, 0x1.2p-9) << which;
      EXPECT_GT(off, 0x1p-12) << which << " is no product of bfloat16";
    };
    expect_rounded("dq", r.q, want.q), expect_rounded("dk", r.k, want.k), expect_rounded("dv", r.v, want.v);
  }
}

// Three products of two parts: what they leave out is 2^-16 of a term and less, and more than six leave out.
TEST_F(Fused, HighPrecisionIsThreeProducts) {
  Runtime run = runtime(2, Instructions::emulated_amx);
  run.precision = Precision::high;
  for (const bool mixed : {false, true}) {
    SCOPED_TRACE(mixed ? "mixed" : "plain");
    Options options;
    options.T = options.S = 133, options.D = 48, options.E = 64, options.causal = true;
    if (mixed) options.pre = options.post = kDcmha, options.pre_identity = options.post_identity = true;
    Sample s(options);
    const std::vector<float> dout = cotangent(s);
    const NaiveGradients want = naive_backward(s.p, widened(dout));
    const Results r = run_all(s, dout, run);
    const auto expect_between = [](const char* which, const std::vector<float>& x, const std::vector<double>& exact) {
      const double off = distance(x, exact);
      RecordProperty(which, std::to_string(1e6 * off));
      EXPECT_LT(off, 0x1p-16) << which;
      EXPECT_GT(off, 0x1p-20) << which;
    };
    expect_between("out", r.out, naive_forward(s.p).out);
    expect_between("dq", r.q, want.q), expect_between("dk", r.k, want.k), expect_between("dv", r.v, want.v);
  }
}

// Of any size, mix and type.
TEST_F(Fused, HighPrecisionIsWithinItsBound) {
  Runtime run = runtime(2, Instructions::emulated_amx);
  run.precision = Precision::high;
  for (const Named& c : cases()) {
    SCOPED_TRACE(c.name);
    Sample s(c.options);
    const std::vector<float> dout = cotangent(s);
    expect_close(run_all(s, dout, run), s, dout, 0x1p-14);
  }
}

// Bfloat16 numbers are one part as they lie, and vectors have none.
TEST_F(Fused, PrecisionIsThatOfTilesOfPartsAlone) {
  for (const auto& [type, instructions, same] : {std::tuple{Type::float32, Instructions::emulated_amx, false},
                                                 {Type::bfloat16, Instructions::emulated_amx, true},
                                                 {Type::float32, Instructions::best, true}}) {
    Options options;
    options.T = options.S = 40, options.D = options.E = 32, options.causal = true, options.type = type;
    options.pre = options.post = kDcmha, options.pre_identity = options.post_identity = true;
    Sample s(options);
    const std::vector<float> dout = cotangent(s);
    Runtime run = runtime(1, instructions);
    const Results highest = run_all(s, dout, run);
    run.precision = Precision::high;
    const Results high = run_all(s, dout, run);
    EXPECT_EQ(same_bits(high.out, highest.out), same) << name(instructions);
    EXPECT_EQ(same_bits(high.q, highest.q) && same_bits(high.k, highest.k), same) << name(instructions);
    EXPECT_EQ(same_bits(high.v, highest.v), same) << name(instructions);
  }
}

// The largest float would round to infinity; it is cut instead, and the other parts make it whole, or nearly.
TEST_F(Fused, TheLargestFloatsStayFiniteInParts) {
  Options options;
  options.T = options.S = 24, options.D = options.E = 16, options.causal = true;
  Sample s(options);
  const int64_t row = s.p.output_heads * s.p.E;
  float* const v = const_cast<float*>(static_cast<const float*>(s.p.v.data));
  v[0] = INFINITY;
  std::vector<float> lse, same_lse;
  for (const Precision precision : {Precision::highest, Precision::high}) {
    v[1] = precision == Precision::highest ? -3.4028235e38f : -3.4e38f;
    const std::vector<float> want = attended(s, same_lse, runtime(1, Instructions::best));
    Runtime tiles = runtime(1, Instructions::emulated_amx);
    tiles.precision = precision;
    const std::vector<float> out = attended(s, lse, tiles);
    for (int64_t t = 0; t < s.p.T; ++t) {
      EXPECT_FALSE(std::isfinite(out[t * row])) << t;
      EXPECT_NEAR(out[t * row + 1] / want[t * row + 1], 1, precision == Precision::highest ? 1e-6 : 1e-4) << t;
    }
  }
}

// Of a weight near the least float the last part has no exponent left, and its lower half is not 0: it must not reach
// the weight that it is paired with, here the key 16 before.
TEST_F(Fused, WeightsTooSmallForTheirPartsStayTheirOwn) {
  Options options;
  options.T = options.S = 32, options.D = options.E = 16;
  Sample s(options);
  float *const q = const_cast<float*>(static_cast<const float*>(s.p.q.data)), *const k = const_cast<float*>(
                                                                                  static_cast<const float*>(
                                                                                      s.p.k.data));
  std::fill_n(q, s.p.B * s.p.q.batch_stride, 1.f);
  for (int64_t i = 0; i < s.p.B * s.p.k.batch_stride; ++i) {
    const int64_t key = i / s.p.k.row_stride % s.p.S;
    const double logit = key < 16 ? 0.1 * static_cast<double>(key) : -82 - 0.25 * static_cast<double>(key - 16);
    k[i] = static_cast<float>(logit / (s.p.scale * static_cast<double>(s.p.D)));
  }
  std::vector<float> lse, same_lse;
  const std::vector<float> want = attended(s, same_lse, runtime(1, Instructions::best));
  const std::vector<float> out = attended(s, lse, runtime(1, Instructions::emulated_amx));
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], want[i], 1e-6) << i;
}

TEST_F(Fused, TilesAreTakenOnlyWhenAskedFor) {
  const std::vector<Instructions> own = available_instructions();
  const auto strongest = std::find_if(own.rbegin(), own.rend(), [](Instructions i) { return i != Instructions::amx; });
  for (const int i : {0, 3}) {  // plain and mixed
    Sample s(cases()[static_cast<size_t>(i)].options);
    const std::vector<float> dout = cotangent(s);
    const Results best = run_all(s, dout, runtime(1, Instructions::best));
    const Results tiles = run_all(s, dout, runtime(1, Instructions::emulated_amx));
    const Results same = run_all(s, dout, runtime(1, *strongest));
    EXPECT_FALSE(same_bits(best.out, tiles.out) || same_bits(best.q, tiles.q));
    EXPECT_TRUE(same_bits(best.out, same.out) && same_bits(best.q, same.q));
  }
}

}  // namespace
}  // namespace motet::cpu
