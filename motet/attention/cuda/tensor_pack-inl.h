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

/// The numbers of a part at a row; 0 where the part is not there, or belongs to a key that may not be read.
struct PartRow {
  const void* data;
  plain::Type type;
  int64_t first;
  bool there, vectors;
  MOTET_DEVICE PartRow(const Sight& sight, const Mix& m, int part, int row) {
    const plain::MixTensor& t = m.part[part];
    data = t.data, type = t.type, there = t.data && (!plain::by_key(part) || sight.reads(row));
    first = part == kWeight ? 0 : sight.b * t.batch_stride + row * t.row_stride;
    vectors = reinterpret_cast<uintptr_t>(data) % 16 == 0 && first % kVector == 0;
  }
  MOTET_DEVICE float operator()(int at) const { return there ? load(data, type, first + at) : 0; }
  /// Numbers [at, at + count), count at most kHeads, then 0.
  MOTET_DEVICE void read(float* to, int at, int count) const {
    if (there && vectors && count == kHeads) {
      MOTET_UNROLL
      for (int i = 0; i < kHeads; i += kVector) load_all<kVector>(data, type, first + at + i, to + i);
      return;
    }
    MOTET_UNROLL
    for (int i = 0; i < kHeads; ++i) to[i] = i < count ? (*this)(at + i) : 0;
  }
};

/// Row n of the matrix of an own row: everything static and everything of its side. `to` is 0.
template <bool kOwnKeys>
MOTET_DEVICE void matrix_row(float* to, const Sight& sight, bool post, int row, int unit, int n) {
  const Args& a = sight.a;
  const Mix& mix = post ? a.post : a.pre;
  if (post && a.pairs.lambda) {
    const int head = unit * kHeads / 2 + n / 2;
    if (head >= a.output_heads) return;
    const float x =
        n % 2 == 0
            ? 1
            : -a.pairs.lambda[sight.b * a.pairs.batch_stride + row * a.pairs.row_stride + head * a.pairs.head_stride];
    MOTET_UNROLL
    for (int m = 0; m < kHeads / 2; ++m) to[m] = n / 2 == m ? x : 0;
    return;
  }
  if (!mix.any) {
    MOTET_UNROLL
    for (int m = 0; m < kHeads; ++m) to[m] = n == m ? 1 : 0;
    return;
  }
  if (n >= mix.in) return;
  const int down = kOwnKeys ? kKeyDown : kQueryDown, rank = kOwnKeys ? mix.key_rank : mix.query_rank;
  const PartRow weight(sight, mix, kWeight, row), full(sight, mix, down + 3, row), gate(sight, mix, down + 2, row),
      downs(sight, mix, down, row), ups(sight, mix, down + 1, row);
  const float diagonal = (mix.identity ? 1.f : 0.f) + (n < mix.out ? gate(n) : 0.f);
  MOTET_UNROLL
  for (int m = 0; m < kHeads; ++m) to[m] = n == m && m < mix.out ? diagonal : 0;
  float row_of[kHeads];
  const auto add = [&](const PartRow& part, int at, float factor) {
    part.read(row_of, at, mix.out);
    MOTET_UNROLL
    for (int m = 0; m < kHeads; ++m) to[m] = fmaf(factor, row_of[m], to[m]);
  };
  if (weight.there) add(weight, n * mix.out, 1);
  if (full.there) add(full, n * mix.out, 1);
  for (int r = 0; r < rank; ++r) add(ups, r * mix.out, downs(r * mix.in + n));
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
  float made[kHeads] = {};
  if (row < (kOwnKeys ? p.a.S : p.a.T)) matrix_row<kOwnKeys>(made, Sight(p.a, b), post != 0, row, unit, n);
  const float factor = post ? 1.f : p.pre_factor;
  uint32_t to[kHeads / 2];
  MOTET_UNROLL
  for (int m = 0; m < kHeads / 2; ++m) to[m] = pack_float16(factor * made[2 * m], factor * made[2 * m + 1]);
  auto* const at = reinterpret_cast<uint4*>(
      p.matrices + (((static_cast<int64_t>(unit) * 2 + post) * p.a.B + b) * p.own_rows + row) * kMatrixBytes + n * 32);
  MOTET_UNROLL
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
  MOTET_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int row = tile * kLoop + (l >> 2) + (i & 1) * 8, h = (l & 3) * 2 + (i >> 1) * 8;
    const PartRow numbers(sight, mix, part, row);
    const bool any = row < (kOwnKeys ? p.a.T : p.a.S) && (quantity == 4 || r < rank);
    const int at = (quantity == 4 ? 0 : r * heads) + h;
    to[i] =
        pack_float16(any && h < heads ? factor * numbers(at) : 0, any && h + 1 < heads ? factor * numbers(at + 1) : 0);
  }
  reinterpret_cast<uint4*>(p.loop_mix)[place] = {to[0], to[1], to[2], to[3]};
}

