#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <string>

#include "motet/attention/cpu/naive.h"

// Random problems for the torch-free tests, every option by name, and what results are held to.
namespace motet::cpu::testing {

struct Options {
  int64_t B = 1, T = 9, S = 9, D = 8, E = 8, score_heads = 2, softmax_heads = 2, output_heads = 2, key_heads = 2,
          value_heads = 2;
  std::vector<int> pre, post;  // parts
  bool pre_identity = false, post_identity = false, pairs = false, tables = false;
  int lambda_dim = 1;
  int64_t query_rank = 2, key_rank = 2;
  Type type = Type::float32;
  bool strided = false, causal = false, keys8 = false;  // keys8: k and v in 8 bits
  int64_t window = 0;
  int start = 0, lengths = 0, documents = 0;  // start: 1 random. lengths: 1 random. documents: 1 runs, 2 scattered
  double logits = 1, gate = 0.5;
  uint32_t seed = 1;
};

inline const std::vector<int> kDcmha{kQueryDown, kQueryUp, kQueryGate, kKeyDown, kKeyUp, kKeyGate};
inline const std::vector<int> kEverything{kWeight,  kQueryDown, kQueryUp, kQueryGate, kQueryFull,
                                          kKeyDown, kKeyUp,     kKeyGate, kKeyFull};

/// A problem and the memory it looks at.
class Sample {
 public:
  explicit Sample(const Options& options) : o(options), random_(options.seed) {
    p.B = o.B, p.T = o.T, p.S = o.S, p.D = o.D, p.E = o.E;
    p.score_heads = o.score_heads, p.softmax_heads = o.softmax_heads, p.output_heads = o.output_heads;
    p.key_heads = o.key_heads, p.value_heads = o.value_heads;
    p.scale = o.logits / std::sqrt(static_cast<double>(o.D));
    p.causal = o.causal, p.window = o.causal ? o.window : 0;
    make_tables();
    p.q = operand(o.T, o.score_heads, o.D);
    p.k = o.keys8 ? operand8(o.S, o.key_heads, o.D) : operand(o.S, o.key_heads, o.D);
    p.v = o.keys8 ? operand8(o.S, o.value_heads, o.E) : operand(o.S, o.value_heads, o.E);
    p.pre = mix(o.pre, o.pre_identity, o.score_heads, o.softmax_heads);
    if (!o.pairs)
      p.post = mix(o.post, o.post_identity, o.softmax_heads, o.output_heads);
    else
      make_pairs();
    make_visibility();
  }
  Sample(const Sample&) = delete;

  std::vector<float> numbers(int64_t count, double size) {
    std::normal_distribution<float> normal(0, static_cast<float>(size));
    std::vector<float> x(static_cast<size_t>(count));
    for (float& f : x) f = normal(random_);
    return x;
  }
  /// float32 numbers as an operand [B,rows,heads,width] of the type of the problem, strided where the options say so.
  Operand operand(int64_t rows, int64_t heads, int64_t width) {
    const int64_t head = width + (o.strided ? 3 : 0), row = heads * head + (o.strided ? 5 : 0),
                  batch = rows * row + (o.strided ? 7 : 0);
    const std::vector<float> x = numbers(o.B * batch, 1);
    Operand result{nullptr, o.type, batch, row, head};
    if (o.type == Type::float32) {
      floats_.push_back(x);
      result.data = floats_.back().data();
    } else {
      std::vector<uint16_t> half(x.size());
      for (size_t i = 0; i < x.size(); ++i) half[i] = narrow(x[i], o.type);
      halves_.push_back(half);
      result.data = halves_.back().data();
    }
    return result;
  }

