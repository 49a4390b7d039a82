#pragma once
#include "motet/attention/plain.h"
#include "motet/cuda/runtime.h"

// The whole interface of the fused CUDA kernels of composed attention: plain numbers in, work on a stream out. No
// torch, no exceptions, no memory of its own. libmotet_cuda.so hands out the functions below (`attention`); the same
// sources, compiled for the host, are emulated in the tests (emulation.h). Every pointer of a problem points into the
// device.
namespace motet::cuda {

/// out [B,T,Ho,E] of the type of q and lse [B,Ha,T], both contiguous; lse may be null.
struct Output {
  void* out = nullptr;
  float* lse = nullptr;
};

/// What the backward pass starts from: dout as an operand [B,T,Ho,E], lse [B,Ha,T] of the forward pass.
struct Incoming {
  plain::Operand dout;
  const float* lse = nullptr;
};

/// Where gradients go: contiguous, in the shapes of the inputs, written whole; null: not wanted. Those of q, k and v
/// are of their types; lambda's is [B,T,Ho] whatever lambda's own shape.
struct Gradients {
  void *q = nullptr, *k = nullptr, *v = nullptr;
  float* lambda = nullptr;
  std::array<float*, kNumMixParts> pre{}, post{};
};

/// What lies between the products of some queries with all their keys, which whoever calls makes: q . k of all pairs in
/// float32, without the scale, comes in, and the weights that multiply v go out. Everything is contiguous.
struct Between {
  const float* scores = nullptr;     // [B,Hs,T,S]
  const float* given_lse = nullptr;  // [B,Ha,T], where it is that of more keys; null: made
  float* lse = nullptr;              // [B,Ha,T], where it is made; null: not wanted
  void* weights = nullptr;           // [B,Ho,T,S] of the type of q, 0 where a pair is not seen; null: not wanted
};
/// The same backward: dout . v of all pairs comes in too, and gradients of q . k go out.
struct BetweenBack {
  const float *scores = nullptr, *dmixed = nullptr;  // [B,Hs,T,S], [B,Ho,T,S]
  void *weights = nullptr, *dscores = nullptr;       // [B,Ho,T,S], null: not wanted; [B,Hs,T,S]; of the type of q
};

enum class Pass : uint8_t { forward, backward, lse, given_lse, between, between_back };

/// Each function puts its work on the stream and returns without waiting: null, or what CUDA says is wrong. The bits of
/// results depend on shapes, on whether rows lie at multiples of 16 bytes and on the device. Nothing is synchronised
/// and nothing copied from the host, so that a CUDA graph may hold any of them.
struct Api {
  /// Makes a device the current one for this thread's calls: the CUDA runtime in the library does not see which one is
  /// torch's.
  void (*use_device)(int device);
  /// Why these kernels do not take a problem of these sizes (pointers are not read) on the current device; "" when they
  /// do.
  const char* (*why_not)(const plain::Problem&);
  /// Linear in T and S.
  int64_t (*workspace_bytes)(const plain::Problem&, Pass);
  const char* (*forward)(const plain::Problem&, const Output&, const Runtime&);
  const char* (*backward)(const plain::Problem&, const Incoming&, const Gradients&, const Runtime&);
  /// Phase 1 of a split over keys: lse [B,Ha,T] of these keys.
  const char* (*lse)(const plain::Problem&, float* lse, const Runtime&);
  /// Phase 2: out [B,T,Ho,E] of these keys under the lse of all parts.
  const char* (*given_lse)(const plain::Problem&, const float* lse, void* out, const Runtime&);
  /// Whether kernels made for such a pass take it. The general ones are left, beside which long products of matrices
  /// are faster made by a library of them, with the two functions below in between.
  bool (*has_own)(const plain::Problem&, Pass);
  const char* (*between)(const plain::Problem&, const Between&, const Runtime&);
  /// Of the gradients those of mixes and lambda.
  const char* (*between_back)(const plain::Problem&, const BetweenBack&, const Gradients&, const Runtime&);
};

/// The kernels that the library hands out: those of tensor cores where they take a problem, those of decoding where
/// they do, else the general ones.
const Api& attention();
/// The general kernels alone.
const Api& general_attention();
/// Why the tensor-core kernels, and those of decoding, leave a call to others; "" when they take it.
const char* tensor_why_not(const plain::Problem&, Pass);
const char* decode_why_not(const plain::Problem&, Pass);

}  // namespace motet::cuda
