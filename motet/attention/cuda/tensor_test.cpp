// The tensor-core kernels, emulated on the host: what they compute, what they leave to the general kernels, and that
// they do what they say they do when float16 cannot hold a number.
#include "motet/attention/cuda/testing.h"

namespace motet::cuda {
namespace {

using namespace motet::cuda::testing;
using cpu::element, cpu::naive_backward, cpu::naive_forward, cpu::NaiveGradients, cpu::NaiveResult;

using Tensor = Cuda;

Options dcmha(int64_t heads = 16) {
  Options o;
  o.B = 2, o.T = o.S = 72, o.D = o.E = 64, o.causal = true, o.type = Type::bfloat16;
  o.score_heads = o.softmax_heads = o.output_heads = o.key_heads = o.value_heads = heads;
  o.pre = o.post = kDcmha, o.pre_identity = o.post_identity = true;
  return o;
}

std::vector<float> floats(const Sample& s, const plain::Operand& x, int64_t rows, int64_t heads, int64_t width) {
  std::vector<float> wide;
  for (int64_t b = 0; b < s.p.B; ++b)
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t e = 0; e < width; ++e) wide.push_back(static_cast<float>(element(x, b, t, h, e)));
  return wide;
}

/// || a - b || / || b ||
double distance(const std::vector<float>& a, const std::vector<double>& b) {
  double off = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i) off += (a[i] - b[i]) * (a[i] - b[i]), size += b[i] * b[i];
  return std::sqrt(off / size);
}

// Less than half of what eager PyTorch is off by in bfloat16: motet/attention/rounding_test.cpp.
constexpr double kFar = 4e-3;

void expect_forward(const Sample& s) {
  EXPECT_STREQ(tensor_why_not(s.p, Pass::forward), "");
  const Results r = forward_of(s, attention());
  const NaiveResult expected = naive_forward(s.p);
  EXPECT_LT(distance(r.out, expected.out), kFar);
  EXPECT_LT(error(widened(r.lse), expected.lse), 2e-3);
  EXPECT_EQ(emulated::take_fault(), "");
}

void expect_all(Sample& s) {
  EXPECT_STREQ(tensor_why_not(s.p, Pass::forward), "");
  EXPECT_STREQ(tensor_why_not(s.p, Pass::backward), "");
  const plain::Operand dout = s.operand(s.p.T, s.p.output_heads, s.p.E);
  const Results r = run_all(s, dout, attention());
  const NaiveResult expected = naive_forward(s.p);
  EXPECT_LT(distance(r.out, expected.out), kFar);
  EXPECT_LT(error(widened(r.lse), expected.lse), 2e-3);
  const NaiveGradients g = naive_backward(s.p, widened(floats(s, dout, s.p.T, s.p.output_heads, s.p.E)));
  EXPECT_LT(distance(r.q, g.q), kFar);
  EXPECT_LT(distance(r.k, g.k), kFar);
  EXPECT_LT(distance(r.v, g.v), kFar);
  for (int part = 0; part < kNumMixParts; ++part) {
    SCOPED_TRACE(part);
    if (s.p.pre.has(part)) {
      EXPECT_LT(distance(r.pre[part], g.pre[part]), kFar);
    }
    if (s.p.post.has(part)) {
      EXPECT_LT(distance(r.post[part], g.post[part]), kFar);
    }
  }
}

TEST_F(Tensor, DcmhaForwardAndAllGradients) {
  for (const int64_t heads : {16, 12, 8, 6, 1}) {
    SCOPED_TRACE(heads);
    Sample s(dcmha(heads));
    expect_all(s);
  }
}

// As a cache keeps them.
TEST_F(Tensor, RowsOfMixesWithGaps) {
  Options o = dcmha();
  o.T = o.S = 42;
  Sample s(o);
  const auto moved = with_gaps(s);
  expect_all(s);
}

