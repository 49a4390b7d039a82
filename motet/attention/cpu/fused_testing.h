#pragma once
#include <gtest/gtest.h>

#include <cstring>

#include "motet/attention/cpu/testing.h"
#include "motet/attention/cpu/workspace.h"
#include "motet/core/testing.h"

// Whole runs of the fused kernels on random problems, what they are held to, and the fixture of their tests.
namespace motet::cpu::testing {

inline Runtime runtime(int threads, Instructions instructions) {
  return {motet::testing::own_threads(threads), instructions};
}

inline std::vector<float> attended(const Sample& s, std::vector<float>& lse, const Runtime& run) {
  const size_t size = static_cast<size_t>(s.p.B * s.p.T * s.p.output_heads * s.p.E);
  std::vector<float> out(size, NAN);
  lse.assign(static_cast<size_t>(s.p.B * s.p.softmax_heads * s.p.T), NAN);
  if (s.o.type == Type::float32) {
    EXPECT_EQ(forward(s.p, {out.data(), lse.data()}, run), Status::ok);
    return out;
  }
  std::vector<uint16_t> half(size, 0x7fff);
  EXPECT_EQ(forward(s.p, {half.data(), lse.data()}, run), Status::ok);
  for (size_t i = 0; i < size; ++i) out[i] = widen_bits(half[i], s.o.type);
  return out;
}

inline Results run_all(const Sample& s, const std::vector<float>& dout, const Runtime& run) {
  const Problem& p = s.p;
  Results r;
  r.out = attended(s, r.lse, run);
  const auto make = [](std::vector<float>& x, int64_t size) {
    return x.assign(static_cast<size_t>(size), NAN), x.data();
  };
  Gradients g;
  g.q = make(r.q, p.B * p.T * p.score_heads * p.D);
  g.k = make(r.k, p.B * p.S * p.key_heads * p.D);
  g.v = make(r.v, p.B * p.S * p.value_heads * p.E);
  if (p.pairs.lambda) g.lambda = make(r.lambda, p.B * p.T * p.output_heads);
  r.for_each_part(p, [&](int part, bool post, int64_t numbers, std::vector<float>& memory) {
    (post ? g.post : g.pre)[part] = make(memory, numbers);
  });
  std::vector<uint16_t> half;
  if (s.o.type != Type::float32)
    for (const float f : dout) half.push_back(narrow(f, s.o.type));
  const Operand given = half.empty() ? outputs(p, dout) : outputs(p, half.data(), s.o.type);
  EXPECT_EQ(backward(p, {given, outputs(p, r.out), r.lse.data()}, g, run), Status::ok);
  return r;
}

// Outputs in 16 bits carry their own rounding, and `out`, from which the backward pass of plain attention starts, with
// them; gradients are float32 sums.
inline Limits limits_of(const Sample& s, double limit) {
  const double rounding = s.o.type == Type::bfloat16 ? 8e-3 : s.o.type == Type::float16 ? 1e-3 : 0;
  if (rounding > 0) return {rounding, rounding, rounding, rounding};
  return {limit, limit, 4 * limit, 4 * limit};
}
inline void expect_close(const Results& r, const Sample& s, const std::vector<float>& dout, double limit) {
  expect_close(r, s, dout, limits_of(s, limit));
}

// Those of this CPU, and the emulation of tiles, which every CPU can run.
inline std::vector<Instructions> all_instructions() {
  std::vector<Instructions> all = available_instructions();
  all.push_back(Instructions::emulated_amx);
  return all;
}

class Fused : public ::testing::Test {
 protected:
  void SetUp() override {
    if (available_instructions().empty()) GTEST_SKIP() << "this CPU has neither AVX2 nor NEON";
    poison_workspaces(Poison::nan);
  }
  void TearDown() override { poison_workspaces(Poison::none); }
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || !std::memcmp(a.data(), b.data(), a.size() * sizeof(float)));
}

inline void expect_same_bits(const Results& one, const Results& other) {
  EXPECT_TRUE(same_bits(one.out, other.out) && same_bits(one.lse, other.lse));
  EXPECT_TRUE(same_bits(one.q, other.q) && same_bits(one.k, other.k) && same_bits(one.v, other.v));
  EXPECT_TRUE(same_bits(one.lambda, other.lambda));
  for (int part = 0; part < kNumMixParts; ++part)
    EXPECT_TRUE(same_bits(one.pre[part], other.pre[part]) && same_bits(one.post[part], other.post[part])) << part;
}

// Of longer cases in one way of running them and in others.
inline void expect_same_bits(const std::vector<Named>& cases, const Runtime& one, const std::vector<Runtime>& others) {
  for (const Named& c : cases) {
    SCOPED_TRACE(std::string(c.name) + " with " + name(one.instructions));
    Options options = c.options;
    if (options.T > 16) options.T = std::min<int64_t>(options.T * 3, 200), options.S = std::max(options.S, options.T);
    Sample s(options);
    const std::vector<float> dout = cotangent(s);
    const Results results = run_all(s, dout, one);
    for (const Runtime& other : others) {
      SCOPED_TRACE(std::to_string(other.threads.count) + " threads" + (other.caches.slow_l2 ? ", slow L2" : ""));
      expect_same_bits(results, run_all(s, dout, other));
    }
  }
}

inline void expect_same_bits(const std::vector<Named>& cases, const Instructions instructions,
                             const std::vector<int>& several) {
  std::vector<Runtime> others;
  for (const int threads : several) others.push_back(runtime(threads, instructions));
  expect_same_bits(cases, runtime(1, instructions), others);
}

}  // namespace motet::cpu::testing
