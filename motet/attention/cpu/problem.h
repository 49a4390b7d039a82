#pragma once
#include <string>

#include "motet/attention/plain.h"
#include "motet/core/caches.h"
#include "motet/core/precision.h"
#include "motet/core/threads.h"

// The whole interface of the fused CPU kernels of composed attention: plain numbers in (mix tensors in float32; those
// of the key side, k and v in 16 or 8 bits too), a status out. No torch, no exceptions.
namespace motet::cpu {

using plain::by_key, plain::by_query, plain::HeadMix, plain::MixTensor, plain::Operand, plain::Pairs, plain::PartSize,
    plain::Problem, plain::Type;

/// out [B,T,Ho,E] of the type of q; lse [B,Ha,T]. Both contiguous; lse may be null.
struct Output {
  void* out = nullptr;
  float* lse = nullptr;
};

/// What the backward pass starts from: dout and out as operands [B,T,Ho,E], lse [B,Ha,T].
struct Incoming {
  Operand dout, out;
  const float* lse = nullptr;
};

/// Where gradients go: contiguous float32 in the shapes of the inputs, written whole; null: not wanted. lambda's is
/// [B,T,Ho] whatever lambda's own shape.
struct Gradients {
  float *q = nullptr, *k = nullptr, *v = nullptr, *lambda = nullptr;
  std::array<float*, kNumMixParts> pre{}, post{};
};

/// amx and its emulation run when they are asked for; `best` is never one of them, for amx has not been measured.
enum class Instructions : uint8_t { best, neon, avx2, avx512, avx512_bf16, amx, emulated_amx };

/// Results do not depend on the threads, bit for bit; they do on the instructions and the caches. The precision is that
/// of tiles whose operands are not in bfloat16, and changes nothing else.
struct Runtime {
  Threads threads;
  Instructions instructions = Instructions::best;
  CacheSizes caches = cache_sizes();
  Precision precision = Precision::highest;
};

enum class Status : uint8_t { ok, out_of_memory, no_instructions };

/// The instruction sets of `Instructions` that this CPU has, worst first; empty: the fused kernels cannot run.
std::vector<Instructions> available_instructions();
/// Why this CPU or its system cannot run them; "" where they can.
std::string why_not(Instructions);
const char* name(Instructions);

Status forward(const Problem&, const Output&, const Runtime&);
Status backward(const Problem&, const Incoming&, const Gradients&, const Runtime&);
/// Phase 1 of a split over keys: lse [B,Ha,T] of these keys.
Status lse(const Problem&, float* lse, const Runtime&);
/// Phase 2: out [B,T,Ho,E] of these keys under the lse of all parts.
Status given_lse(const Problem&, const float* lse, void* out, const Runtime&);

}  // namespace motet::cpu