TEST_F(Tensor, MixesOfEveryKind) {
  const auto check = [](const char* name, auto change) {
    SCOPED_TRACE(name);
    Options o = dcmha();
    o.T = 42, o.S = 42, o.B = 1;
    change(o);
    Sample s(o);
    expect_all(s);
  };
  check("queries alone", [](Options& o) { o.pre = o.post = {kQueryDown, kQueryUp, kQueryGate}; });
  check("keys alone", [](Options& o) { o.pre = o.post = {kKeyDown, kKeyUp, kKeyGate}; });
  check("gates", [](Options& o) { o.pre = {kQueryGate, kKeyGate}, o.post = {kKeyGate}; });
  check("talking heads", [](Options& o) { o.pre = o.post = {kWeight}, o.pre_identity = false; });
  check("talking heads of several blocks", [](Options& o) {
    o.score_heads = o.softmax_heads = o.output_heads = o.key_heads = o.value_heads = 4;
    o.pre = o.post = {kWeight}, o.B = 2, o.T = o.S = 70;
  });
  check("rectangular", [](Options& o) {
    o.pre = o.post = {kWeight}, o.pre_identity = o.post_identity = false;
    o.score_heads = o.key_heads = 5, o.softmax_heads = 9, o.output_heads = o.value_heads = 14;
  });
  check("after the softmax alone", [](Options& o) { o.pre.clear(); });
  check("rank 1", [](Options& o) { o.query_rank = o.key_rank = 1; });
  check("with a weight", [](Options& o) { o.pre.push_back(kWeight), o.post.insert(o.post.begin(), kWeight); });
  check("float16", [](Options& o) { o.type = Type::float16; });
}

TEST_F(Tensor, WhatQueriesSee) {
  const auto check = [](const char* name, auto change) {
    SCOPED_TRACE(name);
    Options o = dcmha(4);
    o.D = 40, o.E = 24, o.T = o.S = 90;
    change(o);
    Sample s(o);
    expect_all(s);
  };
  check("everything", [](Options& o) { o.causal = false, o.T = 33, o.S = 70; });
  check("windows", [](Options& o) { o.window = 21; });
  check("windows that end where a tile does", [](Options& o) { o.window = 31; });
  check("windows with tiles that hide nothing", [](Options& o) { o.window = 97, o.B = 1, o.T = o.S = 130; });
  check("documents", [](Options& o) { o.documents = 1; });
  check("scattered documents", [](Options& o) { o.documents = 2; });
  check("more keys than queries", [](Options& o) { o.T = 35, o.S = 83; });
  check("starts", [](Options& o) { o.start = 1, o.B = 3, o.S = 60; });
  check("lengths", [](Options& o) { o.lengths = 1, o.B = 3; });
  check("lengths and starts", [](Options& o) { o.lengths = o.start = 1, o.B = 3, o.S = 60; });
}

// What lies beyond a sequence's keys may hold anything.
TEST_F(Tensor, KeysThatMayNotBeReadDoNotLeak) {
  Options o = dcmha(6);
  o.lengths = 1, o.causal = false, o.D = 40, o.E = 24, o.T = 50;
  Sample s(o);
  const plain::Operand dout = s.operand(o.T, o.output_heads, o.E);
  const Results clean = run_all(s, dout, attention());
  spoil_unread_keys(s);
  EXPECT_TRUE(same_bits(clean, run_all(s, dout, attention())));
  expect_all(s);
}

