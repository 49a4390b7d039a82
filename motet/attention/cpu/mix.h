#pragma once
#include <vector>

#include "motet/attention/cpu/plan.h"

// A head mix as the skeletons see it: functions on a tile and the sizes of two bands of numbers, one that belongs to
// the queries of a sub-block and one that belongs to the keys of a tile. The skeletons know no mix by name.
namespace motet::cpu {

/// Per-row, per-head numbers are kept as [row pair][head, padded][2], so that one vector holds whole reductions.
inline int64_t padded_heads(int64_t heads) { return round_up(heads, 8); }
inline int64_t pair_place(int64_t row, int64_t head, int64_t heads) {
  return ((row / 2) * padded_heads(heads) + head) * 2 + row % 2;
}

/// One application to rows x columns of a tile [heads][8][keys]. Loops hold a copy of it: a store of a vector may alias
/// anything that is reached through a reference, and would have it read again.
struct MixTile {
  const float* in;
  float* out;           // may be `in` where the mix works in place
  const float* factor;  // [heads in][8] multiplies the input first; null: 1
  const float* rows;    // row band of the sub-block
  const float* keys;    // key band at the tile's first column
  float* scratch;
  int num_rows, columns;
};

/// The softmax that a pre mix stands before: P of a tile, and of each row, as pairs of rows, 1 / Z and D / Z, where
/// Z = sum P and D = sum P dP. dL = P / Z (dP - D / Z): weights made from a rounded lse sum to 1 only nearly, and
/// without Z what is missing would come back multiplied by the scores.
struct SoftmaxTile {
  const float *weights, *inverse, *sums;
};

/// Backward of one application; every gradient is added to what its band holds.
struct MixBackTile {
  const float* in;  // the input of the mix
  float* grad;      // the gradient of its output; with `softmax` of the weights behind it, and is overwritten
  const SoftmaxTile* softmax;
  float* out;       // its output again; null where it is not wanted
  float* dx;        // receives the gradient of the input; may be `in` or, where that works in place, `grad`
  float* row_sums;  // sum over columns of in * dx, as pairs of rows; null where it is not wanted
  const float* rows;
  const float* keys;
  float* row_gradients;  // band of the sub-block
  float* key_gradients;  // band at the tile's first column
  float* scratch;
  int num_rows, columns;
};

/// Where to gather the bands from and to scatter their gradients to.
struct BandPlace {
  int64_t b, t0, s0;                     // sequence, first query, first key
  int count;                             // real rows (keys); those beyond it are padding
  int64_t readable0 = 0, readable1 = 0;  // keys: what lies outside [s0 + readable0, s0 + readable1) reads as 0
};

struct Mix {
  MixKind kind = MixKind::none;
  int in = 0, out = 0;           // heads
  int first_out = 0;             // of the unit's outputs, for pairs
  bool in_place = true;          // out may be in; else the skeleton gives scratch
  int64_t row_band = 0;          // floats a sub-block
  int64_t key_numbers = 0;       // numbers a key
  int64_t row_gradients = 0;     // floats a sub-block
  int64_t shared_gradients = 0;  // floats a block, the same for all its queries
  int64_t scratch = 0;           // floats
  const HeadMix* parts = nullptr;
  const Pairs* pairs = nullptr;
  int64_t query_ranks = 0, key_ranks = 0;  // as kept in the bands
  std::vector<int32_t> key_places;  // in the key band, of the numbers of all key-side parts, one part after another
  bool per_row = true;              // dense: each row has a matrix of its own

  void (*apply_wide)(const Mix&, const MixTile&) = nullptr;    // on tiles of kForwardKeys
  void (*apply_narrow)(const Mix&, const MixTile&) = nullptr;  // on tiles of kBackwardKeys
  void (*backward)(const Mix&, const MixBackTile&) = nullptr;  // on tiles of kBackwardKeys

  bool passes() const { return kind == MixKind::none; }
  bool backward_in_place() const { return in_place && in == out; }  // dx may be grad
};

}  // namespace motet::cpu
