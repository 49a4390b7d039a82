#pragma once
#include "motet/core/number_type.h"
#include "motet/cuda/runtime.h"

// The whole interface of the CUDA kernels of a step beside attention, of training or decoding: plain numbers in, work
// on a stream out. No torch, no exceptions, no memory of its own. libmotet_cuda.so hands out the functions below
// (step_kernels); the same sources, compiled for the host, are emulated in the tests (motet/cuda/emulation.h). Every
// pointer points into the device; arithmetic is float32 whatever the types; what is written is contiguous and written
// whole.
namespace motet::cuda {

/// Numbers [rows, columns], each row without gaps; `stride` elements from one row to the next.
struct Rows {
  const void* data = nullptr;
  NumberType type = NumberType::float32;
  int64_t stride = 0;
};

/// y = weight * x / sqrt(mean of x^2 + eps) of each row, cast to x's type before it meets the weight [columns] (null:
/// 1).
struct RmsNorm {
  int64_t rows = 0, columns = 0;  // columns to kMaxNormColumns
  Rows x;
  const void* weight = nullptr;
  NumberType weight_type = NumberType::float32, out_type = NumberType::float32;
  float eps = 0;
};
inline constexpr int64_t kMaxNormColumns = 16384;
/// Of the types of x and the weight; null: not wanted.
struct RmsNormGradients {
  void *x = nullptr, *weight = nullptr;
};

/// x [B,T,H,D], whose first 2 `pairs` dimensions turn by cos and sin [B or 1, T, pairs]: (a, b) -> (a cos - b sin,
/// b cos + a sin), by the opposite angle when `back`. Pairs are (2j, 2j + 1) when interleaved, else (j, j + pairs).
struct HeadRotation {
  int64_t B = 0, T = 0, H = 0, D = 0, pairs = 0;
  const void* x = nullptr;
  NumberType type = NumberType::float32;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;
  const float *cos = nullptr, *sin = nullptr;
  int64_t table_stride = 0;  // from one sequence to the next; 0: one table
  bool interleaved = false, back = false;
};

/// silu(gate) * up, [rows, columns].
struct SiluTimes {
  int64_t rows = 0, columns = 0;
  Rows gate, up;
  NumberType out_type = NumberType::float32;
};
/// Of the types of gate and up; null: not wanted.
struct SiluTimesGradients {
  void *gate = nullptr, *up = nullptr;
};

/// Cross entropy of logits [rows, classes] against targets [rows]; row r lies at r / group * group_stride +
/// r % group * stride. A target of kIgnoredTarget has the loss 0 and counts for nothing; the loss of any other that is
/// no class is not a number.
struct TokenLoss {
  int64_t rows = 0, classes = 0;
  Rows logits;
  int64_t group = 1, group_stride = 0;
  const int64_t* targets = nullptr;
};
inline constexpr int64_t kIgnoredTarget = -100;  // as torch's cross_entropy
/// losses [rows]; normalizers [rows,2]: the largest logit and the log of the sum of exp(logit - largest). The mean of
/// the losses that count, and how many do, are numbers; or both null.
struct TokenLosses {
  float *losses = nullptr, *normalizers = nullptr, *mean = nullptr, *count = nullptr;
};
/// The gradients of the losses [rows]; with the count, that of their mean alone.
struct TokenLossIncoming {
  const float *gradients = nullptr, *normalizers = nullptr, *count = nullptr;
};

/// What DCMHA makes of the products of its generator, for each of P branches: maps [P, rows, 2 R, N] are the rows down,
/// which are divided by sqrt(mean over N of squares + eps), and the rows up; of gates [rows, P N] the tanh is taken.
struct DcmhaSplit {
  int64_t rows = 0, branches = 0, rank = 0, heads = 0;
  const void* maps = nullptr;  // null: no maps
  NumberType maps_type = NumberType::float32;
  Rows gates;  // data null: no gates
  float eps = 0;
};
inline constexpr int kMaxBranches = 2;
/// down and up [rows, R, N] and gate [rows, N] of each branch, or their gradients (read; null: zeros).
struct DcmhaParts {
  void *down[kMaxBranches] = {}, *up[kMaxBranches] = {}, *gate[kMaxBranches] = {};
};
/// [P, rows, 2 R, N] and [rows, P N]; null: not wanted.
struct DcmhaGradients {
  void *maps = nullptr, *gates = nullptr;
};

/// y [rows, outputs] = x [rows, columns] W^T + bias of a W in bfloat16, float16, or in int8 whose row n stands for
/// scale[n] times its numbers. All without gaps and at multiples of 16 bytes; columns are a multiple of 4. A row of y
/// has the same bits whatever the number of rows.
struct KeptLinear {
  int64_t rows = 0, outputs = 0, columns = 0;  // rows to kMostKeptRows
  const float* x = nullptr;
  const void* weight = nullptr;                   // [outputs, columns]
  NumberType type = NumberType::bfloat16;         // of the weight
  const float *scale = nullptr, *bias = nullptr;  // [outputs]; scale of int8 alone; bias null: none
};
inline constexpr int kMostKeptRows = 16;

/// Each function puts its work on the stream and returns without waiting: null, or what CUDA says is wrong. The bits of
/// results depend on shapes and on whether rows lie at multiples of 16 bytes, nothing else. Nothing is synchronised and
/// nothing copied from the host, so that a CUDA graph may hold any of them. No dimension is 0, and all but the logits
/// have fewer than 2^31 numbers.
struct StepKernels {
  /// Makes a device the current one for this thread's calls.
  void (*use_device)(int device);
  /// Why the current device cannot run them; "" when it can.
  const char* (*why_not)();
  /// y [rows, columns] of out_type, and 1 / sqrt(...) of each row, `inverse` [rows].
  const char* (*rms_norm)(const RmsNorm&, void* y, float* inverse, const Runtime&);
  /// From dy of out_type, contiguous. The workspace has rms_norm_workspace bytes.
  const char* (*rms_norm_backward)(const RmsNorm&, const float* inverse, const void* dy, const RmsNormGradients&,
                                   const Runtime&);
  int64_t (*rms_norm_workspace)(const RmsNorm&);
  /// y [B,T,H,D] of x's type.
  const char* (*rotate)(const HeadRotation&, void* y, const Runtime&);
  /// y [rows, columns] of out_type.
  const char* (*silu_times)(const SiluTimes&, void* y, const Runtime&);
  const char* (*silu_times_backward)(const SiluTimes&, const void* dy, const SiluTimesGradients&, const Runtime&);
  const char* (*token_loss)(const TokenLoss&, const TokenLosses&, const Runtime&);
  /// dlogits [rows, classes] of the logits' type.
  const char* (*token_loss_backward)(const TokenLoss&, const TokenLossIncoming&, void* dlogits, const Runtime&);
  const char* (*dcmha_split)(const DcmhaSplit&, const DcmhaParts&, const Runtime&);
  const char* (*dcmha_split_backward)(const DcmhaSplit&, const DcmhaParts& gradients, const DcmhaGradients&,
                                      const Runtime&);
  const char* (*kept_linear)(const KeptLinear&, float* y, const Runtime&);
};

const StepKernels& step_kernels();

}  // namespace motet::cuda
