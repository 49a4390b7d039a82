#pragma once
#include "motet/attention/cuda/general-inl.h"
#include "motet/attention/cuda/tensor-inl.h"

// From the parts of mixes to what the tensor kernels read, and from the gradients of matrices to those of the parts.
namespace motet::cuda::tensor {

inline constexpr int kFlatThreads = 256;

/// A copy of keys or values in which those that may not be read are 0: tiles are copied whole, and 0 times what lies
/// there may be no number. A thread 8 numbers.
struct Readable {
  Args a;
  plain::Operand from;
  int heads, width;
  void* to;  // [B,S,heads,width]
};
MOTET_KERNEL(kFlatThreads)
copy_readable(const MOTET_PARAMETER Readable r) {
  int64_t x = static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x;
  uint16_t* const to = static_cast<uint16_t*>(r.to) + x * kVector;
  const int column = static_cast<int>(x % (r.width / kVector)) * kVector;
  x /= r.width / kVector;
  const int head = static_cast<int>(x % r.heads);
  x /= r.heads;
  const int row = static_cast<int>(x % r.a.S), b = static_cast<int>(x / r.a.S);
  if (b >= r.a.B) return;
  const auto* const from = static_cast<const uint16_t*>(r.from.data) + b * r.from.batch_stride +
                           row * r.from.row_stride + head * r.from.head_stride + column;
  write16(to, Sight(r.a, b).reads(row) ? read16(from) : uint4{});
}

struct Pack {
  Args a;
  char* matrices;  // [units][2 mixes][B,own_rows]
  char* loop_mix;  // [B,loop_rows/16][2 mixes]
  int own_rows, loop_rows, units;
  float pre_factor;  // of everything before the softmax: scale log2 e / kScoreScale
};

/// One number of a part at a row; 0 where the part is not there, or belongs to a key that may not be read.
MOTET_DEVICE float part_number(const Sight& sight, const Mix& m, int part, int64_t row, int at) {
  const plain::MixTensor& t = m.part[part];
  const int b = sight.b;
  if (!t.data || (plain::by_key(part) && !sight.reads(static_cast<int>(row)))) return 0;
  const int64_t first = part == kWeight ? 0 : b * t.batch_stride + row * general::part_numbers(m, part);
  return general::load(t.data, t.type, first + at);
}

/// Entry (n, m) of the matrix of an own row: everything static and everything of its side.
template <bool kOwnKeys>
MOTET_DEVICE float matrix_entry(const Sight& sight, bool post, int row, int unit, int n, int m) {
  const Args& a = sight.a;
  const int b = sight.b;
  const Mix& mix = post ? a.post : a.pre;
  if (post && a.pairs.lambda) {
    const int head = unit * kHeads / 2 + m;
    if (head >= a.output_heads || n / 2 != m) return 0;
    if (n % 2 == 0) return 1;
    return -a.pairs.lambda[b * a.pairs.batch_stride + row * a.pairs.row_stride + head * a.pairs.head_stride];
  }
  if (!mix.any) return n == m ? 1 : 0;
  if (n >= mix.in || m >= mix.out) return 0;
  const int down = kOwnKeys ? kKeyDown : kQueryDown, rank = kOwnKeys ? mix.key_rank : mix.query_rank;
  float sum = mix.identity && n == m ? 1.f : 0.f;
  sum += part_number(sight, mix, kWeight, row, n * mix.out + m);
  sum += part_number(sight, mix, down + 3, row, n * mix.out + m);
  if (n == m) sum += part_number(sight, mix, down + 2, row, m);
  for (int r = 0; r < rank; ++r)
    sum = fmaf(part_number(sight, mix, down, row, r * mix.in + n),
               part_number(sight, mix, down + 1, row, r * mix.out + m), sum);
  return sum;
}

/// One thread a row of a matrix.
template <bool kOwnKeys>
MOTET_KERNEL(kFlatThreads)
pack_matrices(const MOTET_PARAMETER Pack p) {
  int64_t x = static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x;
  const int n = x % kHeads;
  x /= kHeads;
  const int row = x % p.own_rows;
  x /= p.own_rows;
  const int b = x % p.a.B;
  x /= p.a.B;
  const int post = x % 2, unit = static_cast<int>(x / 2);
  if (unit >= p.units) return;
  const float factor = row < (kOwnKeys ? p.a.S : p.a.T) ? (post ? 1.f : p.pre_factor) : 0.f;
  const Sight sight(p.a, b);
  uint32_t to[kHeads / 2];
  for (int m = 0; m < kHeads; m += 2) {
    float pair[2] = {};
    for (int i = 0; i < 2 && factor != 0; ++i)
      pair[i] = factor * matrix_entry<kOwnKeys>(sight, post != 0, row, unit, n, m + i);
    to[m / 2] = pack_float16(pair[0], pair[1]);
  }
  auto* const at = reinterpret_cast<uint4*>(
      p.matrices + (((static_cast<int64_t>(unit) * 2 + post) * p.a.B + b) * p.own_rows + row) * kMatrixBytes + n * 32);
  for (int i = 0; i < 2; ++i) at[i ^ ((n >> 2) & 1)] = {to[4 * i], to[4 * i + 1], to[4 * i + 2], to[4 * i + 3]};
}

/// One thread 16 bytes: a quantity of a lane.
template <bool kOwnKeys>
MOTET_KERNEL(kFlatThreads)
pack_loop(const MOTET_PARAMETER Pack p) {
  int64_t x = static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x;
  const int64_t place = x;
  const int l = x % 32;
  x /= 32;
  const int quantity = x % 5;
  x /= 5;
  const int post = x % 2;
  x /= 2;
  const int tile = x % (p.loop_rows / kLoop), b = static_cast<int>(x / (p.loop_rows / kLoop));
  if (b >= p.a.B) return;
  const Mix& mix = post ? p.a.post : p.a.pre;
  const int down = kOwnKeys ? kQueryDown : kKeyDown, rank = kOwnKeys ? mix.query_rank : mix.key_rank;
  const int part = quantity < 2 ? down : quantity < 4 ? down + 1 : down + 2, r = quantity % 2;
  const int heads = quantity < 2 ? mix.in : mix.out;
  const float factor = !post && quantity >= 2 ? p.pre_factor : 1.f;
  const Sight sight(p.a, b);
  uint32_t to[4];
  for (int i = 0; i < 4; ++i) {
    const int row = tile * kLoop + (l >> 2) + (i & 1) * 8, h = (l & 3) * 2 + (i >> 1) * 8;
    float pair[2] = {};
    for (int k = 0; k < 2; ++k)
      if (row < (kOwnKeys ? p.a.T : p.a.S) && h + k < heads && (quantity == 4 || r < rank))
        pair[k] = factor * part_number(sight, mix, part, row, (quantity == 4 ? 0 : r * heads) + h + k);
    to[i] = pack_float16(pair[0], pair[1]);
  }
  reinterpret_cast<uint4*>(p.loop_mix)[place] = {to[0], to[1], to[2], to[3]};
}

/// dout_scale: the power of 2 that brings max |dout| to 4..8. Blocks look for the largest number of some rows each,
/// then one block for the largest of theirs.
struct Scale {
  plain::Operand dout;
  int B, T, heads, width, blocks;
  float* largest;  // [blocks]
  float* scale;
};
inline constexpr int kScaleBlocks = 528;

MOTET_DEVICE float larger_or_nan(float x, float y) { return y > x || y != y ? y : x; }
/// The largest of the block's threads' numbers, NaN if one is; for thread 0.
MOTET_DEVICE float largest_of_block(float mine) {
  const Shared<float> all{0};
  all.set(threadIdx.x, mine);
  block_sync();
  for (int i = 1; threadIdx.x == 0 && i < kFlatThreads; ++i) mine = larger_or_nan(mine, all.get(i));
  return mine;
}

MOTET_KERNEL(kFlatThreads)
find_largest(const MOTET_PARAMETER Scale s) {
  float mine = 0;
  for (int row = blockIdx.x; row < s.B * s.T; row += s.blocks)
    for (int i = threadIdx.x; i < s.heads * s.width; i += kFlatThreads)
      mine = larger_or_nan(mine, fabsf(general::load(s.dout, row / s.T, row % s.T, i / s.width, i % s.width)));
  mine = largest_of_block(mine);
  if (threadIdx.x == 0) s.largest[blockIdx.x] = mine;
}
MOTET_KERNEL(kFlatThreads)
scale_dout(const MOTET_PARAMETER Scale s) {
  float mine = 0;
  for (int i = threadIdx.x; i < s.blocks; i += kFlatThreads) mine = larger_or_nan(mine, s.largest[i]);
  mine = largest_of_block(mine);
  if (threadIdx.x == 0) *s.scale = mine > 0 && mine < INFINITY ? exp2f(3 - ceilf(log2f(mine))) : 1;
}

/// Gradients of a side's parts from those of its rows' matrices; one thread a head of a row and mix.
struct Split {
  Args a;
  const float* from;  // [B,own_rows][2 mixes][16][16]
  int own_rows;
  float* to[2][kNumMixParts];
};
template <bool kOwnKeys>
MOTET_KERNEL(kFlatThreads)
split_matrices(const MOTET_PARAMETER Split s) {
  int64_t x = static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x;
  const int n = x % kHeads;
  x /= kHeads;
  const int post = x % 2;
  x /= 2;
  const int rows = kOwnKeys ? s.a.S : s.a.T, row = x % rows, b = static_cast<int>(x / rows);
  const Mix& mix = post ? s.a.post : s.a.pre;
  if (b >= s.a.B || !mix.any) return;
  const float* d = s.from + ((static_cast<int64_t>(b) * s.own_rows + row) * 2 + post) * kHeads * kHeads;
  const int down = kOwnKeys ? kKeyDown : kQueryDown, rank = kOwnKeys ? mix.key_rank : mix.query_rank;
  const int64_t at = static_cast<int64_t>(b) * rows + row;
  const Sight sight(s.a, b);
  for (int r = 0; r < rank; ++r) {
    float across = 0, along = 0;
    for (int m = 0; m < kHeads; ++m) {
      if (m < mix.out)
        across = fmaf(d[n * kHeads + m], part_number(sight, mix, down + 1, row, r * mix.out + m), across);
      if (m < mix.in) along = fmaf(d[m * kHeads + n], part_number(sight, mix, down, row, r * mix.in + m), along);
    }
    if (s.to[post][down] && n < mix.in) s.to[post][down][(at * rank + r) * mix.in + n] = across;
    if (s.to[post][down + 1] && n < mix.out) s.to[post][down + 1][(at * rank + r) * mix.out + n] = along;
  }
  if (s.to[post][down + 2] && n < mix.out) s.to[post][down + 2][at * mix.out + n] = d[n * kHeads + n];
  if (s.to[post][down + 3] && n < mix.in)
    for (int m = 0; m < mix.out; ++m) s.to[post][down + 3][(at * mix.in + n) * mix.out + m] = d[n * kHeads + m];
}

/// Gradients of the static weights: sums over all rows, in two steps of a fixed order. A block of the first sums `each`
/// rows; a thread is an entry.
struct WeightSum {
  Args a;
  const float* from;  // [B,own_rows][2 mixes][16][16]
  float* partial;     // [blocks][2 mixes][16][16]
  int64_t B, T;
  int own_rows;
  const int* unsafe;  // sequences that are left out
  int each, blocks;
  float* to[2];
};
MOTET_KERNEL(kFlatThreads)
sum_weights(const MOTET_PARAMETER WeightSum s) {
  for (int post = 0; post < 2; ++post) {
    float sum = 0;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * s.each;
    for (int64_t row = first; row < first + s.each && row < s.B * s.T; ++row) {
      const int64_t b = row / s.T;
      if (!s.unsafe[b]) sum += s.from[((b * s.own_rows + row % s.T) * 2 + post) * kFlatThreads + threadIdx.x];
    }
    s.partial[(static_cast<int64_t>(blockIdx.x) * 2 + post) * kFlatThreads + threadIdx.x] = sum;
  }
}
MOTET_KERNEL(kFlatThreads)
join_weights(const MOTET_PARAMETER WeightSum s) {
  const int n = threadIdx.x / kHeads, m = threadIdx.x % kHeads;
  for (int post = 0; post < 2; ++post) {
    const Mix& mix = post ? s.a.post : s.a.pre;
    if (!s.to[post] || n >= mix.in || m >= mix.out) continue;
    float sum = 0;
    for (int block = 0; block < s.blocks; ++block)
      sum += s.partial[(static_cast<int64_t>(block) * 2 + post) * kFlatThreads + threadIdx.x];
    s.to[post][n * mix.out + m] = sum;
  }
}

}  // namespace motet::cuda::tensor
