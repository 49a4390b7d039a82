// Products of a few rows with a cache as it lies in memory, of any stored type: numbers are widened in registers, and a
// row is read once for all heads that share it.
#if defined(MOTET_CPU_DECODE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_DECODE_ROWS_INL_H
#undef MOTET_CPU_DECODE_ROWS_INL_H
#else
#define MOTET_CPU_DECODE_ROWS_INL_H
#endif

#include "motet/attention/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// Rows of one stored head: `count` of them from `data` on. What lies `ahead` numbers further is fetched meanwhile (0:
/// nothing), for a head's rows are pieces too short for the hardware to look ahead.
template <class T>
struct StoredRows {
  const T* data;
  int64_t stride, count, width, ahead;
  const float* scales;  // int8 alone: of row i at i * scale_stride
  int64_t scale_stride;

  HWY_INLINE const T* row(int64_t i) const { return data + i * stride; }
  HWY_INLINE float scale(int64_t i) const {
    if constexpr (std::is_same_v<T, int8_t>) return scales[i * scale_stride];
    return 1;
  }
  HWY_INLINE void fetch(const T* row) const {
    constexpr int64_t kLine = 64 / sizeof(T);
    if (ahead)
      for (int64_t n = 0; n < width; n += kLine) __builtin_prefetch(row + ahead + n, 0, 2);
  }
};

/// One query against the rows, or one row of weights of them.
struct RowPair {
  const float* from;
  float* to;
};

constexpr int kSharedRows = kRegisters / 8;  // that are computed at once: half the registers hold 4 sums of each

// scores[i] = rows i . query for kR queries and up to kLanes rows, four at once; the width is a multiple of the lanes.
template <class T, int kR>
HWY_INLINE void dot_block(const StoredRows<T>& x, int64_t first, const RowPair* pairs, bool fetch) {
  constexpr int kAtOnce = kR == 1 ? 2 : 4;
  Vec both[kR][kLanes / 2];
  const int64_t count = std::min<int64_t>(x.count - first, kLanes);
  for (int64_t l = 0; l < static_cast<int64_t>(kLanes); l += kAtOnce) {
    const T* row[kAtOnce];
    Vec sum[kR * kAtOnce];
    each<kAtOnce>([&](auto i) MOTET_INLINED {
      row[i] = x.row(first + std::min<int64_t>(l + i, count - 1));
      if (fetch) x.fetch(row[i]);
    });
    each<kR * kAtOnce>([&](auto i) MOTET_INLINED { sum[i] = zero(); });
    for (int64_t d = 0; d < x.width; d += kLanes) {
      Vec a[kAtOnce];
      each<kAtOnce>([&](auto i) MOTET_INLINED { a[i] = load(row[i] + d); });
      each<kR>([&](auto r) MOTET_INLINED {
        const Vec query = load(pairs[r].from + d);
        each<kAtOnce>([&](auto i) MOTET_INLINED {
          constexpr int at = r() * kAtOnce + i();
          sum[at] = fma(a[i], query, sum[at]);
        });
      });
    }
    each<kR>([&](auto r) MOTET_INLINED {
      constexpr int at = r() * kAtOnce;
      each<kAtOnce / 2>([&](auto i) MOTET_INLINED {
        both[r][l / 2 + i()] = reduce_two(sum[at + 2 * i()], sum[at + 2 * i() + 1], SumOf());
      });
    });
  }
  each<kR>([&](auto r) MOTET_INLINED {
    HWY_ALIGN float dots[kLanes];
    store(dots, reduce_pairs(both[r], SumOf()));
    for (int64_t i = 0; i < count; ++i) pairs[r].to[first + i] = dots[i] * x.scale(first + i);
  });
}

// to += weights . rows of kC vectors of columns, for kR rows of weights. One row alone is added in two chains, because
// an addition waits four cycles for the one before.
template <class T, int kR, int kC>
HWY_INLINE void weigh_block(const StoredRows<T>& x, int64_t column, const RowPair* pairs, bool fetch) {
  constexpr int kChains = kR * kC < 8 ? 2 : 1;
  Vec sum[kChains][kR][kC];
  MOTET_UNROLL(2)
  for (int c = 0; c < kChains; ++c)
    MOTET_UNROLL(4) for (int r = 0; r < kR; ++r) MOTET_UNROLL(4) for (int j = 0; j < kC; ++j) sum[c][r][j] = zero();
  const auto add = [&](int chain, int64_t i) HWY_ATTR {
    const T* const row = x.row(i) + column;
    if (fetch) x.fetch(row);
    Vec v[kC];
    MOTET_UNROLL(4) for (int j = 0; j < kC; ++j) v[j] = load(row + j * kLanes);
    const float scale = x.scale(i);
    MOTET_UNROLL(4) for (int r = 0; r < kR; ++r) {
      const Vec w = set(pairs[r].from[i] * scale);
      MOTET_UNROLL(4) for (int j = 0; j < kC; ++j) sum[chain][r][j] = fma(w, v[j], sum[chain][r][j]);
    }
  };
  int64_t i = 0;
  for (; i + kChains <= x.count; i += kChains) MOTET_UNROLL(2) for (int c = 0; c < kChains; ++c) add(c, i + c);
  for (; i < x.count; ++i) add(0, i);
  MOTET_UNROLL(4) for (int r = 0; r < kR; ++r) MOTET_UNROLL(4) for (int j = 0; j < kC; ++j) {
    const Vec both = kChains == 2 ? hn::Add(sum[0][r][j], sum[kChains - 1][r][j]) : sum[0][r][j];
    float* const to = pairs[r].to + column + j * kLanes;
    store(to, hn::Add(load(to), both));
  }
}

