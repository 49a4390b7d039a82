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

// y = f(x), n numbers; what fills no vector as one that does: a number's bits do not depend on its place.
template <class F>
HWY_INLINE void map(const float* x, int64_t n, float* y, const F& f) {
  sweep(n, [&](int64_t k) { store(y + k, f(load(x + k))); }, [](int64_t) {});
  const int64_t whole = n - n % kLanes;
  float last[kLanes] = {};
  std::copy_n(x + whole, n - whole, last);
  store(last, f(load(last)));
  std::copy_n(last, n - whole, y + whole);
}

// c[0] + c[1] x + ... of a list that begins at the highest power.
template <class... Rest>
HWY_INLINE Vec polynomial(Vec x, float highest, Rest... rest) {
  Vec sum = set(highest);
  ((sum = hn::MulAdd(sum, x, set(rest))), ...);
  return sum;
}

// Exactly 1 or -1 where |x| >= from, so that gelu of a large negative number is 0; NaN stays.
HWY_INLINE Vec one_from(float from, Vec x, Vec nearer) {
  const Vec far = hn::IfThenElse(hn::IsNaN(x), x, hn::CopySign(set(1.f), x));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), set(from)), nearer, far);
}

// Rational approximations of both, as Eigen has them: within 4e-7 of the function everywhere.
HWY_INLINE Vec erf(Vec x) {
  const Vec z = hn::Clamp(x, set(-4.f), set(4.f)), z2 = hn::Mul(z, z);
  const Vec above =
      polynomial(z2, -2.72614225801306e-10f, 2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f,
                 -7.34990630326855e-04f, -2.95459980854025e-03f, -1.60960333262415e-02f);
  const Vec below = polynomial(z2, -1.45660718464996e-05f, -2.13374055278905e-04f, -1.68282697438203e-03f,
                               -7.37332916720468e-03f, -1.42647390514189e-02f);
  return one_from(3.92f, x, hn::Div(hn::Mul(z, above), below));
}

HWY_INLINE Vec tanh(Vec x) {
  const Vec z = hn::Clamp(x, set(-8.f), set(8.f)), z2 = hn::Mul(z, z);
  const Vec above =
      polynomial(z2, -2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f,
                 1.48572235717979e-05f, 6.37261928875436e-04f, 4.89352455891786e-03f);
  const Vec below =
      polynomial(z2, 1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f);
  return one_from(7.9f, x, hn::Div(hn::Mul(z, above), below));
}

void gelu_by_erf(const float* x, int64_t n, float* y) {
  map(x, n, y, [](Vec v) {
    return hn::Mul(hn::Mul(set(0.5f), v), hn::Add(set(1.f), erf(hn::Mul(v, set(0.70710678f)))));  // sqrt(1/2)
  });
}

void gelu_by_tanh(const float* x, int64_t n, float* y) {
  map(x, n, y, [](Vec v) {
    const Vec inner =
        hn::Mul(set(0.79788456f), hn::MulAdd(hn::Mul(set(0.044715f), v), hn::Mul(v, v), v));  // sqrt(2/pi)
    return hn::Mul(hn::Mul(set(0.5f), v), hn::Add(set(1.f), tanh(inner)));
  });
}

void tanh_numbers(const float* x, int64_t n, float* y) {
  map(x, n, y, [](Vec v) { return tanh(v); });
}

// As map().
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
  by_tanh ? MOTET_BEST(gelu_by_tanh)(x, n, y) : MOTET_BEST(gelu_by_erf)(x, n, y);
}

void tanh_of(const float* x, int64_t n, float* y) { MOTET_BEST(tanh_numbers)(x, n, y); }

void silu_times(const float* gate, const float* up, int64_t n, float* y) { MOTET_BEST(silu_product)(gate, up, n, y); }

void silu_times_backward(const float* gate, const float* up, const float* dy, int64_t n, const SiluTimesGradients& d) {
  MOTET_BEST(silu_product_backward)(gate, up, dy, n, d.gate, d.up);
}

}  // namespace motet
#endif
