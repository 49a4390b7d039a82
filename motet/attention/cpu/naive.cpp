#include "motet/attention/cpu/naive.h"

#include <bit>
#include <cmath>

#include "motet/attention/cpu/sight.h"

namespace motet::cpu {
namespace {

// Where a part of a mix lies: offset of its numbers at (b, t, s) and their shape.
struct PartView {
  int64_t offset, gradient;  // in the tensor (with its batch stride) and in a contiguous gradient
};

struct Place {
  int64_t b, t, s;
};

PartView view(const Problem& p, const HeadMix& mix, int part, int64_t n, int64_t m, const Place& at) {
  if (part == kWeight) return {0, 0};
  const int64_t size = plain::part_size(mix, part, n, m).numbers(), row = by_key(part) ? at.s : at.t,
                rows = by_key(part) ? p.S : p.T;
  const MixTensor& t = mix.part[part];
  return {at.b * t.batch_stride + row * t.row_stride, (at.b * rows + row) * size};
}

using PartGradients = std::array<std::vector<double>, kNumMixParts>;

// y = mix(x) at one place; x [n], y [m].
std::vector<double> apply(const Problem& p, const HeadMix& mix, const std::vector<double>& x, int64_t m,
                          const Place& at) {
  const int64_t n = static_cast<int64_t>(x.size());
  if (!mix.any_part()) return x;
  std::vector<double> y(m, 0);
  const auto data = [&](int part) { return mix.part[part].floats() + view(p, mix, part, n, m, at).offset; };
  if (mix.identity) y = x;
  for (const int part : {kWeight, kQueryFull, kKeyFull})
    if (mix.has(part))
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < m; ++j) y[j] += x[i] * data(part)[i * m + j];
  for (const int down : {kQueryDown, kKeyDown})
    for (int64_t r = 0; mix.has(down) && r < (down == kQueryDown ? mix.query_rank : mix.key_rank); ++r) {
      double hidden = 0;
      for (int64_t i = 0; i < n; ++i) hidden += x[i] * data(down)[r * n + i];
      for (int64_t j = 0; j < m; ++j) y[j] += hidden * data(down + 1)[r * m + j];
    }
  for (const int gate : {kQueryGate, kKeyGate})
    if (mix.has(gate))
      for (int64_t j = 0; j < m; ++j) y[j] += x[j] * data(gate)[j];
  return y;
}

// Gradient of x from that of y; adds the gradients of the parts.
std::vector<double> apply_backward(const Problem& p, const HeadMix& mix, const std::vector<double>& x,
                                   const std::vector<double>& g, const Place& at, PartGradients& sum) {
  const int64_t n = static_cast<int64_t>(x.size()), m = static_cast<int64_t>(g.size());
  if (!mix.any_part()) return g;
  std::vector<double> dx(n, 0);
  const auto data = [&](int part) { return mix.part[part].floats() + view(p, mix, part, n, m, at).offset; };
  const auto to = [&](int part) { return sum[part].data() + view(p, mix, part, n, m, at).gradient; };
  if (mix.identity) dx = g;
  for (const int part : {kWeight, kQueryFull, kKeyFull})
    if (mix.has(part))
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < m; ++j) {
          dx[i] += g[j] * data(part)[i * m + j];
          to(part)[i * m + j] += x[i] * g[j];
        }
  for (const int down : {kQueryDown, kKeyDown})
    for (int64_t r = 0; mix.has(down) && r < (down == kQueryDown ? mix.query_rank : mix.key_rank); ++r) {
      double hidden = 0, back = 0;
      for (int64_t i = 0; i < n; ++i) hidden += x[i] * data(down)[r * n + i];
      for (int64_t j = 0; j < m; ++j) back += g[j] * data(down + 1)[r * m + j];
      for (int64_t i = 0; i < n; ++i) {
        dx[i] += back * data(down)[r * n + i];
        to(down)[r * n + i] += x[i] * back;
      }
      for (int64_t j = 0; j < m; ++j) to(down + 1)[r * m + j] += g[j] * hidden;
    }
  for (const int gate : {kQueryGate, kKeyGate})
    if (mix.has(gate))
      for (int64_t j = 0; j < m; ++j) {
        dx[j] += g[j] * data(gate)[j];
        to(gate)[j] += x[j] * g[j];
      }
  return dx;
}

