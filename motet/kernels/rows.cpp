// Compiled once for each instruction set.
#include "motet/core/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "motet/kernels/rows.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "motet/kernels/rows.h"

HWY_BEFORE_NAMESPACE();
namespace motet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vec = hn::Vec<Floats>;
constexpr int64_t kLanes = HWY_LANES(float);

HWY_INLINE Vec set(float x) { return hn::Set(Floats(), x); }

// f(values, place) over n numbers, then one(place) over those that fill no vector.
template <class Vectors, class Single>
HWY_INLINE void sweep(int64_t n, const Vectors& f, const Single& one) {
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) f(k);
  for (; k < n; ++k) one(k);
}

template <class Term, class SingleTerm>
HWY_INLINE float sum(int64_t n, const Term& term, const SingleTerm& one) {
  Vec total = hn::Zero(Floats());
  float rest = 0;
  sweep(n, [&](int64_t k) { total = hn::Add(total, term(k)); }, [&](int64_t k) { rest += one(k); });
  return hn::GetLane(hn::SumOfLanes(Floats(), total)) + rest;
}

HWY_INLINE Vec load(const float* p) { return hn::LoadU(Floats(), p); }
HWY_INLINE void store(float* p, Vec v) { hn::StoreU(v, Floats(), p); }

void rms_norm_row(const float* x, int64_t K, const float* weight, float eps, float* y) {
  const float squares = sum(
      K,
      [&](int64_t k) {
        const Vec v = load(x + k);
        return hn::Mul(v, v);
      },
      [&](int64_t k) { return x[k] * x[k]; });
  const float inverse = 1 / std::sqrt(squares / static_cast<float>(K) + eps);
  const auto one = [&](int64_t k) { y[k] = x[k] * inverse * (weight ? weight[k] : 1.f); };
  if (!weight) return sweep(K, [&](int64_t k) { store(y + k, hn::Mul(load(x + k), set(inverse))); }, one);
  sweep(K, [&](int64_t k) { store(y + k, hn::Mul(hn::Mul(load(x + k), set(inverse)), load(weight + k))); }, one);
}

void layer_norm_row(const float* x, int64_t K, const float* weight, const float* bias, float eps, float* y) {
  const float mean =
      sum(K, [&](int64_t k) { return load(x + k); }, [&](int64_t k) { return x[k]; }) / static_cast<float>(K);
  const float squares = sum(
      K,
      [&](int64_t k) {
        const Vec v = hn::Sub(load(x + k), set(mean));
        return hn::Mul(v, v);
      },
      [&](int64_t k) { return (x[k] - mean) * (x[k] - mean); });
  const float inverse = 1 / std::sqrt(squares / static_cast<float>(K) + eps);
  sweep(
      K,
      [&](int64_t k) {
        const Vec v = hn::Mul(hn::Sub(load(x + k), set(mean)), set(inverse));
        store(y + k, hn::MulAdd(v, load(weight + k), load(bias + k)));
      },
      [&](int64_t k) { y[k] = (x[k] - mean) * inverse * weight[k] + bias[k]; });
}

void rotate_halves(const float* x, int64_t P, const float* cos, const float* sin, float* y) {
  sweep(
      P,
      [&](int64_t j) {
        const Vec a = load(x + j), b = load(x + P + j), c = load(cos + j), s = load(sin + j);
        store(y + j, hn::Sub(hn::Mul(a, c), hn::Mul(b, s)));
        store(y + P + j, hn::MulAdd(a, s, hn::Mul(b, c)));
      },
      [&](int64_t j) {
        const float a = x[j], b = x[P + j];
        y[j] = a * cos[j] - b * sin[j], y[P + j] = b * cos[j] + a * sin[j];
      });
}

// hn::Exp is right up to 104 alone; e^100 is infinite for 1 + e^100 too.
HWY_INLINE Vec exp_of_minus(Vec x) { return hn::Exp(Floats(), hn::Min(hn::Neg(x), set(100.f))); }

