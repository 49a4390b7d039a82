// The CUDA kernels, emulated on the host, against loops in double. Every fault that the emulation finds (a race, an
// access outside shared memory, a barrier that some threads miss) fails the test that ran into it.
#include <gtest/gtest.h>

#include <cstring>

#include "motet/attention/cuda/testing.h"

namespace motet::cuda {
namespace {

using namespace motet::cpu::testing;
using namespace motet::cuda::testing;
using plain::Type;

// Arithmetic is float32 whatever the types: only what is stored in 16 bits is rounded to them.
Limits limits_of(const Sample& s) {
  const double rounding = s.o.type == Type::bfloat16 ? 4e-3 : s.o.type == Type::float16 ? 5e-4 : 0;
  return {std::max(rounding, 2e-6), 2e-6, std::max(rounding, 8e-6), 8e-6};
}

void expect_right(const Options& options) {
  Sample s(options);
  const std::vector<float> dout = s.numbers(s.p.B * s.p.T * s.p.output_heads * s.p.E, 1);
  expect_close(run_all(s, outputs(s.p, dout)), s, dout, limits_of(s));
}

TEST_F(Cuda, ForwardAndAllGradientsMatchTheOracle) {
  for (const Named& c : cases()) {
    SCOPED_TRACE(c.name);
    expect_right(c.options);
  }
}

// A tile that is one row longer than its window, and one shorter.
TEST_F(Cuda, WindowsAcrossTilesMatchTheOracle) {
  for (const int64_t window : {1, 2, 3, 15, 16, 17, 18, 33}) {
    SCOPED_TRACE(window);
    Options o;
    o.T = 45, o.S = 52, o.causal = true, o.window = window, o.post = {kWeight};
    expect_right(o);
  }
}

// Heads, widths, types and mixes, each value beside every value of the others at least once.
TEST_F(Cuda, HeadsWidthsTypesAndMixesInPairs) {
  const std::vector<int64_t> heads{1, 6, 8, 12, 16, 32, 64}, widths{16, 40, 64, 96, 128, 192, 256};
  const std::vector<Type> types{Type::float32, Type::bfloat16, Type::float16};
  for (size_t i = 0; i < heads.size(); ++i)
    for (size_t j = 0; j < widths.size(); ++j) {
      Options o;
      o.T = 18, o.S = 21, o.causal = true, o.seed = static_cast<uint32_t>(1 + i * widths.size() + j);
      o.score_heads = o.softmax_heads = o.output_heads = heads[i];
      o.key_heads = o.value_heads = heads[i] % 4 == 0 ? heads[i] / 4 : heads[i];
      o.D = widths[j], o.E = widths[(i + 2 * j) % widths.size()];
      o.type = types[(i + j) % types.size()];
      o.pre_identity = o.post_identity = true;
      const size_t mix = (2 * i + j) % 7;
      if (mix == 0) o.pre = o.post = kDcmha;
      if (mix == 1) o.pre = o.post = {kWeight};
      if (mix == 2) o.pre = o.post = {kQueryDown, kQueryUp, kQueryGate}, o.query_rank = 4;
      if (mix == 3) o.pre = {kKeyDown, kKeyUp}, o.post = {kKeyGate, kWeight}, o.key_rank = 8;
      if (mix == 4) o.pre = {kQueryFull}, o.post = {kKeyFull};
      if (mix == 5 && heads[i] % 2 == 0)
        o.pairs = true, o.output_heads = heads[i] / 2, o.value_heads = 1, o.lambda_dim = static_cast<int>(j % 2) * 3;
      SCOPED_TRACE("heads " + std::to_string(o.score_heads) + " D " + std::to_string(o.D) + " E " +
                   std::to_string(o.E) + " mix " + std::to_string(mix));
      expect_right(o);
    }
}

// Heads by eights are read in vectors where the parts of a mix lie in them, and come to the same bits where they do
// not.
TEST_F(Cuda, PartsOfMixesNeedNotLieInVectors) {
  Options o;
  o.T = 20, o.S = 37, o.causal = true, o.type = Type::bfloat16, o.post_identity = true;
  o.score_heads = o.softmax_heads = o.output_heads = o.key_heads = o.value_heads = 16;
  for (const bool everything : {false, true}) {
    o.pre = o.post = everything ? kEverything : kDcmha;
    Sample s(o);
    const std::vector<float> dout = s.numbers(s.p.B * s.p.T * s.p.output_heads * s.p.E, 1);
    const Results aligned = run_all(s, outputs(s.p, dout));
    std::vector<std::vector<char>> moved;
    for (plain::HeadMix* mix : {&s.p.pre, &s.p.post})
      for (int part = 0; part < kNumMixParts; ++part) {
        plain::MixTensor& at = mix->part[part];
        if (!at.data) continue;
        const int64_t rows = part == kWeight ? 1 : plain::by_query(part) ? s.p.T : s.p.S;
        const int64_t size = at.type == Type::float32 ? 4 : 2, batches = part == kWeight ? 1 : s.p.B;
        const int64_t numbers = batches * rows * plain::part_size(*mix, part, 16, 16).numbers();
        moved.emplace_back(static_cast<size_t>((numbers + 1) * size));
        at.data = std::memcpy(moved.back().data() + size, at.data, static_cast<size_t>(numbers * size));
      }
    EXPECT_TRUE(same_bits(aligned, run_all(s, outputs(s.p, dout))));
  }
}

// Every second row of a mix begins between two vectors.
TEST_F(Cuda, RowsOfMixesNeedNotLieInVectors) {
  Options o;
  o.T = 20, o.S = 37, o.causal = true, o.pre = o.post = kDcmha, o.pre_identity = o.post_identity = true;
  o.score_heads = o.softmax_heads = o.output_heads = o.key_heads = o.value_heads = 16;
  Sample s(o);
  const std::vector<float> dout = s.numbers(s.p.B * s.p.T * s.p.output_heads * s.p.E, 1);
  const Results without_gaps = run_all(s, outputs(s.p, dout));
  const auto moved = with_gaps(s);
  EXPECT_TRUE(same_bits(without_gaps, run_all(s, outputs(s.p, dout))));
}

// A GPU with less shared memory takes shorter tiles.
TEST_F(Cuda, LittleSharedMemoryIsEnough) {
  Options o;
  o.T = 20, o.S = 37, o.causal = true, o.D = 24, o.pre = o.post = kDcmha, o.pre_identity = true;
  o.score_heads = o.softmax_heads = o.output_heads = o.key_heads = o.value_heads = 32;
  for (const int limit : {163 << 10, 99 << 10}) {
    SCOPED_TRACE(limit);
    emulated::shared_limit = limit;
    expect_right(o);
  }
  o.score_heads = o.softmax_heads = o.output_heads = 64;
  o.pre = o.post = kEverything, o.query_rank = o.key_rank = 8, o.T = 17;
  expect_right(o);
}

TEST_F(Cuda, BitsDoNotDependOnTheOrderOfWarps) {
  for (const Named& c : cases()) {
    SCOPED_TRACE(c.name);
    Sample s(c.options);
    const std::vector<float> dout = s.numbers(s.p.B * s.p.T * s.p.output_heads * s.p.E, 1);
    emulated::reverse_order(false);
    const Results one = run_all(s, outputs(s.p, dout));
    emulated::reverse_order(true);
    const Results other = run_all(s, outputs(s.p, dout));
    EXPECT_TRUE(same_bits(one, other));
  }
}

// Halves of the keys, each under the lse of both, add up to the whole.
TEST_F(Cuda, TwoPhasesOfASplitOverKeysAddUp) {
  for (const Named& c : cases()) {
    if (c.options.lengths || c.options.documents) continue;
    SCOPED_TRACE(c.name);
    Sample s(c.options);
    const plain::Problem& p = s.p;
    const Results whole = forward_of(s);
    const std::vector<int64_t> begin(p.B, 0), middle(p.B, p.S / 3), end(p.B, p.S);
    plain::Problem halves[2] = {p, p};
    halves[0].key_begin = begin.data(), halves[0].key_end = halves[1].key_begin = middle.data();
    halves[1].key_end = end.data();
    std::vector<std::vector<float>> lse(2, std::vector<float>(whole.lse.size(), NAN));
    std::vector<double> out(whole.out.size());
    for (int i = 0; i < 2; ++i) {
      Memory memory(general_attention().workspace_bytes(halves[i], Pass::lse));
      EXPECT_STREQ(general_attention().lse(halves[i], lse[i].data(), memory.runtime()), nullptr);
    }
    std::vector<float> both(whole.lse.size());
    for (size_t i = 0; i < both.size(); ++i) {
      const double most = std::max(lse[0][i], lse[1][i]);
      both[i] = static_cast<float>(most + std::log(std::exp(lse[0][i] - most) + std::exp(lse[1][i] - most)));
      if (std::isinf(most)) both[i] = -INFINITY;
    }
    for (const plain::Problem& half : halves) {
      Typed part(s.o.type, static_cast<int64_t>(out.size()));
      Memory memory(general_attention().workspace_bytes(half, Pass::given_lse));
      EXPECT_STREQ(general_attention().given_lse(half, both.data(), part.data(), memory.runtime()), nullptr);
      const std::vector<float> x = part.read();
      for (size_t i = 0; i < out.size(); ++i) out[i] += x[i];
    }
    const double limit = limits_of(s).out;
    EXPECT_LE(error(widened(both), widened(whole.lse)), 4e-6);
    EXPECT_LE(error(out, widened(whole.out)), 4 * limit);
    EXPECT_EQ(emulated::take_fault(), "");
  }
}

// Gradients that nobody asked for have no memory.
TEST_F(Cuda, GradientsAreMadeOneByOne) {
  Options o;
  o.T = 20, o.S = 37, o.causal = true, o.pre = o.post = kEverything, o.post_identity = true;
  Sample s(o);
  const plain::Problem& p = s.p;
  const std::vector<float> dout = s.numbers(p.B * p.T * p.output_heads * p.E, 1);
  Results whole = run_all(s, outputs(s.p, dout));
  Memory memory(general_attention().workspace_bytes(p, Pass::backward));
  const auto alone = [&](const std::vector<float>& expected, auto place) {
    std::vector<float> got(expected.size(), NAN);
    Gradients g;
    place(g) = got.data();
    EXPECT_STREQ(general_attention().backward(p, {outputs(p, dout), whole.lse.data()}, g, memory.runtime()), nullptr);
    EXPECT_EQ(got, expected);
  };
  alone(whole.q, [](Gradients& g) -> auto& { return g.q; });
  alone(whole.k, [](Gradients& g) -> auto& { return g.k; });
  alone(whole.v, [](Gradients& g) -> auto& { return g.v; });
  whole.for_each_part(p, [&](int part, bool post, int64_t, std::vector<float>& expected) {
    SCOPED_TRACE(part);
    alone(expected, [&](Gradients& g) -> auto& { return (post ? g.post : g.pre)[part]; });
  });
}

// What lies beyond a sequence's keys may hold anything.
TEST_F(Cuda, KeysThatMayNotBeReadDoNotLeak) {
  Options o;
  o.B = 2, o.T = 20, o.S = 50, o.lengths = 1, o.pre = o.post = kEverything, o.pre_identity = true;
  Sample s(o);
  const plain::Problem& p = s.p;
  const std::vector<float> dout = s.numbers(p.B * p.T * p.output_heads * p.E, 1);
  const Results clean = run_all(s, outputs(s.p, dout));
  spoil_unread_keys(s);
  const Results spoilt = run_all(s, outputs(s.p, dout));
  EXPECT_TRUE(same_bits(clean, spoilt));
}

TEST_F(Cuda, MoreThan64HeadsAreRefused) {
  plain::Problem p;
  p.score_heads = p.softmax_heads = p.output_heads = 65;
  EXPECT_STREQ(general_attention().why_not(p), "more than 64 heads");
}

}  // namespace
}  // namespace motet::cuda