double lambda_at(const Problem& p, int64_t b, int64_t t, int64_t o) {
  return p.pairs.lambda[b * p.pairs.batch_stride + t * p.pairs.row_stride + o * p.pairs.head_stride];
}

std::vector<double> post_of(const Problem& p, const std::vector<double>& x, const Place& at) {
  if (!p.pairs.lambda) return apply(p, p.post, x, p.output_heads, at);
  std::vector<double> y(p.output_heads);
  for (int64_t o = 0; o < p.output_heads; ++o) y[o] = x[2 * o] - lambda_at(p, at.b, at.t, o) * x[2 * o + 1];
  return y;
}

// Scores, weights (0 where nothing is seen) and lse of one query: [s][head].
struct Row {
  std::vector<std::vector<double>> scores, weights;
  std::vector<double> lse;
};

Row row_of(const Problem& p, const Sight& sight, int64_t b, int64_t t) {
  Row row;
  row.scores.resize(p.S), row.weights.assign(p.S, std::vector<double>(p.softmax_heads, 0));
  row.lse.assign(p.softmax_heads, -INFINITY);
  const Span keys = sight.keys(b, t);
  std::vector<std::vector<double>> logits(p.S);
  std::vector<double> top(p.softmax_heads, -INFINITY), total(p.softmax_heads, 0);
  const auto seen = [&](int64_t s) { return !sight.holes(b) || sight.documents(b)[s] == sight.document(b, t); };
  for (int64_t s = keys.begin; s < keys.end; ++s) {
    if (!seen(s)) continue;
    row.scores[s].resize(p.score_heads);
    for (int64_t h = 0; h < p.score_heads; ++h) {
      double dot = 0;
      for (int64_t d = 0; d < p.D; ++d) dot += element(p.q, b, t, h, d) * element(p.k, b, s, p.key_of[h], d);
      row.scores[s][h] = p.scale * dot;
    }
    logits[s] = apply(p, p.pre, row.scores[s], p.softmax_heads, {b, t, s});
    for (int64_t a = 0; a < p.softmax_heads; ++a) top[a] = std::max(top[a], logits[s][a]);
  }
  for (int64_t s = 0; s < p.S; ++s)
    for (int64_t a = 0; a < p.softmax_heads && !logits[s].empty(); ++a) total[a] += std::exp(logits[s][a] - top[a]);
  for (int64_t a = 0; a < p.softmax_heads; ++a)
    if (total[a] > 0) row.lse[a] = top[a] + std::log(total[a]);
  for (int64_t s = 0; s < p.S; ++s)
    for (int64_t a = 0; a < p.softmax_heads && !logits[s].empty(); ++a)
      row.weights[s][a] = std::exp(logits[s][a] - top[a]) / total[a];
  return row;
}

}  // namespace

float widen_bits(uint16_t bits, Type type) {
  if (type == Type::bfloat16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double size = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
  return static_cast<float>(bits >> 15 ? -size : size);
}

uint16_t narrow(float x, Type type) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (type == Type::bfloat16) return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const double size = std::abs(static_cast<double>(x));
  if (size == 0) return sign;
  int exponent = std::max(std::ilogb(size), -14);
  double mantissa = std::nearbyint(std::ldexp(size, 10 - exponent));
  if (mantissa == 2048) mantissa = 1024, ++exponent;
  if (mantissa < 1024) return static_cast<uint16_t>(sign | static_cast<uint16_t>(mantissa));
  return static_cast<uint16_t>(sign | (exponent + 15) << 10 | (static_cast<uint16_t>(mantissa) - 1024));
}

double element(const Operand& x, int64_t b, int64_t row, int64_t head, int64_t i) {
  const int64_t at = b * x.batch_stride + row * x.row_stride + head * x.head_stride + i;
  if (x.type == Type::int8)
    return static_cast<double>(*x.scale_of(b, row, head)) * static_cast<const int8_t*>(x.data)[at];
  return x.type == Type::float32 ? static_cast<const float*>(x.data)[at]
                                 : widen_bits(static_cast<const uint16_t*>(x.data)[at], x.type);
}

