// Every other mix: a matrix over heads, [N,M], the same for all queries (talking heads) or one a query (static, gates,
// low rank and full rank of the query side folded together), and the parts of the key side.
//
//   y_m = sum_n x_n (matrix[t,n,m] + full[s,n,m]) + x_m gate[s,m] + sum_r (sum_n x_n down[s,r,n]) up[s,r,m]
//
// Row band: matrix [N,M] and its transpose, once or for each of 8 rows. Key band: [down R N][up R M][gate M][full N M].
#if defined(MOTET_CPU_MIX_DENSE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_MIX_DENSE_INL_H
#undef MOTET_CPU_MIX_DENSE_INL_H
#else
#define MOTET_CPU_MIX_DENSE_INL_H
#endif

#include <algorithm>

#include "motet/attention/cpu/mix.h"
#include "motet/attention/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// y[m] = sum_n x[n] matrix[n][m] on tiles; matrices of rows `row_step` floats apart (0: one for all).
struct DenseProduct {
  const float* x;
  int n;
  float* y;
  int m;
  const float* matrix;
  int64_t row_step;
  int rows, columns;
};

template <int kKeys, int kM>
HWY_INLINE void dense_block(const DenseProduct& p, int row, int column, int m) {
  constexpr int kR = kMixRows, kV = kMixVectors;
  constexpr int64_t head = int64_t{kRows} * kKeys;
  const float* x = p.x + row * kKeys + column;
  const float* const w = p.matrix + row * p.row_step + m;
  Vec sum[kM][kR][kV];
  MOTET_UNROLL(4)
  for (int o = 0; o < kM; ++o)
    MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) sum[o][i][j] = zero();
  for (int n = 0; n < p.n; ++n) {
    Vec v[kR][kV];
    MOTET_UNROLL(2)
    for (int i = 0; i < kR; ++i)
      MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) v[i][j] = load(x + n * head + i * kKeys + j * kLanes);
    MOTET_UNROLL(4) for (int o = 0; o < kM; ++o) MOTET_UNROLL(2) for (int i = 0; i < kR; ++i) {
      const Vec s = set(w[i * p.row_step + n * p.m + o]);
      MOTET_UNROLL(2) for (int j = 0; j < kV; ++j) sum[o][i][j] = fma(v[i][j], s, sum[o][i][j]);
    }
  }
  MOTET_UNROLL(4)
  for (int o = 0; o < kM; ++o) MOTET_UNROLL(2)
  for (int i = 0; i < kR; ++i) MOTET_UNROLL(2)
  for (int j = 0; j < kV; ++j) store(p.y + (m + o) * head + (row + i) * kKeys + column + j * kLanes, sum[o][i][j]);
}

template <int kKeys>
HWY_INLINE void dense_product(const DenseProduct& p) {
  for (int column = 0; column < p.columns; column += kMixVectors * kLanes)
    for (int row = 0; row < p.rows; row += kMixRows) {
      int m = 0;
      for (; m + 4 <= p.m; m += 4) dense_block<kKeys, 4>(p, row, column, m);
      for (; m < p.m; ++m) dense_block<kKeys, 1>(p, row, column, m);
    }
}

/// The parts of a key band at one column; null where absent.
struct DenseKeys {
  const float *down, *up, *gate, *full;
};

template <int kKeys>
HWY_INLINE DenseKeys dense_keys(const Mix& mix, const float* band) {
  const int64_t n = mix.in, m = mix.out, r = mix.key_ranks;
  const float* up = band + r * n * kKeys;
  const float* gate = up + r * m * kKeys;
  const bool has_gate = mix.parts->has(kKeyGate);
  return {band, up, has_gate ? gate : nullptr, mix.parts->has(kKeyFull) ? gate + (has_gate ? m * kKeys : 0) : nullptr};
}