TEST_F(Tensor, ForwardAlone) {
  const auto check = [](const char* name, auto change) {
    SCOPED_TRACE(name);
    Options o = dcmha();
    o.T = 40, o.S = 45, o.B = 1;
    change(o);
    expect_forward(Sample(o));
  };
  const auto plain = [](Options& o, int64_t heads, int64_t stored) {
    o.pre.clear(), o.post.clear();
    o.score_heads = o.softmax_heads = o.output_heads = heads, o.key_heads = o.value_heads = stored;
  };
  check("no mix, 32 heads on 4", [&](Options& o) { plain(o, 32, 4); });
  check("no mix, 20 heads", [&](Options& o) { plain(o, 20, 20), o.E = 128; });
  check("values of 192", [](Options& o) { o.E = 192; });
  check("shared heads", [](Options& o) { o.key_heads = 4, o.value_heads = 2; });
  check("pairs", [&](Options& o) {
    plain(o, 16, 16);
    o.pairs = true, o.output_heads = o.value_heads = 8, o.E = 128, o.lambda_dim = 3;
  });
  check("40 heads in pairs", [&](Options& o) {
    plain(o, 40, 40);
    o.pairs = true, o.output_heads = o.value_heads = 20;
  });
  {
    SCOPED_TRACE("values of the next pairs far away");
    Options o = dcmha();
    o.T = 40, o.S = 45, o.B = 1;
    plain(o, 32, 32);
    o.pairs = true, o.output_heads = 16, o.value_heads = 108;
    Sample s(o);
    for (int64_t h = 0; h < 16; ++h) s.p.value_of[static_cast<size_t>(h)] = h < 8 ? h : 92 + h;
    expect_forward(s);
  }
  check("query full rank",
        [](Options& o) { o.pre = {kQueryFull}, o.post = {kQueryFull, kQueryDown, kQueryUp}, o.query_rank = 5; });
}

TEST_F(Tensor, BitsDoNotDependOnTheOrderOfWarps) {
  Sample s(dcmha());
  const plain::Operand dout = s.operand(s.p.T, s.p.output_heads, s.p.E);
  const Results one = run_all(s, dout, attention());
  emulated::reverse_order(true);
  EXPECT_TRUE(same_bits(one, run_all(s, dout, attention())));
}

// The first tile's keys say little of a row's largest logit.
TEST_F(Tensor, LargerLogitsMayComeLater) {
  Options o = dcmha();
  o.T = o.S = 64, o.B = 1;
  Sample s(o);
  auto* const k = static_cast<uint16_t*>(const_cast<void*>(s.p.k.data));
  for (int64_t row = 16; row < o.S; ++row)
    for (int64_t i = 0; i < s.p.k.row_stride; ++i) {
      uint16_t& x = k[row * s.p.k.row_stride + i];
      x = cpu::narrow(cpu::widen_bits(x, o.type) * (row < 40 ? 1.f : 50.f), o.type);
    }
  const Results r = forward_of(s, attention());
  const NaiveResult expected = naive_forward(s.p);
  for (size_t i = 0; i < r.lse.size(); ++i)
    EXPECT_NEAR(r.lse[i], expected.lse[i], 2e-3 * std::abs(expected.lse[i]) + 0.05);
  EXPECT_EQ(emulated::take_fault(), "");
}

// Logits beyond 88, and scores that float16 cannot hold.
TEST_F(Tensor, NumbersThatAreTooLargeAreNotLost) {
  for (const double size : {60., 3e5}) {
    SCOPED_TRACE(size);
    Options o = dcmha();
    o.T = o.S = 40, o.pre.push_back(kWeight), o.gate = 0.1;
    Sample s(o);
    auto* const q = static_cast<uint16_t*>(const_cast<void*>(s.p.q.data)) + s.p.q.batch_stride;
    for (int64_t i = 0; i < s.p.q.batch_stride; ++i)
      q[i] = cpu::narrow(cpu::widen_bits(q[i], o.type) * static_cast<float>(size), o.type);
    const plain::Operand dout = s.operand(o.T, o.output_heads, o.E);
    const Results mine = run_all(s, dout, attention()), general = run_all(s, dout, general_attention());
    const auto near = [&](const std::vector<float>& a, const std::vector<float>& b) {
      const size_t half = a.size() / 2;  // the second sequence
      if (size > 1e3) {
        EXPECT_TRUE(std::equal(a.begin() + half, a.end(), b.begin() + half));
      }
      EXPECT_LT(distance({a.begin(), a.begin() + half}, widened({b.begin(), b.begin() + half})), kFar);
    };
    near(mine.out, general.out);
    near(mine.q, general.q);
    near(mine.k, general.k);
    near(mine.v, general.v);
    for (const int part : kDcmha) near(mine.pre[part], general.pre[part]), near(mine.post[part], general.post[part]);
    if (size > 1e3) {  // the first sequence's from tensor cores, the second's added
      EXPECT_LT(distance(mine.pre[kWeight], widened(general.pre[kWeight])), kFar);
    }
    const NaiveResult expected = naive_forward(s.p);
    EXPECT_LT(error(widened(mine.lse), expected.lse), 2e-3);
  }
}