  /// Numbers of 8 bits whose scales differ by up to e.
  Operand operand8(int64_t rows, int64_t heads, int64_t width) {
    const int64_t row = heads * width + (o.strided ? 5 : 0), batch = rows * row + (o.strided ? 7 : 0);
    std::uniform_int_distribution<int> whole(-127, 127);
    std::vector<int8_t>& x = bytes_.emplace_back(static_cast<size_t>(o.B * batch));
    for (int8_t& byte : x) byte = static_cast<int8_t>(whole(random_));
    std::vector<float>& scale = floats_.emplace_back(static_cast<size_t>(o.B * rows * heads));
    for (float& s : scale) s = 0.004f * std::exp(std::uniform_real_distribution<float>(0, 1)(random_));
    return {x.data(), Type::int8, batch, row, width, scale.data(), rows * heads, heads};
  }

  Options o;
  Problem p;

 private:
  int64_t below(int64_t n) { return n > 0 ? std::uniform_int_distribution<int64_t>(0, n - 1)(random_) : 0; }

  void make_tables() {
    for (int64_t h = 0; h < o.score_heads; ++h)
      p.key_of.push_back(o.tables ? below(o.key_heads) : h * o.key_heads / o.score_heads);
    for (int64_t h = 0; h < o.output_heads; ++h)
      p.value_of.push_back(o.tables ? below(o.value_heads) : h * o.value_heads / o.output_heads);
  }

  HeadMix mix(const std::vector<int>& parts, bool identity, int64_t n, int64_t m) {
    HeadMix x;
    x.identity = identity, x.query_rank = o.query_rank, x.key_rank = o.key_rank;
    for (const int part : parts) {
      const int64_t size = plain::part_size(x, part, n, m).numbers();
      const int64_t row = part == kWeight ? 0 : size + (o.strided ? 5 : 0);
      const int64_t batch = part == kWeight ? 0 : (by_query(part) ? o.T : o.S) * row + (o.strided ? 4 : 0);
      const double scale = part == kQueryGate || part == kKeyGate ? o.gate : 0.5;
      floats_.push_back(numbers(part == kWeight ? size : o.B * batch, scale));
      x.part[part] = {floats_.back().data(), batch, row};
    }
    return x;
  }

  void make_pairs() {
    const int64_t heads = o.output_heads;
    floats_.push_back(numbers(o.lambda_dim == 0 ? 1 : o.lambda_dim == 1 ? heads : o.B * o.T * heads, 0.5));
    p.pairs.lambda = floats_.back().data();
    if (o.lambda_dim >= 1) p.pairs.head_stride = 1;
    if (o.lambda_dim == 3) p.pairs.row_stride = heads, p.pairs.batch_stride = o.T * heads;
  }

  void make_visibility() {
    const auto table = [&](int64_t count, auto number) {
      std::vector<int64_t> x(static_cast<size_t>(count));
      for (size_t i = 0; i < x.size(); ++i) x[i] = number(static_cast<int64_t>(i));
      integers_.push_back(x);
      return integers_.back().data();
    };
    if (o.start) p.query_start = table(o.B, [&](int64_t) { return below(o.S + 4) - 2; });
    if (o.lengths) {
      p.key_begin = table(o.B, [&](int64_t) { return below(o.S / 2 + 1); });
      p.key_end = table(o.B, [&](int64_t) { return o.S - below(o.S / 2 + 1); });
    }
    int64_t run = 0;
    if (o.documents)
      p.documents = table(o.B * o.S, [&](int64_t i) {
        if (i % o.S == 0 || below(4) == 0) run = o.documents == 2 ? below(3) : run + 1;
        return run;
      });
  }

  std::mt19937 random_;
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<uint16_t>> halves_;
  std::deque<std::vector<int8_t>> bytes_;
  std::deque<std::vector<int64_t>> integers_;
};

/// max |a - b| / max |b|, at least 1e-3 below; infinities must stand at the same places.
inline double error(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0, size = 1e-3;
  for (size_t i = 0; i < b.size(); ++i) {
    if (std::isinf(b[i]) || std::isnan(a[i])) {
      if (a[i] != b[i]) return std::numeric_limits<double>::infinity();
      continue;
    }
    worst = std::max(worst, std::abs(a[i] - b[i]));
    size = std::max(size, std::abs(b[i]));
  }
  return worst / size;
}

inline std::vector<double> widened(const std::vector<float>& x) { return {x.begin(), x.end()}; }

/// The results of one run, forward and backward, in float32.
struct Results {
  std::vector<float> out, lse, q, k, v, lambda;
  std::array<std::vector<float>, kNumMixParts> pre, post;