/// y += the key-side parts of x, of one vector of one row; `transposed` takes gradients back from outputs to inputs.
template <int kKeys>
HWY_INLINE void dense_add_keys(const Mix& mix, const float* x, float* y, const DenseKeys& k, bool transposed) {
  constexpr int64_t head = int64_t{kRows} * kKeys;
  const int from = transposed ? mix.out : mix.in, to = transposed ? mix.in : mix.out;
  const float* down = transposed ? k.up : k.down;
  const float* up = transposed ? k.down : k.up;
  for (int r = 0; r < mix.key_ranks; ++r) {
    Vec hidden = zero();
    for (int n = 0; n < from; ++n) hidden = fma(load(x + n * head), load(down + (r * from + n) * kKeys), hidden);
    for (int m = 0; m < to; ++m) store(y + m * head, fma(hidden, load(up + (r * to + m) * kKeys), load(y + m * head)));
  }
  if (k.gate)
    for (int m = 0; m < to; ++m)
      store(y + m * head, fma(load(x + m * head), load(k.gate + m * kKeys), load(y + m * head)));
  if (!k.full) return;
  for (int m = 0; m < to; ++m) {
    Vec sum = load(y + m * head);
    for (int n = 0; n < from; ++n) {
      const int64_t at = transposed ? int64_t{m} * mix.out + n : int64_t{n} * mix.out + m;
      sum = fma(load(x + n * head), load(k.full + at * kKeys), sum);
    }
    store(y + m * head, sum);
  }
}

template <int kKeys>
HWY_INLINE void dense_add_key_parts(const Mix& mix, const MixTile t, bool transposed) {
  if (!mix.key_numbers) return;
  for (int j = 0; j < t.columns; j += kLanes) {
    const DenseKeys k = dense_keys<kKeys>(mix, t.keys + j);
    for (int r = 0; r < t.num_rows; ++r)
      dense_add_keys<kKeys>(mix, t.in + r * kKeys + j, t.out + r * kKeys + j, k, transposed);
  }
}

template <int kKeys>
HWY_NOINLINE void dense_apply(const Mix& mix, const MixTile& tile) {
  const MixTile t = tile;
  const int64_t numbers = int64_t{mix.in} * mix.out;
  DenseProduct p{t.in, mix.in, t.out, mix.out, t.rows, mix.per_row ? 2 * numbers : 0, t.num_rows, t.columns};
  if (t.factor && mix.key_numbers) {  // the key side reads the scaled input too
    float* x = const_cast<float*>(t.in);
    for (int n = 0; n < mix.in; ++n)
      for (int r = 0; r < t.num_rows; ++r) {
        const Vec f = set(t.factor[n * kRows + r]);
        float* row = x + (n * kRows + r) * kKeys;
        for (int j = 0; j < t.columns; j += kLanes) store(row + j, hn::Mul(f, load(row + j)));
      }
  } else if (t.factor) {  // cheaper on the matrices: in x out numbers a row, not in x columns
    for (int r = 0; r < t.num_rows; ++r)
      for (int n = 0; n < mix.in; ++n)
        for (int m = 0; m < mix.out; ++m)
          t.scratch[r * numbers + n * mix.out + m] =
              p.matrix[r * p.row_step + n * mix.out + m] * t.factor[n * kRows + r];
    p.matrix = t.scratch, p.row_step = numbers;
  }
  dense_product<kKeys>(p);
  dense_add_key_parts<kKeys>(mix, t, false);
}

// Blocks of kBlockN x 4 heads of the outer product of x and g: as many sums as a vector has lanes.
constexpr int kBlockN = kLanes / 4, kBlockM = 4;

HWY_INLINE void outer_block(const MixBackTile t, const int64_t* n_at, const int64_t* m_at, int row, Vec* sum) {
  for (int j = 0; j < t.columns; j += kLanes) {
    Vec x[kBlockN];
    MOTET_UNROLL(4) for (int n = 0; n < kBlockN; ++n) x[n] = load(t.in + n_at[n] + row * kBackwardKeys + j);
    MOTET_UNROLL(4) for (int m = 0; m < kBlockM; ++m) {
      const Vec g = load(t.grad + m_at[m] + row * kBackwardKeys + j);
      MOTET_UNROLL(4) for (int n = 0; n < kBlockN; ++n) sum[n * kBlockM + m] = fma(x[n], g, sum[n * kBlockM + m]);
    }
  }
}