// A head that is 89 nats below another one of its row: of its weights, beside the other's, float32 holds a few.
TEST_F(Tensor, AHeadFarBelowAnotherOneLosesNothing) {
  Options o = dcmha();
  o.B = 1, o.T = o.S = 42, o.pre = o.post = {kWeight}, o.pre_identity = false;
  Sample s(o);
  auto* const weight = static_cast<float*>(const_cast<void*>(s.p.pre.part[kWeight].data));
  for (int64_t n = 0; n < 16; ++n)
    for (int64_t m = 0; m < 16; ++m) weight[n * 16 + m] = n == m ? 1 : 0;
  const auto numbers = [](const plain::Operand& x) { return static_cast<uint16_t*>(const_cast<void*>(x.data)); };
  for (int64_t t = 0; t < o.T; ++t)
    for (int64_t h = 0; h < 16; ++h) {  // the first key has 89 in head 0 and 3 in the others, all other keys 0
      uint16_t* const q = numbers(s.p.q) + t * s.p.q.row_stride + h * s.p.q.head_stride;
      std::fill_n(q, o.D, cpu::narrow(0, o.type));
      q[0] = cpu::narrow(32, o.type);
      numbers(s.p.k)[t * s.p.k.row_stride + h * s.p.k.head_stride] =
          cpu::narrow(t > 0 ? 0 : (h == 0 ? 89 : 3) / 32.0 / s.p.scale, o.type);
    }
  expect_all(s);
}

// A score beyond float16 of a pair that is not seen; and the first row's only score, in all heads.
TEST_F(Tensor, ScoresBeyondFloat16OfHiddenPairsAndOfAWholeRow) {
  for (const bool first : {false, true}) {
    SCOPED_TRACE(first);
    Options o = dcmha();
    o.B = 1, o.T = o.S = 42, o.pre = {kWeight}, o.pre_identity = false;
    if (first) o.post = {kWeight};  // keys that mix would make NaN of it
    Sample s(o);
    auto* const weight = static_cast<float*>(const_cast<void*>(s.p.pre.part[kWeight].data));
    for (int64_t i = 0; i < 16 * 16; ++i) weight[i] = static_cast<float>(i % 17 == 0) + 0.01f;
    const int64_t row = first ? 0 : o.T - 1;
    const auto numbers = [&](const plain::Operand& x) {
      return static_cast<uint16_t*>(const_cast<void*>(x.data)) + row * x.row_stride;
    };
    for (int64_t i = 0; i < 16 * o.D; ++i) {
      numbers(s.p.k)[i] = cpu::narrow(first ? 1 : 1e6, o.type);
      numbers(s.p.q)[i] = cpu::narrow(first ? -1e9 : 0, o.type);  // the last key's own query sees it, and others do not
    }
    expect_all(s);
  }
}