template <class T, int kR>
HWY_INLINE void weigh_columns(const StoredRows<T>& x, const RowPair* pairs, bool fetch) {
  int64_t column = 0;
  for (; column + 4 * kLanes <= x.width; column += 4 * kLanes)
    weigh_block<T, kR, 4>(x, column, pairs, fetch && column == 0);
  for (; column < x.width; column += kLanes) weigh_block<T, kR, 1>(x, column, pairs, fetch && column == 0);
}

// f(std::integral_constant kR, first) over blocks of kSharedRows rows, then of one.
template <class Action>
HWY_INLINE void in_blocks(int rows, const Action& f) {
  int first = 0;
  for (; first + kSharedRows <= rows; first += kSharedRows) f(std::integral_constant<int, kSharedRows>(), first);
  if (kSharedRows > 3 && rows - first == 3) return f(std::integral_constant<int, 3>(), first);
  for (; first + 2 <= rows; first += 2) f(std::integral_constant<int, 2>(), first);
  if (first < rows) f(std::integral_constant<int, 1>(), first);
}

/// to[i] = rows i . from, of each pair.
template <class T>
HWY_NOINLINE void dot_rows(const StoredRows<T>& rows, const RowPair* pairs, int count) {
  const StoredRows<T> x = rows;
  for (int64_t i = 0; i < x.count; i += kLanes)
    in_blocks(count, [&](auto width, int first)
                         HWY_ATTR { dot_block<T, decltype(width)::value>(x, i, pairs + first, first == 0); });
}

/// to[column] += sum over i of from[i] * rows i, of each pair.
template <class T>
HWY_NOINLINE void weigh_rows(const StoredRows<T>& rows, const RowPair* pairs, int count) {
  const StoredRows<T> x = rows;
  in_blocks(count, [&](auto width, int first)
                       HWY_ATTR { weigh_columns<T, decltype(width)::value>(x, pairs + first, first == 0); });
}

/// f(first, end) over runs of heads that read one stored head.
template <class Action>
HWY_INLINE void each_run(const std::vector<int64_t>& stored, const Action& f) {
  const int64_t heads = static_cast<int64_t>(stored.size());
  for (int64_t h = 0, end; h < heads; h = end) {
    for (end = h + 1; end < heads && stored[end] == stored[h];) ++end;
    f(h, end);
  }
}

/// Rows of heads, and what becomes of them: where those of head 0 begin, and numbers from head to head and row to row.
struct HeadRows {
  const float* from;
  int64_t from_head, from_row;
  float* to;
  int64_t to_head, to_row;
};

/// f(pairs, count) over `rows` (1 or 2) rows of heads [h, end), as many at once as the list holds.
template <class Action>
HWY_INLINE void each_pairs(const HeadRows& x, int64_t h, int64_t end, int rows, const Action& f) {
  constexpr int kMost = 32;
  RowPair pairs[kMost];
  int count = 0;
  for (; h < end; ++h) {
    for (int r = 0; r < rows; ++r)
      pairs[count++] = {x.from + h * x.from_head + r * x.from_row, x.to + h * x.to_head + r * x.to_row};
    if (count + 2 > kMost || h + 1 == end) f(pairs, count), count = 0;
  }
}

/// f(rows of their type) on rows [keys) of a stored head.
template <class Action>
HWY_INLINE void with_stored_rows(const Operand& x, int64_t b, int64_t head, Span keys, int64_t width, int64_t ahead,
                                 const Action& f) {
  const int64_t start = b * x.batch_stride + head * x.head_stride + keys.begin * x.row_stride,
                count = keys.end - keys.begin, further = ahead * x.row_stride;
  const auto as = [&](auto* data) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(data)>;
    f(StoredRows<std::remove_const_t<T>>{data + start, x.row_stride, count, width, further,
                                         x.scale_of(b, keys.begin, head), x.scale_row});
  };
  if (x.type == Type::float32)
    as(static_cast<const float*>(x.data));
  else if (x.type == Type::bfloat16)
    as(static_cast<const hwy::bfloat16_t*>(x.data));
  else if (x.type == Type::float16)
    as(static_cast<const hwy::float16_t*>(x.data));
  else
    as(static_cast<const int8_t*>(x.data));
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