/// Adds sum over columns (and rows, where the matrix is shared) of x_n g_m. Shared gradients stay vectors of lanes.
HWY_INLINE void dense_outer(const Mix& mix, const MixBackTile t) {
  constexpr int64_t head = int64_t{kRows} * kBackwardKeys;
  float* to = t.row_gradients;
  for (int n0 = 0; n0 < mix.in; n0 += kBlockN)
    for (int m0 = 0; m0 < mix.out; m0 += kBlockM) {
      int64_t n_at[kBlockN], m_at[kBlockM];  // heads beyond the last repeat it; nobody reads their sums
      for (int n = 0; n < kBlockN; ++n) n_at[n] = std::min(n0 + n, mix.in - 1) * head;
      for (int m = 0; m < kBlockM; ++m) m_at[m] = std::min(m0 + m, mix.out - 1) * head;
      Vec sum[kLanes];
      if (mix.per_row) {
        for (int row = 0; row < t.num_rows; ++row, to += kLanes) {
          MOTET_UNROLL(16) for (int i = 0; i < kLanes; ++i) sum[i] = zero();
          outer_block(t, n_at, m_at, row, sum);
          store(to, hn::Add(load(to), reduce_each(sum, SumOf())));
        }
        to += (kRows - t.num_rows) * kLanes;
      } else {
        MOTET_UNROLL(16) for (int i = 0; i < kLanes; ++i) sum[i] = load(to + i * kLanes);
        for (int row = 0; row < t.num_rows; ++row) outer_block(t, n_at, m_at, row, sum);
        MOTET_UNROLL(16) for (int i = 0; i < kLanes; ++i) store(to + i * kLanes, sum[i]);
        to += kLanes * kLanes;
      }
    }
}

HWY_INLINE void add_product(float* to, Vec a, Vec b) { store(to, fma(a, b, load(to))); }

/// Gradients of the key-side parts.
HWY_INLINE void dense_key_gradients(const Mix& mix, const MixBackTile t) {
  constexpr int kKeys = kBackwardKeys;
  constexpr int64_t head = int64_t{kRows} * kKeys;
  for (int j = 0; j < t.columns; j += kLanes) {
    const DenseKeys k = dense_keys<kKeys>(mix, t.keys + j), d = dense_keys<kKeys>(mix, t.key_gradients + j);
    const auto at = [](const float* p) { return const_cast<float*>(p); };
    for (int row = 0; row < t.num_rows; ++row) {
      const float* x = t.in + row * kKeys + j;
      const float* g = t.grad + row * kKeys + j;
      for (int r = 0; r < mix.key_ranks; ++r) {
        Vec hidden = zero(), back = zero();
        for (int n = 0; n < mix.in; ++n)
          hidden = fma(load(x + n * head), load(k.down + (r * mix.in + n) * kKeys), hidden);
        for (int m = 0; m < mix.out; ++m) back = fma(load(g + m * head), load(k.up + (r * mix.out + m) * kKeys), back);
        for (int n = 0; n < mix.in; ++n) add_product(at(d.down) + (r * mix.in + n) * kKeys, load(x + n * head), back);
        for (int m = 0; m < mix.out; ++m) add_product(at(d.up) + (r * mix.out + m) * kKeys, load(g + m * head), hidden);
      }
      for (int m = 0; d.gate && m < mix.out; ++m)
        add_product(at(d.gate) + m * kKeys, load(x + m * head), load(g + m * head));
      for (int n = 0; d.full && n < mix.in; ++n)
        for (int m = 0; m < mix.out; ++m)
          add_product(at(d.full) + (int64_t{n} * mix.out + m) * kKeys, load(x + n * head), load(g + m * head));
    }
  }
}

