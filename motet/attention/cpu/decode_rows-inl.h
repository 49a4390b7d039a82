// Products of a few rows with a cache as it lies in memory, of any stored type: numbers are widened in registers, and a
// row is read once for all heads that share it.
#if defined(MOTET_CPU_DECODE_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_DECODE_ROWS_INL_H
#undef MOTET_CPU_DECODE_ROWS_INL_H
#else
#define MOTET_CPU_DECODE_ROWS_INL_H
#endif

#include "motet/attention/cpu/pack-inl.h"
#include "motet/core/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

using namespace motet::HWY_NAMESPACE::sums;

/// Rows of one stored head: `count` of them, at most a tile, from data on.
template <class T>
struct StoredRows {
  const T* data;
  int64_t stride, count, width;
  int64_t behind;       // rows of the head from data on: what may be asked for
  const float* scales;  // int8 alone: of row i at i * scale_stride
  int64_t scale_stride;

  HWY_INLINE const T* row(int64_t i) const { return data + i * stride; }
};

/// One query against the rows, or one row of weights of them.
struct RowPair {
  const float* from;
  float* to;
};

// Rows of queries or weights that meet those of a cache at once: their sums and what is loaded fill the registers.
constexpr int kSharedRows = kRegisters == 16 ? 3 : 4;
// Rows of a cache that meet kR queries at once, how far ahead rows are asked for, and how many of values at once. With
// 16 registers this was measured on a Zen 3, with 32 on a Zen 4.
template <int kR>
constexpr int kAtOnce = kR == 1 && kRegisters == 32 ? 2 : 4;
template <class T>
constexpr int64_t kRowsAhead = kRegisters == 16 ? 32 / sizeof(T) : kForwardKeys;
constexpr int kAskedAtOnce = kRegisters == 16 ? 4 : 1;

// Some columns of the row that comes so far behind row i.
template <class T>
HWY_INLINE void ask_ahead(const StoredRows<T>& x, int64_t i, int64_t column, int64_t columns) {
  constexpr int64_t kLine = 64 / sizeof(T);
  if (i + kRowsAhead<T> >= x.behind) return;
  const T* const next = x.row(i + kRowsAhead<T>) + column;
  for (int64_t n = 0; n < columns; n += kLine) __builtin_prefetch(next + n, 0, kRegisters == 16 ? 3 : 2);
}

// scores[first + i] = row (first + i) . query for kR queries and `some` rows, at most kAtOnce; the width is a multiple
// of the lanes.
template <int kR, class T>
HWY_INLINE void dot_block(const StoredRows<T>& x, int64_t first, int64_t some, const RowPair* pairs) {
  constexpr int kRows = kAtOnce<kR>;
  const T* row[kRows];
  Vec sum[kR * kRows];
  each<kRows>([&](auto i) MOTET_INLINED { row[i] = x.row(first + std::min<int64_t>(i, some - 1)); });
  each<kR * kRows>([&](auto i) MOTET_INLINED { sum[i] = zero(); });
  const auto step = [&](int64_t d) MOTET_INLINED {
    Vec query[kR];
    each<kR>([&](auto r) MOTET_INLINED { query[r] = load(pairs[r].from + d); });
    each<kRows>([&](auto i) MOTET_INLINED {
      Vec a = load(row[i] + d);
      in_a_register(a);
      each<kR>([&](auto r) MOTET_INLINED { add_product(sum[r * kRows + i], a, query[r]); });
    });
  };
  int64_t d = 0;
  for (; d + 2 * kLanes <= x.width; d += 2 * kLanes) step(d), step(d + kLanes);
  if (d < x.width) step(d);
  each<kR>([&](auto r) MOTET_INLINED {
    const auto product = [&](int i) MOTET_INLINED { return i < kRows ? sum[r() * kRows + i] : zero(); };
    float* const to = pairs[r].to + first;
    if (some == 4) return sums_of_lanes(product(0), product(1), product(2), product(3), to);
    float dots[4];
    sums_of_lanes(product(0), product(1), product(2), product(3), dots);
    std::copy_n(dots, some, to);
  });
}

// to += weights . rows of kC vectors of columns, for kR rows of weights. Few sums are made in two chains, because an
// addition waits four cycles for the one before.
template <int kR, int kC, class T>
HWY_INLINE void weigh_block(const StoredRows<T>& x, int64_t column, const RowPair* pairs, bool ask) {
  constexpr int kSums = kR * kC, kChains = kSums < 8 ? 2 : 1;
  Vec sum[kChains * kSums];
  each<kChains * kSums>([&](auto i) MOTET_INLINED { sum[i] = zero(); });
  const T* row = x.data + column;
  const auto add = [&](auto chain, int64_t i) MOTET_INLINED {
    if (ask && i % kAskedAtOnce == 0)
      each<kAskedAtOnce>([&](auto n) MOTET_INLINED { ask_ahead(x, i + n(), column, kC * kLanes); });
    Vec w[kR];
    each<kR>([&](auto r) MOTET_INLINED { w[r] = set(pairs[r].from[i]); });
    each<kC>([&](auto j) MOTET_INLINED {
      Vec v = load(row + j * kLanes);
      in_a_register(v);
      each<kR>([&](auto r) MOTET_INLINED { add_product(sum[(chain() * kR + r()) * kC + j()], v, w[r]); });
    });
    row += x.stride;
  };
  int64_t i = 0;
  for (; i + kChains <= x.count; i += kChains) each<kChains>([&](auto n) MOTET_INLINED { add(n, i + n()); });
  for (; i < x.count; ++i) add(std::integral_constant<int, 0>(), i);
  each<kSums>([&](auto at) MOTET_INLINED {
    const Vec all = kChains == 2 ? hn::Add(sum[at], sum[(kChains - 1) * kSums + at]) : sum[at];
    float* const to = pairs[at / kC].to + column + at % kC * kLanes;
    store(to, hn::Add(load(to), all));
  });
}

