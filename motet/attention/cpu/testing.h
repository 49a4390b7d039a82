#pragma once
#include <cmath>
#include <deque>
#include <limits>
#include <random>
#include <string>

#include "motet/attention/cpu/naive.h"

// Random problems for the torch-free tests: plain numbers in, every option by name.
namespace motet::cpu::testing {

struct Options {
  int64_t B = 1, T = 9, S = 9, D = 8, E = 8, score_heads = 2, softmax_heads = 2, output_heads = 2, key_heads = 2,
          value_heads = 2;
  std::vector<int> pre, post;  // parts
  bool pre_identity = false, post_identity = false, pairs = false, tables = false;
  int lambda_dim = 1;
  int64_t query_rank = 2, key_rank = 2;
  Type type = Type::float32;
  bool strided = false, causal = false;
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
    p.k = operand(o.S, o.key_heads, o.D);
    p.v = operand(o.S, o.value_heads, o.E);
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
      const bool query = part < kKeyDown;
      const int64_t rank = query ? o.query_rank : o.key_rank;
      const int64_t size = part == kQueryDown || part == kKeyDown   ? rank * n
                           : part == kQueryUp || part == kKeyUp     ? rank * m
                           : part == kQueryGate || part == kKeyGate ? m
                                                                    : n * m;
      const int64_t batch = part == kWeight ? size : (query ? o.T : o.S) * size + (o.strided ? 4 : 0);
      const double scale = part == kQueryGate || part == kKeyGate ? o.gate : 0.5;
      floats_.push_back(numbers(part == kWeight ? size : o.B * batch, scale));
      x.part[part] = {floats_.back().data(), batch};
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

}  // namespace motet::cpu::testing
