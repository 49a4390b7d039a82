#pragma once
#include <span>

#include "motet/core/precision.h"
#include "motet/ops/matrix.h"

// Functions of tensors between which a model's layers choose nothing: each checks all operands once (device, dtype,
// shape; c10::ValueError) and runs the first row of its table that takes them (table.h), whose plain definition in
// torch is the last. The operator itself, composed attention, is motet/attention. `kernel` names a row.
namespace motet {

/// W and bias of y = x W^T + bias; bias [N] or undefined. The precision counts where there are tiles (AMX) and no
/// gradients; elsewhere products are those of float32.
struct LinearLayer {
  Matrix weight_NK;
  Tensor bias_N = {};
  Precision precision = Precision::highest;
};

/// cos and sin [1 or B, T, 1, P] in float32 (float64 for a float64 x) of P pairs of dimensions: (j, j + P), or
/// (2j, 2j + 1) when interleaved.
struct Rotation {
  Tensor cos, sin;
  bool interleaved = false;
};

/// The parameters of one side's generator of DCMHA: a hidden layer and gates in one matrix, then maps of rank R by
/// group of heads. Source: arXiv:2405.08553, as motet/mechanisms/dcmha/README.md words it.
struct DcmhaGenerator {
  int64_t heads = 0, groups = 1, rank = 0;  // N, G, R
  int64_t branches = 0;                     // P of this side: pre and post, or one of them
  bool maps = true, gates = true, gelu_by_tanh = false;
  Matrix rows_XC;      // hidden [G,P,K] of the maps, then gates [P,N]
  Tensor up_QKM;       // [G P, K, 2 R N/G], down before up; undefined without maps
  Tensor up_rows_PMK;  // of one group, transposed: prepared for few rows (motet/layers/preparable.h), or undefined
};
/// down and up [B,T,G R,N] (undefined without maps) and gate [B,T,N] (without gates) of a branch.
struct DcmhaMaps {
  Tensor down_BTRN, up_BTRN, gate_BTN;
};

enum class Loss { mean, each };

namespace ops {

/// y [...,N] from x [...,K]. Differentiable in x, W and bias, unless W is kept in fewer bits.
Tensor linear(const Tensor& x, const LinearLayer&, const char* kernel = nullptr);
/// Layers that read the same x, with the precision of the first: few rows of it go through all weights in one pass.
std::vector<Tensor> linear_together(const Tensor& x, std::span<const LinearLayer>, const char* kernel = nullptr);
/// The rows of W that ids [...] name, [...,K].
Tensor embedding(const Matrix&, const Tensor& ids);

/// y = weight * x / sqrt(mean over the last axis of x^2 + eps). Statistics in at least float32; the result is cast to
/// x's dtype before it meets the weight. weight [C] or undefined (no affine part). Source: arXiv:1910.07467.
Tensor rms_norm(const Tensor& x, const Tensor& weight_C, double eps, const char* kernel = nullptr);
/// y = weight * (x - mean) / sqrt(variance + eps) + bias, over the last axis; weight and bias [C]. arXiv:1607.06450.
Tensor layer_norm(const Tensor& x, const Tensor& weight_C, const Tensor& bias_C, double eps,
                  const char* kernel = nullptr);

/// x [B,T,H,D], whose first 2 P dimensions turn, (a, b) -> (a cos - b sin, b cos + a sin), in at least float32 and
/// returned in x's dtype. Differentiable in x. Source: RoFormer, arXiv:2104.09864.
Tensor rotate(const Tensor& x_BTHD, const Rotation&, const char* kernel = nullptr);

/// silu(gate) * up. Source: SwiGLU, arXiv:2002.05202.
Tensor silu_times(const Tensor& gate, const Tensor& up, const char* kernel = nullptr);
/// By the error function, or by its tanh approximation. Source: arXiv:1606.08415.
Tensor gelu(const Tensor& x, bool by_tanh, const char* kernel = nullptr);

/// x [B,T,C]: the maps of each branch. Of several groups they are torch's: a token's bits depend on how many there are.
std::vector<DcmhaMaps> dcmha_maps(const Tensor& x_BTC, const DcmhaGenerator&, const char* kernel = nullptr);

/// Cross entropy in nats of logits [B,T,V] against targets [B,T] (int64), in at least float32: the mean, a number, or
/// that of each token, [B,T].
Tensor token_loss(const Tensor& logits_BTV, const Tensor& targets_BT, Loss = Loss::mean, const char* kernel = nullptr);

/// Rows [at, at + N) of `to` [B,capacity,X] become those of `from`, [B,N,...] each, side by side, in to's dtype; or
/// those of `to` [B,capacity,G,D], whose heads may lie anywhere, those of one [B,N,G,D]. No gradient.
void write_rows(const Tensor& to_BS, int64_t at, at::TensorList from, const char* kernel = nullptr);

}  // namespace ops
}  // namespace motet