template <int kR, class T>
HWY_INLINE void weigh_columns(const StoredRows<T>& x, const RowPair* pairs, bool ask) {
  constexpr int kMost = kR == 1 && kRegisters == 16 ? 8 : 4;
  int64_t column = 0;
  const auto rest = [&](auto vectors) HWY_ATTR {
    constexpr int kC = vectors();
    for (; column + kC * kLanes <= x.width; column += kC * kLanes) weigh_block<kR, kC>(x, column, pairs, ask);
  };
  rest(std::integral_constant<int, kMost>());
  if (kMost > 4) rest(std::integral_constant<int, 4>());
  rest(std::integral_constant<int, 1>());
}

// f(std::integral_constant kR, first) over blocks of `rows`, at most kSharedRows each; four are not three and one.
template <class Action>
HWY_INLINE void in_blocks(int rows, const Action& f) {
  int first = 0;
  for (; rows - first >= kSharedRows && (kSharedRows != 3 || rows - first != 4); first += kSharedRows)
    f(std::integral_constant<int, kSharedRows>(), first);
  if (kSharedRows > 3 && rows - first == 3) return f(std::integral_constant<int, 3>(), first);
  for (; first + 2 <= rows; first += 2) f(std::integral_constant<int, 2>(), first);
  if (first < rows) f(std::integral_constant<int, 1>(), first);
}

// Numbers of the rows, each times its row's scale; rows that have none stay as they are.
template <class T>
class Scaled {
 public:
  explicit Scaled(const StoredRows<T>& x) : count_(x.count) {
    if constexpr (kScaled)
      for (int64_t i = 0; i < count_; ++i) scales_[i] = x.scales[i * x.scale_stride];
  }
  HWY_INLINE void scale(const float* from, float* to) const {
    if constexpr (kScaled)
      for (int64_t i = 0; i < count_; ++i) to[i] = from[i] * scales_[i];
  }
  static constexpr bool kScaled = std::is_same_v<T, int8_t>;

 private:
  int64_t count_;
  float scales_[kScaled ? kForwardKeys : 1];
};

/// to[i] = row i . from, of each pair.
template <class T>
HWY_NOINLINE void dot_rows(const StoredRows<T>& rows, const RowPair* pairs, int count) {
  const StoredRows<T> x = rows;
  in_blocks(count, [&](auto width, int first) HWY_ATTR {
    constexpr int kR = decltype(width)::value, kRows = kAtOnce<kR>;
    for (int64_t i = 0; i < x.count; i += kRows) {
      if (first == 0) each<kRows>([&](auto n) MOTET_INLINED { ask_ahead(x, i + n(), 0, x.width); });
      dot_block<kR>(x, i, std::min<int64_t>(kRows, x.count - i), pairs + first);
    }
  });
  const Scaled<T> scaled(x);
  for (int r = 0; r < count; ++r) scaled.scale(pairs[r].to, pairs[r].to);
}

/// to[column] += sum over i of from[i] * row i, of each pair.
template <class T>
HWY_NOINLINE void weigh_rows(const StoredRows<T>& rows, const RowPair* pairs, int count) {
  const StoredRows<T> x = rows;
  const Scaled<T> scaled(x);
  in_blocks(count, [&](auto width, int first) HWY_ATTR {
    constexpr int kR = decltype(width)::value;
    if constexpr (Scaled<T>::kScaled) {
      float weights[kR][kForwardKeys];
      RowPair of[kR];
      each<kR>([&](auto r) MOTET_INLINED {
        of[r] = {weights[r], pairs[first + r].to};
        scaled.scale(pairs[first + r].from, weights[r]);
      });
      weigh_columns<kR>(x, of, first == 0);
    } else {
      weigh_columns<kR>(x, pairs + first, first == 0);
    }
  });
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

/// f(rows of their type) on rows [keys) of a stored head, which has those before `end`.
template <class Action>
HWY_INLINE void with_stored_rows(const Operand& x, int64_t b, int64_t head, Span keys, int64_t end, int64_t width,
                                 const Action& f) {
  const int64_t start = b * x.batch_stride + head * x.head_stride + keys.begin * x.row_stride,
                count = keys.end - keys.begin;
  const auto as = [&](auto* data) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(data)>;
    f(StoredRows<std::remove_const_t<T>>{data + start, x.row_stride, count, width, end - keys.begin,
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