// The next sequence's gradients may be as large as they like.
TEST_F(Tensor, DoutOfEachSequenceHasItsOwnScale) {
  Options o = dcmha(4);
  o.T = o.S = 42;
  Sample s(o);
  const plain::Operand dout = s.operand(o.T, o.output_heads, o.E);
  const Results small = run_all(s, dout, attention());
  auto* const d = static_cast<uint16_t*>(const_cast<void*>(dout.data)) + dout.batch_stride;
  for (int64_t i = 0; i < dout.batch_stride; ++i)
    d[i] = cpu::narrow(std::ldexp(cpu::widen_bits(d[i], o.type), 30), o.type);
  const Results large = run_all(s, dout, attention());
  const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
    const auto half = static_cast<std::ptrdiff_t>(a.size() / 2);
    EXPECT_TRUE(std::equal(a.begin(), a.begin() + half, b.begin()));
    for (size_t i = a.size() / 2; i < a.size(); ++i) EXPECT_EQ(std::ldexp(a[i], 30), b[i]);
  };
  near(small.q, large.q);
  near(small.k, large.k);
  near(small.v, large.v);
  for (const int part : kDcmha) near(small.pre[part], large.pre[part]), near(small.post[part], large.post[part]);
}

// Rows whose weights lie at one key, as at a text's first token, and whose dout is small beside another row's: the
// gradients of their scores are far below 1.
TEST_F(Tensor, SmallGradientsOfSmallWeightsAreNotLost) {
  struct Case {
    Type type;
    float small;
    double far;
  };
  for (const auto [type, small, far] : {Case{Type::bfloat16, 0x1p-20f, 5e-3}, Case{Type::float16, 0x1p-18f, 1e-2}}) {
    Options o = dcmha(4);
    o.B = 1, o.T = o.S = 42, o.type = type, o.gate = 0.1;
    Sample s(o);
    const plain::Operand dout = s.operand(o.T, o.output_heads, o.E);
    const auto at = [](const plain::Operand& x, int64_t row, int64_t head) {
      return static_cast<uint16_t*>(const_cast<void*>(x.data)) + row * x.row_stride + head * x.head_stride;
    };
    for (int64_t t = 0; t < o.T; ++t)
      for (int64_t h = 0; h < 4; ++h) {
        at(s.p.q, t, h)[0] = cpu::narrow(8, type), at(s.p.k, t, h)[0] = cpu::narrow(t == 0 ? 9 : 0, type);
        for (int64_t e = 0; e < o.E; ++e) {
          uint16_t& x = at(t == 0 ? s.p.v : dout, t, h)[e];
          x = cpu::narrow(t == 0 ? 0 : cpu::widen_bits(x, type) * small, type);
        }
      }
    const Results mine = run_all(s, dout, attention()), general = run_all(s, dout, general_attention());
    EXPECT_NE(mine.q, general.q);
    const auto others = [&](const std::vector<float>& dq) {  // queries' but the first, which sees one key
      return std::vector<float>(dq.begin() + 4 * o.D, dq.end());
    };
    EXPECT_LT(distance(others(mine.q), widened(others(general.q))), far);
  }
}

// One number far beyond the others, the last: gradients are made of all of them at its scale, and not by the general
// kernels.
TEST_F(Tensor, DoutIsScaledByItsLargestNumber) {
  Options o = dcmha(4);
  o.B = 1, o.T = o.S = 42;
  Sample s(o);
  const plain::Operand dout = s.operand(o.T, o.output_heads, o.E);
  auto* const d = static_cast<uint16_t*>(const_cast<void*>(dout.data));
  d[dout.batch_stride - 1] = cpu::narrow(3e5, o.type);
  const Results mine = run_all(s, dout, attention()), general = run_all(s, dout, general_attention());
  EXPECT_NE(mine.q, general.q);
  EXPECT_LT(distance(mine.q, widened(general.q)), kFar);
  EXPECT_LT(distance(mine.k, widened(general.k)), kFar);
  EXPECT_LT(distance(mine.v, widened(general.v)), kFar);
}

