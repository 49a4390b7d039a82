#pragma once
#include <cstdint>

// Norms, rotations and activations of a few rows: what decoding does between its linear layers. float32, rows without
// gaps; y may be x.
namespace motet {

/// y[m] = weight * x[m] / sqrt(mean x[m]^2 + eps); weight [K] or null (1).
void rms_norm_rows(const float* x, int64_t M, int64_t K, const float* weight, float eps, float* y);

/// y[m] = weight * (x[m] - mean) / sqrt(variance + eps) + bias; weight and bias [K].
void layer_norm_rows(const float* x, int64_t M, int64_t K, const float* weight, const float* bias, float eps, float* y);

/// Of each head of width D the first 2 P numbers turn: pair j by the angle whose cosine and sine are cos[j], sin[j].
/// Pairs are (j, j + P), or (2j, 2j + 1) when interleaved. One row of heads.
struct HeadRotation {
  const float *cos = nullptr, *sin = nullptr;  // [P]
  int64_t P = 0;
  bool interleaved = false;
};
void rotate_heads(const float* x_HD, int64_t H, int64_t D, const HeadRotation&, float* y_HD);

/// y = silu(gate) * up, n numbers; may be written over either.
void silu_times(const float* gate, const float* up, int64_t n, float* y);
/// Its gradients, of the gradient dy of y.
struct SiluTimesGradients {
  float *gate, *up;  // n numbers each
};
void silu_times_backward(const float* gate, const float* up, const float* dy, int64_t n, const SiluTimesGradients&);

/// y = gelu(x), by the error function or by its tanh approximation, n numbers; y may be x. Both here and in tanh_of a
/// number's bits do not depend on its place, and erf and tanh are within 4e-7.
void gelu(const float* x, int64_t n, bool by_tanh, float* y);
/// y = tanh(x), n numbers; y may be x.
void tanh_of(const float* x, int64_t n, float* y);

}  // namespace motet
