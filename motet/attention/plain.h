#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "motet/core/number_type.h"

// A problem of composed attention in plain numbers: what kernels without torch take, on any device. The operator's
// definition and its letters are those of attention.h.
namespace motet {

// Parts of a head mix, in the order of the operator's table (parts.h).
inline constexpr int kWeight = 0, kQueryDown = 1, kQueryUp = 2, kQueryGate = 3, kQueryFull = 4, kKeyDown = 5,
                     kKeyUp = 6, kKeyGate = 7, kKeyFull = 8, kNumMixParts = 9;

namespace plain {

using Type = NumberType;

/// Numbers [B, rows, heads, width]; strides in elements, the last dimension is contiguous. int8 (k and v alone, of
/// kernels that say so): a row of a head stands for its scale times its numbers; scales [B, rows, heads], heads without
/// gaps.
struct Operand {
  const void* data = nullptr;
  Type type = Type::float32;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;
  const float* scale = nullptr;
  int64_t scale_batch = 0, scale_row = 0;

  const float* scale_of(int64_t b, int64_t row, int64_t head) const {
    return scale ? scale + b * scale_batch + row * scale_row + head : nullptr;
  }
};

/// Numbers [B, rows, ...], contiguous within a row: rows of several parts may lie side by side. weight is [N,M] and has
/// neither batch nor rows. int8 (of the key side alone, of kernels that say so): each row of a part (part_size) stands
/// for its scale times its numbers; scales [B, rows, the part's rows], the last without gaps.
struct MixTensor {
  const void* data = nullptr;
  int64_t batch_stride = 0, row_stride = 0;
  Type type = Type::float32;
  const float* scale = nullptr;
  int64_t scale_batch = 0, scale_row = 0;

  const float* floats() const { return static_cast<const float*>(data); }
  const float* scale_of(int64_t b, int64_t row) const {
    return scale ? scale + b * scale_batch + row * scale_row : nullptr;
  }
};

/// A head mix; absent parts are null, and nothing at all passes the input through.
struct HeadMix {
  bool identity = false;
  std::array<MixTensor, kNumMixParts> part;
  int64_t query_rank = 0, key_rank = 0;

  bool has(int which) const { return part[which].data != nullptr; }
  bool any_part() const {
    return std::any_of(part.begin(), part.end(), [](const MixTensor& t) { return t.data != nullptr; });
  }
};

/// What a part of a mix from n to m heads holds of one query or key (kWeight: in all).
struct PartSize {
  int64_t rows, columns;
  int64_t numbers() const { return rows * columns; }
};
inline PartSize part_size(const HeadMix& mix, int part, int64_t n, int64_t m) {
  switch (part) {
    case kQueryDown:
      return {mix.query_rank, n};
    case kQueryUp:
      return {mix.query_rank, m};
    case kKeyDown:
      return {mix.key_rank, n};
    case kKeyUp:
      return {mix.key_rank, m};
    case kQueryGate:
    case kKeyGate:
      return {1, m};
    default:
      return {n, m};
  }
}
/// Whether a part has a row for each query (each key); the others are kWeight.
constexpr bool by_query(int part) { return part >= kQueryDown && part <= kQueryFull; }
constexpr bool by_key(int part) { return part >= kKeyDown; }

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

}  // namespace plain
}  // namespace motet