  /// f(part, numbers, its memory) for every part of both mixes that is there.
  template <class Function>
  void for_each_part(const Problem& p, const Function& f) {
    const auto parts = [&](const HeadMix& mix, std::array<std::vector<float>, kNumMixParts>& memory, bool post,
                           int64_t n, int64_t m) {
      for (int part = 0; part < kNumMixParts; ++part) {
        if (!mix.has(part)) continue;
        const int64_t rows = part == kWeight ? 1 : p.B * (by_query(part) ? p.T : p.S);
        f(part, post, rows * plain::part_size(mix, part, n, m).numbers(), memory[part]);
      }
    };
    parts(p.pre, pre, false, p.score_heads, p.softmax_heads);
    parts(p.post, post, true, p.softmax_heads, p.output_heads);
  }
};

/// The largest errors that `error` may find: of out, lse, the gradients of q, k and v, and those of the mixes.
struct Limits {
  double out, lse, inputs, mixes;
};

inline void expect_close(const Results& r, const Sample& s, const std::vector<float>& dout, const Limits& limits) {
  const NaiveResult expected = naive_forward(s.p);
  EXPECT_LE(error(widened(r.out), expected.out), limits.out) << "out";
  EXPECT_LE(error(widened(r.lse), expected.lse), limits.lse) << "lse";
  const NaiveGradients g = naive_backward(s.p, widened(dout));
  EXPECT_LE(error(widened(r.q), g.q), limits.inputs) << "dq";
  EXPECT_LE(error(widened(r.k), g.k), limits.inputs) << "dk";
  EXPECT_LE(error(widened(r.v), g.v), limits.inputs) << "dv";
  if (s.p.pairs.lambda) {
    EXPECT_LE(error(widened(r.lambda), g.lambda), limits.mixes) << "dlambda";
  }
  for (int part = 0; part < kNumMixParts; ++part) {
    if (s.p.pre.has(part)) {
      EXPECT_LE(error(widened(r.pre[part]), g.pre[part]), limits.mixes) << "pre part " << part;
    }
    if (s.p.post.has(part)) {
      EXPECT_LE(error(widened(r.post[part]), g.post[part]), limits.mixes) << "post part " << part;
    }
  }
}

/// Numbers of a type as an operand [B,T,Ho,E].
inline Operand outputs(const Problem& p, const void* x, Type type) {
  const int64_t row = p.output_heads * p.E;
  return {x, type, p.T * row, row, p.E};
}
inline Operand outputs(const Problem& p, const std::vector<float>& x) { return outputs(p, x.data(), Type::float32); }

/// float32 numbers that the type of the problem holds, as many as it has outputs.
inline std::vector<float> cotangent(Sample& s) {
  std::vector<float> x = s.numbers(s.p.B * s.p.T * s.p.output_heads * s.p.E, 1);
  for (float& f : x)
    if (s.o.type != Type::float32) f = static_cast<float>(widen_bits(narrow(f, s.o.type), s.o.type));
  return x;
}

struct Named {
  const char* name;
  Options options;
};

/// What every set of kernels without torch is held to.
inline std::vector<Named> cases() {
  Options plain;
  plain.T = plain.S = 70, plain.D = 24, plain.E = 40, plain.causal = true;
  Options wide = plain;
  wide.D = wide.E = 33, wide.B = 2, wide.key_heads = wide.value_heads = 1, wide.strided = true;
  Options window = plain;
  window.window = 13;
  Options dcmha = plain;
  dcmha.pre = dcmha.post = kDcmha, dcmha.pre_identity = dcmha.post_identity = true;
  Options ragged = dcmha;
  ragged.B = 3, ragged.score_heads = ragged.softmax_heads = ragged.output_heads = 6, ragged.lengths = ragged.start = 1,
  ragged.strided = true;
  Options documents = ragged;
  documents.documents = 1, documents.lengths = 0, documents.start = 0;
  Options scattered = documents;
  scattered.documents = 2, scattered.tables = true;
  Options everything = plain;
  everything.pre = everything.post = kEverything, everything.pre_identity = everything.post_identity = true;
  everything.query_rank = everything.key_rank = 5;
  Options talking = plain;
  talking.pre = talking.post = {kWeight}, talking.softmax_heads = 5, talking.output_heads = 7, talking.value_heads = 1;
  Options key_full = talking;
  key_full.pre = {kWeight, kKeyDown, kKeyUp, kKeyFull}, key_full.post = {kQueryFull};
  Options pairs = plain;
  pairs.score_heads = pairs.softmax_heads = 6, pairs.output_heads = 3, pairs.pairs = true, pairs.value_heads = 1;
  Options pairs3 = pairs;
  pairs3.lambda_dim = 3, pairs3.tables = true, pairs3.key_heads = 3;
  Options mixed_pairs = pairs;
  mixed_pairs.pre = kDcmha, mixed_pairs.pre_identity = true;
  Options one = dcmha;
  one.T = one.S = 1;
  Options cross = dcmha;
  cross.causal = false, cross.T = 19, cross.S = 131;
  Options query_only = dcmha;
  query_only.pre = {kQueryDown, kQueryUp, kQueryGate}, query_only.post = {}, query_only.post_identity = false;
  Options key_only = dcmha;
  key_only.post = {kKeyDown, kKeyUp, kKeyGate}, key_only.pre = {}, key_only.pre_identity = false, key_only.key_rank = 1;
  Options decode = ragged;
  decode.T = 1, decode.S = 1100, decode.start = decode.lengths = 0, decode.D = 32;
  Options decode_pairs = pairs3;
  decode_pairs.T = 5, decode_pairs.S = 700, decode_pairs.lambda_dim = 1;
  Options decode_plain = wide;
  decode_plain.T = 2, decode_plain.S = 600, decode_plain.D = 64, decode_plain.lengths = 1;
  Options decode_dense = everything;
  decode_dense.T = 13, decode_dense.S = 90, decode_dense.window = 20;
  Options decode_half = decode;
  decode_half.type = Type::float16, decode_half.S = 130;
  Options decode_shared = decode_plain;  // more rows share a stored head than are computed at once
  decode_shared.score_heads = decode_shared.softmax_heads = decode_shared.output_heads = 18, decode_shared.D = 48,
  decode_shared.E = 80, decode_shared.type = Type::bfloat16;
  Options decode_three = decode;
  decode_three.key_heads = decode_three.value_heads = 2, decode_three.S = 320, decode_three.E = 64;
  Options bfloat = dcmha, half = pairs, bfloat_plain = plain;
  bfloat.type = bfloat_plain.type = Type::bfloat16, half.type = Type::float16;
  Options bfloat_strided = bfloat;
  bfloat_strided.strided = true;
  Options bfloat_odd = bfloat;  // whose values cannot be turned in pairs
  bfloat_odd.E = 33;
  return {{"plain", plain},
          {"wide", wide},
          {"window", window},
          {"dcmha", dcmha},
          {"ragged", ragged},
          {"documents", documents},
          {"scattered", scattered},
          {"everything", everything},
          {"talking", talking},
          {"key_full", key_full},
          {"pairs", pairs},
          {"pairs3", pairs3},
          {"mixed_pairs", mixed_pairs},
          {"one", one},
          {"cross", cross},
          {"query_only", query_only},
          {"key_only", key_only},
          {"decode", decode},
          {"decode_pairs", decode_pairs},
          {"decode_plain", decode_plain},
          {"decode_dense", decode_dense},
          {"decode_half", decode_half},
          {"decode_shared", decode_shared},
          {"decode_three", decode_three},
          {"bfloat", bfloat},
          {"bfloat_strided", bfloat_strided},
          {"half", half},
          {"bfloat_plain", bfloat_plain},
          {"bfloat_odd", bfloat_odd}};
}

}  // namespace motet::cpu::testing