// Gradients of logits that float16 cannot hold, where dout . v and its sums over keys are held: the post mix's gain.
TEST_F(Tensor, GradientsThatAreTooLargeAreNotLost) {
  Options o = dcmha();
  o.T = o.S = 40, o.post = {kWeight}, o.post_identity = false;
  Sample s(o);
  auto* const weight = static_cast<float*>(const_cast<void*>(s.p.post.part[kWeight].data));
  for (int64_t n = 0; n < 16; ++n)
    for (int64_t m = 0; m < 16; ++m) weight[n * 16 + m] = n == m ? 4 : 0;
  auto* const v = static_cast<uint16_t*>(const_cast<void*>(s.p.v.data)) + s.p.v.batch_stride;
  for (int64_t row = 0; row < o.S; ++row)
    std::fill_n(v + row * s.p.v.row_stride, s.p.v.row_stride, cpu::narrow(row % 2 ? 100 : -100, o.type));
  const plain::Operand dout = s.operand(o.T, o.output_heads, o.E);
  auto* const d = static_cast<uint16_t*>(const_cast<void*>(dout.data));
  std::fill_n(d, o.B * dout.batch_stride, cpu::narrow(1, o.type));
  const Results mine = run_all(s, dout, attention()), general = run_all(s, dout, general_attention());
  const auto near = [&](const std::vector<float>& a, const std::vector<float>& b) {
    const auto half = static_cast<std::ptrdiff_t>(a.size() / 2);  // the second sequence is the general kernels'
    EXPECT_TRUE(std::equal(a.begin() + half, a.end(), b.begin() + half));
    EXPECT_FALSE(std::equal(a.begin(), a.begin() + half, b.begin()));
    EXPECT_LT(distance({a.begin(), a.begin() + half}, widened({b.begin(), b.begin() + half})), kFar);
  };
  near(mine.q, general.q);
  near(mine.k, general.k);
  near(mine.v, general.v);
  for (const int part : kDcmha) near(mine.pre[part], general.pre[part]);
  EXPECT_LT(distance(mine.post[kWeight], widened(general.post[kWeight])), kFar);
}

TEST_F(Tensor, WhatIsLeftToTheGeneralKernels) {
  const auto why = [](auto change, Pass pass = Pass::forward) {
    Options o = dcmha();
    o.T = o.S = 20;
    change(o);
    Sample s(o);
    return std::string(tensor_why_not(s.p, pass));
  };
  const auto nothing = [](Options&) {};
  EXPECT_EQ(why(nothing), "");
  EXPECT_EQ(why(nothing, Pass::lse), "two-phase forms are the general kernels'");
  EXPECT_EQ(why([](Options& o) { o.type = Type::float32; }), "not all inputs are of one 16-bit type");
  EXPECT_EQ(why([](Options& o) { o.T = 16; }), "few queries");
  EXPECT_EQ(why([](Options& o) { o.D = 72; }), "a width beyond 64");
  EXPECT_EQ(why([](Options& o) { o.E = 72; }), "");
  EXPECT_EQ(why([](Options& o) { o.E = 72; }, Pass::backward), "a width beyond 64");
  EXPECT_EQ(why([](Options& o) { o.D = 36; }), "rows that do not lie at multiples of 16 bytes of their own");
  EXPECT_EQ(
      why([](Options& o) { o.score_heads = o.softmax_heads = o.output_heads = o.key_heads = o.value_heads = 17; }),
      "a mix of more than 16 heads");
  EXPECT_EQ(why([](Options& o) { o.pre = {kKeyFull}; }), "a full-rank part on the walked side");
  EXPECT_EQ(why([](Options& o) { o.key_rank = 3; }), "ranks beyond 2");
  EXPECT_EQ(why([](Options& o) { o.pre.clear(), o.post.clear(); }, Pass::backward), "nothing is mixed");
  EXPECT_EQ(why([](Options& o) { o.key_heads = 4; }, Pass::backward), "shared heads");
  Sample expanded(dcmha());
  expanded.p.v.head_stride = 0;
  EXPECT_STREQ(tensor_why_not(expanded.p, Pass::forward), "rows that do not lie at multiples of 16 bytes of their own");
  emulated::tensor_copies = false;
  EXPECT_EQ(why(nothing), "the GPU is not of compute capability 9");
}

}  // namespace
}  // namespace motet::cuda