/// Adds sum over columns of a * b for `heads` tiles to a list of row pairs.
HWY_NOINLINE void add_row_sums(const float* a, const float* b, int heads, int rows, int columns, float* list) {
  constexpr int kKeys = kBackwardKeys;
  for (int first = 0; first < heads * kRows; first += kLanes) {
    Vec sum[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      sum[i] = zero();
      const int64_t row = first + i;
      if (row >= heads * kRows || row % kRows >= rows) continue;
      for (int j = 0; j < columns; j += kLanes)
        sum[i] = fma(load(a + row * kKeys + j), load(b + row * kKeys + j), sum[i]);
    }
    HWY_ALIGN float reduced[kLanes];
    store(reduced, reduce_each(sum, SumOf()));
    for (int i = 0; i < kLanes && first + i < heads * kRows; ++i)
      list[pair_place((first + i) % kRows, (first + i) / kRows, heads)] += reduced[i];
  }
}

/// The gradient of weights to that of the logits before the softmax, in place.
HWY_NOINLINE void softmax_backward(const SoftmaxTile& softmax, float* grad, int heads, int rows) {
  constexpr int kKeys = kBackwardKeys;
  for (int h = 0; h < heads; ++h)
    for (int r = 0; r < rows; ++r) {
      const int64_t at = (h * int64_t{kRows} + r) * kKeys, pair = pair_place(r, h, heads);
      const Vec inverse = set(softmax.inverse[pair]), d = set(softmax.sums[pair]);
      MOTET_UNROLL(4)
      for (int j = 0; j < kKeys; j += kLanes) {
        const Vec weight = hn::Mul(load(softmax.weights + at + j), inverse);
        store(grad + at + j, hn::Mul(weight, hn::Sub(load(grad + at + j), d)));
      }
    }
}

HWY_NOINLINE void dense_backward(const Mix& mix, const MixBackTile& tile) {
  const MixBackTile t = tile;
  constexpr int kKeys = kBackwardKeys;
  if (t.softmax) softmax_backward(*t.softmax, t.grad, mix.out, t.num_rows);
  const int64_t numbers = int64_t{mix.in} * mix.out, step = mix.per_row ? 2 * numbers : 0;
  if (t.out) {
    dense_product<kKeys>({t.in, mix.in, t.out, mix.out, t.rows, step, t.num_rows, t.columns});
    dense_add_key_parts<kKeys>(mix, {t.in, t.out, nullptr, t.rows, t.keys, nullptr, t.num_rows, t.columns}, false);
  }
  dense_outer(mix, t);
  if (mix.key_numbers) dense_key_gradients(mix, t);
  dense_product<kKeys>({t.grad, mix.out, t.dx, mix.in, t.rows + numbers, step, t.num_rows, t.columns});
  dense_add_key_parts<kKeys>(mix, {t.grad, t.dx, nullptr, t.rows, t.keys, nullptr, t.num_rows, t.columns}, true);
  if (t.row_sums) add_row_sums(t.in, t.dx, mix.in, t.num_rows, t.columns, t.row_sums);
}

inline void set_dense_mix(Mix& mix) {
  const HeadMix& parts = *mix.parts;
  const int64_t n = mix.in, m = mix.out;
  mix.per_row = parts.has(kQueryDown) || parts.has(kQueryGate) || parts.has(kQueryFull);
  mix.in_place = false;
  mix.row_band = 2 * n * m * (mix.per_row ? kRows : 1);
  mix.key_ranks = parts.has(kKeyDown) ? parts.key_rank : 0;
  mix.key_numbers = mix.key_ranks * (n + m) + (parts.has(kKeyGate) ? m : 0) + (parts.has(kKeyFull) ? n * m : 0);
  const int64_t blocks = (n + kBlockN - 1) / kBlockN * ((m + kBlockM - 1) / kBlockM);
  (mix.per_row ? mix.row_gradients : mix.shared_gradients) = blocks * kLanes * (mix.per_row ? kRows : kLanes);
  mix.scratch = kRows * n * m;
  mix.apply_wide = dense_apply<kForwardKeys>;
  mix.apply_narrow = dense_apply<kBackwardKeys>;
  mix.backward = dense_backward;
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
