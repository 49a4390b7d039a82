#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "motet/attention/cpu/testing.h"
#include "motet/attention/cuda/problem.h"
#include "motet/cuda/testing.h"

// What the tests of the CUDA kernels share: emulated calls on random problems.
namespace motet::cuda::testing {

using namespace motet::cpu::testing;
using plain::Type;

inline Results forward_of(const Sample& s, const Api& api = general_attention()) {
  const plain::Problem& p = s.p;
  Results r;
  Typed out(s.o.type, p.B * p.T * p.output_heads * p.E);
  r.lse.assign(static_cast<size_t>(p.B * p.softmax_heads * p.T), NAN);
  Memory memory(api.workspace_bytes(p, Pass::forward));
  EXPECT_STREQ(api.forward(p, {out.data(), r.lse.data()}, memory.runtime()), nullptr);
  r.out = out.read();
  return r;
}

inline Results run_all(const Sample& s, const plain::Operand& dout, const Api& api = general_attention()) {
  const plain::Problem& p = s.p;
  EXPECT_STREQ(api.why_not(p), "");
  Results r = forward_of(s, api);
  Typed q(s.o.type, p.B * p.T * p.score_heads * p.D), k(s.o.type, p.B * p.S * p.key_heads * p.D),
      v(s.o.type, p.B * p.S * p.value_heads * p.E);
  Gradients g{q.data(), k.data(), v.data()};
  const auto make = [](std::vector<float>& x, int64_t size) {
    return x.assign(static_cast<size_t>(size), NAN), x.data();
  };
  if (p.pairs.lambda) g.lambda = make(r.lambda, p.B * p.T * p.output_heads);
  r.for_each_part(p, [&](int part, bool post, int64_t numbers, std::vector<float>& to) {
    (post ? g.post : g.pre)[part] = make(to, numbers);
  });
  Memory memory(api.workspace_bytes(p, Pass::backward));
  EXPECT_STREQ(api.backward(p, {dout, r.lse.data()}, g, memory.runtime()), nullptr);
  r.q = q.read(), r.k = k.read(), r.v = v.read();
  EXPECT_EQ(emulated::take_fault(), "");
  return r;
}

inline bool same_bits(const Results& a, const Results& b) {
  const auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() && (x.empty() || !std::memcmp(x.data(), y.data(), x.size() * sizeof(float)));
  };
  bool all = same(a.out, b.out) && same(a.lse, b.lse) && same(a.lambda, b.lambda) && same(a.q, b.q) && same(a.k, b.k) &&
             same(a.v, b.v);
  for (int part = 0; part < kNumMixParts; ++part)
    all &= same(a.pre[part], b.pre[part]) && same(a.post[part], b.post[part]);
  return all;
}

/// NaN in every key, value and part of a mix that may not be read.
inline void spoil_unread_keys(Sample& s) {
  const plain::Problem& p = s.p;
  const auto spoil = [](const void* data, Type type, int64_t at, int64_t count) {
    if (type == Type::float32)
      std::fill_n(const_cast<float*>(static_cast<const float*>(data)) + at, count, NAN);
    else
      std::fill_n(const_cast<uint16_t*>(static_cast<const uint16_t*>(data)) + at, count, uint16_t{0x7fff});
  };
  for (int64_t b = 0; b < p.B; ++b)
    for (int64_t key = 0; key < p.S; ++key) {
      if (key >= p.key_begin[b] && key < p.key_end[b]) continue;
      spoil(p.k.data, p.k.type, b * p.k.batch_stride + key * p.k.row_stride, p.key_heads * p.D);
      spoil(p.v.data, p.v.type, b * p.v.batch_stride + key * p.v.row_stride, p.value_heads * p.E);
      const auto parts = [&](const plain::HeadMix& mix, int64_t n, int64_t m) {
        for (int part = kKeyDown; part <= kKeyFull; ++part) {
          if (!mix.has(part)) continue;
          const int64_t numbers = plain::part_size(mix, part, n, m).numbers();
          const plain::MixTensor& t = mix.part[part];
          spoil(t.data, t.type, b * t.batch_stride + key * t.row_stride, numbers);
        }
      };
      parts(p.pre, p.score_heads, p.softmax_heads);
      parts(p.post, p.softmax_heads, p.output_heads);
    }
}

/// Gives rows of the mixes' parts gaps that are no vector's; what comes back holds them. In the gaps is a number: NaN
/// would have tensor cores leave the sequence to the general kernels.
inline std::deque<std::vector<float>> with_gaps(Sample& s) {
  std::deque<std::vector<float>> moved;
  const auto move = [&](plain::HeadMix& mix, int64_t n, int64_t m) {
    for (int part = kQueryDown; part < kNumMixParts; ++part) {
      plain::MixTensor& at = mix.part[part];
      if (!at.data) continue;
      const int64_t rows = plain::by_query(part) ? s.p.T : s.p.S, numbers = plain::part_size(mix, part, n, m).numbers(),
                    row = numbers + 2, batch = (rows * row + 8) / 8 * 8;
      std::vector<float>& to = moved.emplace_back(static_cast<size_t>(s.p.B * batch), 3.f);
      for (int64_t b = 0; b < s.p.B; ++b)
        for (int64_t i = 0; i < rows; ++i)
          std::copy_n(at.floats() + b * at.batch_stride + i * at.row_stride, numbers, to.data() + b * batch + i * row);
      at = {to.data(), batch, row};
    }
  };
  move(s.p.pre, s.p.score_heads, s.p.softmax_heads);
  move(s.p.post, s.p.softmax_heads, s.p.output_heads);
  return moved;
}

class Cuda : public ::testing::Test {
 protected:
  void TearDown() override {
    emulated::reverse_order(false);
    emulated::shared_limit = 227 << 10;
    emulated::tensor_copies = true;
  }
};

}  // namespace motet::cuda::testing