NaiveResult naive_forward(const Problem& p) {
  NaiveResult result;
  result.out.assign(p.B * p.T * p.output_heads * p.E, 0);
  result.lse.assign(p.B * p.softmax_heads * p.T, 0);
  const Sight sight(p);
  for (int64_t b = 0; b < p.B; ++b)
    for (int64_t t = 0; t < p.T; ++t) {
      const Row row = row_of(p, sight, b, t);
      for (int64_t a = 0; a < p.softmax_heads; ++a) result.lse[(b * p.softmax_heads + a) * p.T + t] = row.lse[a];
      for (int64_t s = 0; s < p.S; ++s) {
        if (row.scores[s].empty()) continue;
        const std::vector<double> mixed = post_of(p, row.weights[s], {b, t, s});
        for (int64_t o = 0; o < p.output_heads; ++o)
          for (int64_t e = 0; e < p.E; ++e)
            result.out[((b * p.T + t) * p.output_heads + o) * p.E + e] +=
                mixed[o] * element(p.v, b, s, p.value_of[o], e);
      }
    }
  return result;
}

NaiveGradients naive_backward(const Problem& p, const std::vector<double>& dout) {
  NaiveGradients g;
  g.q.assign(p.B * p.T * p.score_heads * p.D, 0), g.k.assign(p.B * p.S * p.key_heads * p.D, 0);
  g.v.assign(p.B * p.S * p.value_heads * p.E, 0), g.lambda.assign(p.B * p.T * p.output_heads, 0);
  for (int part = 0; part < kNumMixParts; ++part) {
    const int64_t rows = part == kWeight ? 1 : p.B * (by_key(part) ? p.S : p.T);
    if (p.pre.has(part))
      g.pre[part].assign(rows * plain::part_size(p.pre, part, p.score_heads, p.softmax_heads).numbers(), 0);
    if (p.post.has(part))
      g.post[part].assign(rows * plain::part_size(p.post, part, p.softmax_heads, p.output_heads).numbers(), 0);
  }
  const Sight sight(p);
  for (int64_t b = 0; b < p.B; ++b)
    for (int64_t t = 0; t < p.T; ++t) {
      const Row row = row_of(p, sight, b, t);
      std::vector<std::vector<double>> dweights(p.S);
      std::vector<double> sums(p.softmax_heads, 0);
      for (int64_t s = 0; s < p.S; ++s) {
        if (row.scores[s].empty()) continue;
        const std::vector<double>& weights = row.weights[s];
        const std::vector<double> mixed = post_of(p, weights, {b, t, s});
        std::vector<double> dmixed(p.output_heads, 0);
        for (int64_t o = 0; o < p.output_heads; ++o)
          for (int64_t e = 0; e < p.E; ++e) {
            const double d = dout[((b * p.T + t) * p.output_heads + o) * p.E + e];
            dmixed[o] += d * element(p.v, b, s, p.value_of[o], e);
            g.v[((b * p.S + s) * p.value_heads + p.value_of[o]) * p.E + e] += mixed[o] * d;
          }
        if (p.pairs.lambda) {
          dweights[s].resize(p.softmax_heads);
          for (int64_t o = 0; o < p.output_heads; ++o) {
            dweights[s][2 * o] = dmixed[o];
            dweights[s][2 * o + 1] = -lambda_at(p, b, t, o) * dmixed[o];
            g.lambda[(b * p.T + t) * p.output_heads + o] -= dmixed[o] * weights[2 * o + 1];
          }
        } else {
          dweights[s] = apply_backward(p, p.post, weights, dmixed, {b, t, s}, g.post);
        }
        for (int64_t a = 0; a < p.softmax_heads; ++a) sums[a] += weights[a] * dweights[s][a];
      }
      for (int64_t s = 0; s < p.S; ++s) {
        if (row.scores[s].empty()) continue;
        std::vector<double> dlogits(p.softmax_heads);
        for (int64_t a = 0; a < p.softmax_heads; ++a) dlogits[a] = row.weights[s][a] * (dweights[s][a] - sums[a]);
        const std::vector<double> dscores = apply_backward(p, p.pre, row.scores[s], dlogits, {b, t, s}, g.pre);
        for (int64_t h = 0; h < p.score_heads; ++h)
          for (int64_t d = 0; d < p.D; ++d) {
            g.q[((b * p.T + t) * p.score_heads + h) * p.D + d] +=
                p.scale * dscores[h] * element(p.k, b, s, p.key_of[h], d);
            g.k[((b * p.S + s) * p.key_heads + p.key_of[h]) * p.D + d] +=
                p.scale * dscores[h] * element(p.q, b, t, h, d);
          }
      }
    }
  return g;
}

}  // namespace motet::cpu