// As vectors, and what fills none as one that does: a number's bits do not depend on its place.
void silu_product(const float* gate, const float* up, int64_t n, float* y) {
  const auto vector = [](const float* gate, const float* up, float* y) {
    const Vec g = load(gate);
    store(y, hn::Mul(hn::Div(g, hn::Add(set(1.f), exp_of_minus(g))), load(up)));
  };
  int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) vector(gate + k, up + k, y + k);
  if (k == n) return;
  float last_gate[kLanes] = {}, last_up[kLanes] = {}, last[kLanes];
  std::copy_n(gate + k, n - k, last_gate), std::copy_n(up + k, n - k, last_up);
  vector(last_gate, last_up, last);
  std::copy_n(last, n - k, y + k);
}

// With s = sigmoid(gate): d(gate s) = s (1 + gate (1 - s)).
void silu_product_backward(const float* gate, const float* up, const float* dy, int64_t n, float* dgate, float* dup) {
  sweep(
      n,
      [&](int64_t k) {
        const Vec g = load(gate + k), from = load(dy + k), one = set(1.f);
        const Vec s = hn::Div(one, hn::Add(one, exp_of_minus(g)));
        const Vec slope = hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));
        store(dgate + k, hn::Mul(hn::Mul(from, load(up + k)), slope));
        store(dup + k, hn::Mul(from, hn::Mul(g, s)));
      },
      [&](int64_t k) {
        const float s = 1 / (1 + std::exp(-gate[k]));
        dgate[k] = dy[k] * up[k] * (s * (1 + gate[k] * (1 - s))), dup[k] = dy[k] * (gate[k] * s);
      });
}

}  // namespace motet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "motet/kernels/best.h"

namespace motet {
void rms_norm_rows(const float* x, int64_t M, int64_t K, const float* weight, float eps, float* y) {
  const auto row = MOTET_BEST(rms_norm_row);
  for (int64_t m = 0; m < M; ++m) row(x + m * K, K, weight, eps, y + m * K);
}

void layer_norm_rows(const float* x, int64_t M, int64_t K, const float* weight, const float* bias, float eps,
                     float* y) {
  const auto row = MOTET_BEST(layer_norm_row);
  for (int64_t m = 0; m < M; ++m) row(x + m * K, K, weight, bias, eps, y + m * K);
}

void rotate_heads(const float* x, int64_t H, int64_t D, const HeadRotation& by, float* y) {
  const auto halves = MOTET_BEST(rotate_halves);
  for (int64_t h = 0; h < H; ++h, x += D, y += D) {
    if (by.interleaved) {
      for (int64_t j = 0; j < by.P; ++j) {
        const float a = x[2 * j], b = x[2 * j + 1];
        y[2 * j] = a * by.cos[j] - b * by.sin[j], y[2 * j + 1] = b * by.cos[j] + a * by.sin[j];
      }
    } else {
      halves(x, by.P, by.cos, by.sin, y);
    }
    for (int64_t i = 2 * by.P; i < D; ++i) y[i] = x[i];
  }
}

void gelu(const float* x, int64_t n, bool by_tanh, float* y) {
  constexpr float kHalfRoot = 0.70710678f, kScale = 0.79788456f, kCube = 0.044715f;  // sqrt(1/2), sqrt(2/pi)
  for (int64_t k = 0; k < n; ++k) {
    const float v = x[k];
    y[k] = 0.5f * v * (1 + (by_tanh ? std::tanh(kScale * (v + kCube * v * v * v)) : std::erf(v * kHalfRoot)));
  }
}

void silu_times(const float* gate, const float* up, int64_t n, float* y) { MOTET_BEST(silu_product)(gate, up, n, y); }

void silu_times_backward(const float* gate, const float* up, const float* dy, int64_t n, const SiluTimesGradients& d) {
  MOTET_BEST(silu_product_backward)(gate, up, dy, n, d.gate, d.up);
}

}  // namespace motet
#endif