/// dout_scale: the power of 2 that brings a sequence's max |dout| to 4..8. Blocks look for the largest number of some
/// rows each, a row a warp, then one block for the largest of theirs.
struct Scale {
  plain::Operand dout;
  int T, heads, width, blocks;  // blocks of a sequence
  float* largest;               // [B,blocks]
  float* scale;                 // [B]
};
inline constexpr int kScaleBlocks = 528, kScaleRows = kFlatThreads / 32;  // about; rows of a block at once

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
  const int vectors = s.width / kVector;  // of a head
  const int64_t sequence = blockIdx.x / s.blocks;
  for (int row = blockIdx.x % s.blocks * kScaleRows + threadIdx.x / 32; row < s.T; row += s.blocks * kScaleRows) {
    const int64_t first = sequence * s.dout.batch_stride + row * s.dout.row_stride;
    for (int i = threadIdx.x % 32; i < s.heads * vectors; i += 32) {
      float x[kVector];
      load_all<kVector>(s.dout.data, s.dout.type, first + i / vectors * s.dout.head_stride + i % vectors * kVector, x);
      MOTET_UNROLL
      for (int k = 0; k < kVector; ++k) mine = larger_or_nan(mine, fabsf(x[k]));
    }
  }
  mine = largest_of_block(mine);
  if (threadIdx.x == 0) s.largest[blockIdx.x] = mine;
}
MOTET_KERNEL(kFlatThreads)
scale_dout(const MOTET_PARAMETER Scale s) {
  float mine = 0;
  for (int i = threadIdx.x; i < s.blocks; i += kFlatThreads)
    mine = larger_or_nan(mine, s.largest[blockIdx.x * s.blocks + i]);
  mine = largest_of_block(mine);
  if (threadIdx.x == 0) s.scale[blockIdx.x] = mine > 0 && mine < INFINITY ? exp2f(3 - ceilf(log2f(mine))) : 1;
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
  float of[kHeads], to[kHeads];  // this head's row and column
  MOTET_UNROLL
  for (int m = 0; m < kHeads; m += 4) read_vector(d + n * kHeads + m, of + m);
  MOTET_UNROLL
  for (int m = 0; m < kHeads; ++m) to[m] = d[m * kHeads + n];
  const int down = kOwnKeys ? kKeyDown : kQueryDown, rank = kOwnKeys ? mix.key_rank : mix.query_rank;
  const int64_t at = static_cast<int64_t>(b) * rows + row;
  const Sight sight(s.a, b);
  const PartRow downs(sight, mix, down, row), ups(sight, mix, down + 1, row);
  float* const* const gradients = s.to[post];
  for (int r = 0; r < rank; ++r) {
    float across = 0, along = 0, up[kHeads], down_of[kHeads];
    ups.read(up, r * mix.out, mix.out);
    downs.read(down_of, r * mix.in, mix.in);
    MOTET_UNROLL
    for (int m = 0; m < kHeads; ++m) across = fmaf(of[m], up[m], across), along = fmaf(to[m], down_of[m], along);
    if (gradients[down] && n < mix.in) gradients[down][(at * rank + r) * mix.in + n] = across;
    if (gradients[down + 1] && n < mix.out) gradients[down + 1][(at * rank + r) * mix.out + n] = along;
  }
  if (gradients[down + 2] && n < mix.out) gradients[down + 2][at * mix.out + n] = d[n * kHeads + n];
  if (!gradients[down + 3] || n >= mix.in) return;
  MOTET_UNROLL
  for (int m = 0; m < kHeads; ++m)
    if (m < mix.out) gradients[down + 3][(at * mix.in + n) * mix.out + m] = of[m];
}

/// Gradients of the static weights: sums over all rows, in two steps of a fixed order. A block of the first sums
/// kSumEach rows of a sequence; a thread is an entry. The second begins when all is known that makes a sequence unsafe.
struct WeightSum {
  Args a;
  const float* from;  // [B,own_rows][2 mixes][16][16]
  float* partial;     // [B,blocks][2 mixes][16][16]
  int own_rows, blocks;
  const int* unsafe;  // sequences that are left out
  float* to[2];
  bool any() const { return to[0] || to[1]; }
};
inline constexpr int kSumEach = 64, kChains = 4;  // an addition waits for the one before it in its chain

/// x(0) + ... + x(count - 1), in an order of its own.
template <class Number>
MOTET_DEVICE float sum_of(int count, const Number& x) {
  float sums[kChains] = {};
  for (int i = 0; i < count; i += kChains) {
    MOTET_UNROLL
    for (int k = 0; k < kChains; ++k)
      if (i + k < count) sums[k] += x(i + k);
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}
/// Block (sequence and rows, 1, mix).
MOTET_KERNEL(kFlatThreads)
sum_weights(const MOTET_PARAMETER WeightSum s) {
  const int b = blockIdx.x / s.blocks, first = blockIdx.x % s.blocks * kSumEach, post = blockIdx.z;
  const float* from = s.from + ((static_cast<int64_t>(b) * s.own_rows + first) * 2 + post) * kFlatThreads + threadIdx.x;
  s.partial[(static_cast<int64_t>(blockIdx.x) * 2 + post) * kFlatThreads + threadIdx.x] =
      sum_of(smaller(kSumEach, s.a.T - first), [&](int row) { return from[row * 2 * kFlatThreads]; });
}
/// Block (1, 1, mix).
MOTET_KERNEL(kFlatThreads)
join_weights(const MOTET_PARAMETER WeightSum s) {
  const int n = threadIdx.x / kHeads, m = threadIdx.x % kHeads, post = blockIdx.z;
  const Mix& mix = post ? s.a.post : s.a.pre;
  if (!s.to[post] || n >= mix.in || m >= mix.out) return;
  float sum = 0;
  for (int b = 0; b < s.a.B; ++b) {
    const float* from = s.partial + (static_cast<int64_t>(b) * s.blocks * 2 + post) * kFlatThreads + threadIdx.x;
    if (!s.unsafe[b]) sum += sum_of(s.blocks, [&](int block) { return from[block * 2 * kFlatThreads]; });
  }
  s.to[post][n * mix.out + m] = sum;
}

}  // namespace motet::cuda::tensor
