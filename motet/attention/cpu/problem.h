#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "motet/core/threads.h"

// The whole interface of the fused CPU kernels of composed attention: plain numbers in, a status out. No torch, no
// exceptions. The operator's definition and its letters are those of motet/attention/attention.h.
namespace motet::cpu {

enum class Type : uint8_t { float32, bfloat16, float16 };

/// Numbers [B, rows, heads, width]; strides in elements, the last dimension is contiguous.
struct Operand {
  const void* data = nullptr;
  Type type = Type::float32;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;
};

// Parts of a head mix, in the order of the operator's table.
inline constexpr int kWeight = 0, kQueryDown = 1, kQueryUp = 2, kQueryGate = 3, kQueryFull = 4, kKeyDown = 5,
                     kKeyUp = 6, kKeyGate = 7, kKeyFull = 8, kNumParts = 9;

/// float32 numbers [B, rows, ...], contiguous within a sequence; weight is [N,M] and has no batch.
struct MixTensor {
  const float* data = nullptr;
  int64_t batch_stride = 0;
};

/// A head mix; absent parts are null, and nothing at all passes the input through. Ranks from 1 to 8.
struct HeadMix {
  bool identity = false;
  std::array<MixTensor, kNumParts> part;
  int64_t query_rank = 0, key_rank = 0;

  bool has(int which) const { return part[which].data != nullptr; }
  bool any_part() const;
};

/// lambda of the pairs mix, expanded to [B,T,Ho] by strides (0 where it does not vary); null: no pairs.
struct Pairs {
  const float* lambda = nullptr;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;
};

struct Problem {
  int64_t B = 0, T = 0, S = 0, D = 0, E = 0;
  int64_t score_heads = 0, softmax_heads = 0, output_heads = 0, key_heads = 0, value_heads = 0;
  Operand q, k, v;
  std::vector<int64_t> key_of, value_of;  // which stored head a score (output) head reads
  HeadMix pre, post;
  Pairs pairs;  // stands alone in the post mix
  double scale = 1;
  bool causal = false;
  int64_t window = 0;                                                              // 0: none
  const int64_t *query_start = nullptr, *key_begin = nullptr, *key_end = nullptr;  // [B]; null: S - T, 0, S
  const int64_t* documents = nullptr;                                              // [B,S]
};

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
  std::array<float*, kNumParts> pre{}, post{};
};

enum class Instructions : uint8_t { best, avx2, avx512, avx512_bf16 };

/// Results do not depend on the threads, bit for bit; they do on the instructions.
struct Runtime {
  Threads threads;
  Instructions instructions = Instructions::best;
};

enum class Status : uint8_t { ok, out_of_memory, no_instructions };

/// The instruction sets of `Instructions` that this CPU has, worst first; empty: the fused kernels cannot run.
std::vector<Instructions> available_instructions();
const char* name(Instructions);

Status forward(const Problem&, const Output&, const Runtime&);
Status backward(const Problem&, const Incoming&, const Gradients&, const Runtime&);
/// Phase 1 of a split over keys: lse [B,Ha,T] of these keys.
Status lse(const Problem&, float* lse, const Runtime&);
/// Phase 2: out [B,T,Ho,E] of these keys under the lse of all parts.
Status given_lse(const Problem&, const float* lse, void* out, const Runtime&);

}  // namespace motet::cpu
