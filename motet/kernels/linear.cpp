// Compiled once for each instruction set.
#include "motet/core/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "motet/kernels/linear.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "motet/core/each-inl.h"
#include "motet/core/sums-inl.h"
#include "motet/kernels/linear.h"
#include "motet/kernels/share.h"

HWY_BEFORE_NAMESPACE();
namespace motet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using namespace sums;
constexpr int64_t kLanes = HWY_LANES(float);

HWY_INLINE Vec load(const float* p) { return hn::LoadU(Floats(), p); }
HWY_INLINE Vec load(const hwy::bfloat16_t* p) {
  const hn::Rebind<uint16_t, Floats> narrow;
  const hn::RebindToUnsigned<Floats> wide;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const uint16_t*>(p));
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}
HWY_INLINE Vec load(const hwy::float16_t* p) {
  return hn::PromoteTo(Floats(), hn::LoadU(hn::Rebind<hwy::float16_t, Floats>(), p));
}
HWY_INLINE Vec load(const int8_t* p) {
  const hn::Rebind<int8_t, Floats> narrow;
  const hn::RebindToSigned<Floats> wide;
  return hn::ConvertTo(Floats(), hn::PromoteTo(wide, hn::LoadU(narrow, p)));
}

// `count` numbers at most a vector, zeros behind them.
template <class T>
HWY_INLINE Vec load_some(const T* p, int64_t count) {
  if (count == kLanes) return load(p);
  HWY_ALIGN T padded[kLanes] = {};
  for (int64_t k = 0; k < count; ++k) padded[k] = p[k];
  return load(padded);
}

template <int n>
using Count = std::integral_constant<int, n>;

constexpr bool kSixteenRegisters = HWY_ARCH_X86 && kLanes < 16;
// A tile: the most rows of x and of W, and the fewest rows of x that wait for arithmetic rather than for memory.
constexpr int kTileM = kLanes == 16 ? 8 : kSixteenRegisters ? 6 : 4, kTileN = 3, kLeastM = 4;
// Vectors of sums of one product. Two hide the latency of an addition where one row meets another by itself, for which
// short vectors need both.
constexpr int kSums = kSixteenRegisters ? 1 : 24 / (kTileM * kTileN);
constexpr int kStep = 2;  // vectors

// Rows of W of a tile with so many rows of x, whose sums leave registers for what is loaded, of 16 or 32.
constexpr int rows_of_w(int64_t rows_of_x) { return kSixteenRegisters && rows_of_x >= kLeastM ? 2 : kTileN; }

// Rows of x that the next tile takes of M: with sixteen registers, so many that few are not left to the last.
constexpr int64_t rows_of_tile(int64_t M) {
  if (kSixteenRegisters && (M == 5 || M == 9 || M == 13)) return 5;
  if (kSixteenRegisters && (M == 7 || M == 8)) return 4;
  return M >= kTileM ? kTileM : std::min<int64_t>(M, kLeastM);
}
constexpr bool is_tile(int rows) { return rows <= kLeastM || rows == rows_of_tile(rows); }

int64_t tiles_of_x(int64_t M) {
  int64_t tiles = 0;
  for (; M > 0; M -= rows_of_tile(M)) ++tiles;
  return tiles;
}

// Rows of W far apart meet rows of x at addresses that a compiler would each keep in a register, of which there are too
// few: of pointers that it does not know it adds distances to two.
template <class T>
HWY_INLINE void in_two_registers(const T*& w, const float*& x) {
#if HWY_ARCH_X86
  asm("" : "+r"(w), "+r"(x));
#endif
}

// The rows of W of a tile. adjacent: one after another, and the next tile's behind them; asked_again: those are asked
// for once more, into L1, because a CPU may drop what it is asked for. apart: each begins a piece of W of its own and
// is followed there by the next tile's, so that a CPU reads on in several places by itself and nothing is asked for.
enum class Rows { adjacent, asked_again, apart };

// What products ask of memory meanwhile for those behind them: lines of 64 bytes, into L2. Lines that are asked into L1
// take the buffers in which its own misses wait, and products and memory take turns.
struct Fetch {
  const char *next = nullptr, *end = nullptr;
  int64_t step = 0;  // bytes, with every two vectors of a product
};

struct Piece {  // of rows of W and of x
  int64_t begin, end;
};

// Numbers from a row to the one behind it.
struct Layout {
  int64_t K, N;       // of W, which are those of a product, and of y
  int64_t of_x;       // of x
  int64_t apart = 1;  // rows of W from one of a tile to its next
};

// A piece of kN rows of W times those of kM rows of x, added to the sums of a tile.
template <Rows kRows, int kM, int kN, class T>
HWY_INLINE void add_products(Vec (&sum)[kM * kN * kSums], const T* w, const float* x, Layout of, Piece piece,
                             Fetch& fetch) {
  const int64_t apart = (kRows == Rows::apart ? of.apart : 1) * of.K, end = piece.end;
  const auto step = [&](auto load_w, auto load_x, int64_t k, auto i) MOTET_INLINED {
    const T* from_w = w + k;
    const float* from_x = x + k;
    if constexpr (kRows == Rows::apart) in_two_registers(from_w, from_x);
    Vec b[kN];
    each<kN>([&](auto n) MOTET_INLINED { b[n] = load_w(from_w + n * apart); });
    each<kM>([&](auto m) MOTET_INLINED {
      Vec a = load_x(from_x + m * of.of_x);
      if constexpr (kN > 1) in_a_register(a);
      each<kN>([&](auto n) MOTET_INLINED {
        constexpr int at = (m() * kN + n()) * kSums + i() % kSums;
        add_product(sum[at], b[n], a);
      });
    });
  };
  const auto all = [](const auto* p) MOTET_INLINED { return load(p); };
  constexpr Count<0> first;
  constexpr Count<1> second;
  int64_t k = piece.begin;
  const char *line = fetch.next, *until = line;
  if constexpr (kRows == Rows::apart)  // two at once want more registers than there are
    for (; k + kLanes <= end; k += kLanes) step(all, all, k, first);
  for (; k + kStep * kLanes <= end; k += kStep * kLanes) {
    if constexpr (kRows != Rows::apart)
      for (until += fetch.step; line < until && line < fetch.end; line += 64) __builtin_prefetch(line, 0, 2);
    if constexpr (kRows == Rows::asked_again)
      each<kN>([&](auto n) MOTET_INLINED {
        const T* const next = w + (kN + n) * of.K + k;
        __builtin_prefetch(next);
        if constexpr (sizeof(T) == sizeof(float)) __builtin_prefetch(next + kLanes);
      });
    step(all, all, k, first);
    step(all, all, k + kLanes, second);
  }
  fetch.next = line;
  for (; k < end; k += kLanes) {
    const int64_t count = std::min(kLanes, end - k);
    const auto some = [count](const auto* p) MOTET_INLINED { return load_some(p, count); };
    step(some, some, k, first);
  }
}

// y of a tile from its sums.
template <int kM, int kN>
HWY_INLINE void finish(const Vec (&sum)[kM * kN * kSums], float* y, Layout of) {
  constexpr int kProducts = kM * kN;
  const auto product = [&](int i) MOTET_INLINED {
    if (i >= kProducts) return hn::Zero(Floats());
    return kSums == 1 ? sum[i] : hn::Add(sum[i * kSums], sum[i * kSums + kSums - 1]);
  };
  float sums[(kProducts + 3) / 4 * 4];
  each<(kProducts + 3) / 4>([&](auto four) MOTET_INLINED {
    constexpr int i = four() * 4;
    sums_of_lanes(product(i), product(i + 1), product(i + 2), product(i + 3), sums + i);
  });
  each<kProducts>([&](auto i) MOTET_INLINED { y[i / kN * of.N + i % kN * of.apart] = sums[i]; });
}

// kN rows of W times kM rows of x. Each product is summed in the same order whatever kM and kN are.
template <Rows kRows, int kM, int kN, class T>
HWY_INLINE void tile(const T* w, const float* x, float* y, Layout of, Fetch& fetch) {
  Vec sum[kM * kN * kSums];
  each<kM * kN * kSums>([&](auto i) MOTET_INLINED { sum[i] = hn::Zero(Floats()); });
  add_products<kRows, kM, kN>(sum, w, x, of, {0, of.K}, fetch);
  finish<kM, kN>(sum, y, of);
}

// From the first row of W of a tile to that of the next.
template <Rows kRows, int kN>
constexpr int kToNext = kRows == Rows::apart ? 1 : kN;

// Rows that a tile cannot hold in L1 are multiplied in pieces: those of x stay there for a few tiles, whose sums wait
// in memory meanwhile. The order of additions is the same.
constexpr int64_t kLeastTiles = 4, kMostTiles = kSixteenRegisters ? 16 : 8;
constexpr int64_t kWholeBytes = (kSixteenRegisters ? 30 : 35) << 10;
template <class T>
constexpr int64_t numbers(int64_t bytes, int64_t of_x, int64_t of_w) {  // of a row, when so many rows have these bytes
  return bytes / static_cast<int64_t>(of_x * sizeof(float) + of_w * sizeof(T));
}
template <Rows kRows, class T>
constexpr bool in_pieces(int64_t of_x, int64_t of_w, int64_t K) {
  const bool with_next = kSixteenRegisters && kRows == Rows::asked_again;
  return of_x >= kLeastM && K >= numbers<T>(kWholeBytes, of_x, with_next ? 2 * of_w : of_w);
}

template <Rows kRows, int kM, int kN, class T>
HWY_NOINLINE void long_tiles(const T* w, int64_t tiles, const float* x, float* y, Layout of, Fetch& fetch) {
  constexpr int kAll = kM * kN * kSums, kNext = kToNext<kRows, kN>;
  HWY_ALIGN float kept[kMostTiles][kAll * kLanes];
  constexpr int64_t kBytes = kSixteenRegisters && kRows != Rows::apart ? 12 << 10 : 21 << 10;
  constexpr int64_t kPiece = numbers<T>(kBytes, kM, kN);
  const int64_t K = of.K, pieces = (K + kPiece / 2) / kPiece,
                step = (K / pieces / (kStep * kLanes) + 1) * kStep * kLanes;
  for (int64_t k = 0, end; k < K; k = end) {
    end = std::min(K, k + step);
    for (int64_t t = 0; t < tiles; ++t) {
      Vec sum[kAll];
      each<kAll>([&](auto i)
                     MOTET_INLINED { sum[i] = k > 0 ? hn::Load(Floats(), kept[t] + i * kLanes) : hn::Zero(Floats()); });
      add_products<kRows, kM, kN>(sum, w + t * kNext * K, x, of, {k, end}, fetch);
      if (end == K)
        finish<kM, kN>(sum, y + t * kNext, of);
      else
        each<kAll>([&](auto i) MOTET_INLINED { hn::Store(sum[i], Floats(), kept[t] + i * kLanes); });
    }
  }
}

// `count` rows of W times kM rows of x. A function of its own: the compiler keeps the sums of one in registers, not
// those of several.
template <Rows kRows, int kM, int kN, class T>
HWY_NOINLINE void rows_of_x(const T* w, int64_t count, const float* x, float* y, Layout of, Fetch& fetch) {
  constexpr int kNext = kToNext<kRows, kN>;
  const int64_t K = of.K, all = count / kN;
  int64_t t = 0;
  if constexpr (kM >= kLeastM && kN > 1) {
    while (in_pieces<kRows, T>(kM, kN, K) && t < all) {
      const int64_t tiles = std::min(all - t, kMostTiles);
      long_tiles<kRows, kM, kN>(w + t * kNext * K, tiles, x, y + t * kNext, of, fetch);
      t += tiles;
    }
  }
  for (; t < all; ++t) tile<kRows, kM, kN>(w + t * kNext * K, x, y + t * kNext, of, fetch);
  if constexpr (kN > 1)
    for (int64_t n = all * kN; n < count; ++n) tile<kRows, kM, 1>(w + n * K, x, y + n, of, fetch);
}

// A block of W times M rows of x, a tile's at once: W comes from memory once, and from L2 for all tiles but the first.
template <int kMostN, class T>
void block_of_w(const T* w, int64_t count, const float* x, int64_t M, float* y, Layout of, Fetch& fetch) {
  bool first = M >= kLeastM;
  while (M > 0) {
    const int64_t taken = rows_of_tile(M);
    each<kTileM>([&](auto i) {
      constexpr int kM = i() + 1, kN = std::min(kMostN, rows_of_w(kM));
      if constexpr (is_tile(kM))
        if (kM == taken)
          first ? rows_of_x<Rows::asked_again, kM, kN>(w, count, x, y, of, fetch)
                : rows_of_x<Rows::adjacent, kM, kN>(w, count, x, y, of, fetch);
    });
    first = false, M -= taken, x += taken * of.of_x, y += taken * of.N;
  }
}

// Of rows of x that one tile has all products are made while W comes by, once: memory is the limit, and a CPU fetches
// more when it is read in several places. Measured where sixteen registers are, elsewhere they come as blocks.
constexpr bool come_apart(int64_t M) { return kSixteenRegisters && M <= kLeastM; }

template <class T>
void rows_apart(const T* w, int64_t count, const float* x, int64_t M, float* y, Layout of) {
  if constexpr (kSixteenRegisters)
    each<kLeastM>([&](auto i) {
      constexpr int kM = i() + 1, kN = kM <= 2 ? 4 : kM == 3 || sizeof(T) == sizeof(float) ? 3 : 2;
      if (kM != M) return;
      Fetch nothing;
      of.apart = count / kN;
      rows_of_x<Rows::apart, kM, kN>(w, count, x, y, of, nothing);
    });
}

constexpr int64_t kRowsOfX = 128;  // that stay in L2 beside a block

constexpr int64_t kGranule = 6;  // of rows of W that are taken together: whole tiles of two rows and of three

// The rows of W of a block, all of which are asked for while the block before it is used: with few rows of x they come
// as fast as memory gives them, and a stripe's first one has nobody to ask for it.
int64_t block_rows(int64_t M, int64_t row_bytes, bool pieces) {
  const auto granules = [&](int64_t bytes) { return bytes / row_bytes / kGranule; };
  const int64_t most = granules(128 << 10), fit = granules(std::clamp<int64_t>(M * 4 << 10, 16 << 10, 128 << 10));
  const int64_t least = pieces ? std::clamp(most, kLeastTiles * kTileN / kGranule, kMostTiles * kTileN / kGranule) : 1;
  return kGranule * std::max(least, fit);
}

// y[i] * scale[n + i] + bias[n + i], rounded alike everywhere: a compiler may fuse the middle of such a loop and not
// its end.
void scale_and_bias(const Weight& weight, int64_t n, int64_t count, float* y) {
  const auto some = [&](auto d, int64_t i) HWY_ATTR {
    const auto scale = weight.scale ? hn::LoadU(d, weight.scale + n + i) : hn::Set(d, 1);
    const auto bias = weight.bias ? hn::LoadU(d, weight.bias + n + i) : hn::Zero(d);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, y + i), scale, bias), d, y + i);
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) some(Floats(), i);
  for (; i < count; ++i) some(hn::CappedTag<float, 1>(), i);
}

// Rows of W as float32, scaled.
template <class T>
void widen(const Weight& weight, int64_t first, int64_t count, float* to) {
  const Floats d;
  for (int64_t n = first; n < first + count; ++n, to += weight.K) {
    const T* const w = static_cast<const T*>(weight.data) + n * weight.K;
    const Vec scale = hn::Set(d, weight.scale ? weight.scale[n] : 1);
    int64_t k = 0;
    for (; k + kLanes <= weight.K; k += kLanes) hn::StoreU(hn::Mul(load(w + k), scale), d, to + k);
    if (k == weight.K) continue;
    HWY_ALIGN float rest[kLanes];
    hn::Store(hn::Mul(load_some(w + k, weight.K - k), scale), d, rest);
    std::copy_n(rest, weight.K - k, to + k);
  }
}

// A part of the rows of W times M rows of x, `of_x` numbers apart.
template <class T>
void stripe(const LinearTask& task, Share::Part part, const float* x, int64_t M, int64_t of_x) {
  const auto [begin, end, next] = part;
  const Weight& weight = task.weight;
  const int64_t N = weight.N, K = weight.K, row = K * static_cast<int64_t>(sizeof(T));
  const Layout of{.K = K, .N = N, .of_x = of_x};
  const auto at = [&](int64_t n) { return static_cast<const T*>(weight.data) + n * K; };
  const auto finished = [&](int64_t n, int64_t count, float* y, int64_t rows) {
    if (weight.scale || weight.bias)
      for (int64_t r = 0; r < rows; ++r) scale_and_bias(weight, n, count, y + r * N);
  };
  if (come_apart(M)) {
    rows_apart<T>(at(begin), end - begin, x, M, task.y + begin, of);
    return finished(begin, end - begin, task.y + begin, M);
  }
  // One or two rows of x do not fill the time that a row of float32 takes to come: several side by side are only in
  // memory's way.
  const bool row_by_row = M <= 2 && sizeof(T) == sizeof(float);
  const int64_t at_first = rows_of_tile(M);
  const int64_t block = block_rows(M, row, in_pieces<Rows::asked_again, T>(at_first, rows_of_w(at_first), K));
  for (int64_t m = 0; m < M; m += kRowsOfX) {
    const int64_t rows = std::min(kRowsOfX, M - m), at_once = row_by_row ? 1 : rows_of_w(rows_of_tile(rows));
    for (int64_t n = begin; n < end; n += block) {
      const int64_t count = std::min(block, end - n), tiles = (count + at_once - 1) / at_once * tiles_of_x(rows);
      const int64_t steps = std::max<int64_t>(1, K / (kStep * kLanes)) * tiles;
      const auto byte = [&](int64_t i) { return reinterpret_cast<const char*>(at(std::min(i, next))); };
      Fetch fetch{byte(n + block), byte(n + block + count), (count * row / steps + 63) / 64 * 64};
      float* const y = task.y + m * N + n;
      row_by_row ? block_of_w<1>(at(n), count, x + m * of_x, rows, y, of, fetch)
                 : block_of_w<kTileN>(at(n), count, x + m * of_x, rows, y, of, fetch);
      finished(n, count, y, rows);
    }
  }
}

void quantize_row(const float* w, int64_t K, int8_t* values, float* scale) {
  const Floats d;
  const hn::Rebind<int8_t, Floats> narrow;
  Vec largest = hn::Zero(d), nothing = hn::Zero(d);  // nothing: 0, or NaN as soon as a number is not finite
  for (int64_t k = 0; k < K; k += kLanes) {
    const Vec v = load_some(w + k, std::min(kLanes, K - k));
    largest = hn::Max(largest, hn::Abs(v)), nothing = hn::MulAdd(v, hn::Zero(d), nothing);
  }
  const float top = hn::GetLane(hn::MaxOfLanes(d, largest)), zero = hn::GetLane(hn::SumOfLanes(d, nothing));
  *scale = (top > 0 ? top / 127 : 1) + zero;
  for (int64_t k = 0; k < K; k += kLanes) {
    const int64_t count = std::min(kLanes, K - k);
    const Vec steps = hn::Div(load_some(w + k, count), hn::Set(d, *scale));
    HWY_ALIGN int8_t bytes[kLanes];
    hn::Store(hn::DemoteTo(narrow, hn::NearestInt(hn::IfThenElseZero(hn::IsFinite(steps), steps))), narrow, bytes);
    std::copy_n(bytes, count, values + k);
  }
}

// f(a number of the type).
template <class Function>
void with_number(WeightType type, const Function& f) {
  switch (type) {
    case WeightType::float32:
      return f(float());
    case WeightType::bfloat16:
      return f(hwy::bfloat16_t());
    case WeightType::float16:
      return f(hwy::float16_t());
    case WeightType::int8:
      return f(int8_t());
  }
}

void widen_rows(const Weight& weight, int64_t first, int64_t count, float* to) {
  with_number(weight.type, [&](auto number) { widen<decltype(number)>(weight, first, count, to); });
}

void linear_stripe(const LinearTask& task, Share::Part part, const float* x, int64_t M, int64_t of_x) {
  with_number(task.weight.type, [&](auto number) { stripe<decltype(number)>(task, part, x, M, of_x); });
}

}  // namespace motet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "motet/core/aligned.h"
#include "motet/kernels/best.h"
#include "motet/kernels/linear_bytes.h"

namespace motet {
namespace {

constexpr int64_t kWorthAThread = 1 << 15;  // multiplications; less is done before another thread has woken up
constexpr int64_t kWorthAPart = 1 << 18;
constexpr int64_t kMostParts = 8;  // of a share: many rows of x want many of W, which they meet in L2

constexpr int64_t kRowsAtOnce = 512;  // of x, which are copied for the kernels: memory that does not grow with them

bool in_bytes(const LinearTask& task) { return task.weight.type == WeightType::int8 && task.weight.scale; }

// x as the kernels read it.
struct Input {
  const float* x;
  const int8_t* bytes;  // the same rows for weights in 8 bits, or null: those are multiplied as floats too
  int64_t M, K, row;    // row: numbers of x from one row to the next
};

// Rows that begin in the same line of each page want the same few places of L1: they are copied some lines apart.
constexpr int64_t kPage = 4096 / sizeof(float), kGap = 48;

bool in_each_others_way(int64_t M, int64_t K) { return M >= 4 && K % kPage == 0; }

void multiply(std::span<const LinearTask> tasks, const Input& in, const Threads& threads) {
  int64_t rows = 0;
  for (const LinearTask& task : tasks) rows += task.weight.N;
  const int64_t work = rows * in.K * in.M, workers = std::clamp<int64_t>(work / kWorthAThread, 1, threads.count),
                least = std::max(rows * kWorthAPart / std::max<int64_t>(work, 1), rows / (workers * kMostParts)),
                whole = in.bytes ? bytes::block(in.M, in.K) : HWY_NAMESPACE::kGranule,
                part = (least / whole + 1) * whole, space = in.bytes ? (bytes::space(in.M, in.K) + 63) / 64 * 64 : 0;
  const auto spaces = aligned_array<int8_t>(space * workers);
  const auto kernel = MOTET_BEST(linear_stripe);
  const auto compute = [&](Share::Part of, int64_t worker) {  // rows of all tasks, one behind the other
    int8_t* const own = spaces.get() + worker * space;
    for (const LinearTask& task : tasks) {
      const int64_t N = task.weight.N;
      if (of.begin < N && of.end > 0) {
        const Share::Part here{std::max<int64_t>(of.begin, 0), std::min(of.end, N), std::min(of.next, N)};
        if (in.bytes && in_bytes(task))
          bytes::multiply(task, here.begin, here.end, here.next, in.bytes, in.M, own);
        else
          kernel(task, here, in.x, in.M, in.row);
      }
      of.begin -= N, of.end -= N, of.next -= N;
    }
  };
  std::vector<Share> shares(static_cast<size_t>(workers));
  const auto from = [&](int64_t i) { return i < workers ? rows / whole * i / workers * whole : rows; };
  for (int64_t i = 0; i < workers; ++i) shares[i].set(from(i), from(i + 1));
  threads.run(workers, [&](int64_t own) {
    const auto exhaust = [&](auto next) {
      for (Share::Part taken = next(); taken.begin < taken.end; taken = next()) compute(taken, own);
    };
    exhaust([&] { return shares[own].front(part); });
    for (int64_t i = 1; i < workers; ++i) exhaust([&] { return shares[(own + i) % workers].back(part); });
  });
}

}  // namespace

void linear(std::span<const LinearTask> tasks, const float* x, int64_t M, const Threads& threads) {
  if (tasks.empty()) return;
  const int64_t K = tasks.front().weight.K, most = std::min(M, kRowsAtOnce);
  const bool to_bytes = bytes::can_multiply(K) && std::any_of(tasks.begin(), tasks.end(), in_bytes);
  if (!to_bytes && !in_each_others_way(M, K)) return multiply(tasks, {x, nullptr, M, K, K}, threads);
  std::vector<LinearTask> some(tasks.begin(), tasks.end());
  const auto rows = aligned_array<int8_t>(to_bytes ? bytes::size(most, K) : 0);
  const auto apart = aligned_array<float>(to_bytes ? 0 : most * (K + kGap));
  for (int64_t m = 0; m < M; m += kRowsAtOnce, x += kRowsAtOnce * K) {
    const int64_t count = std::min(M - m, kRowsAtOnce), tiles = (count + bytes::kTileRows - 1) / bytes::kTileRows;
    threads.run_parts(tiles, kWorthAThread / (bytes::kTileRows * K), [&](int64_t begin, int64_t end) {
      const int64_t first = begin * bytes::kTileRows, last = std::min(end * bytes::kTileRows, count);
      if (to_bytes) return bytes::split(x, first, last - first, K, rows.get());
      for (int64_t i = first; i < last; ++i) std::copy_n(x + i * K, K, apart.get() + i * (K + kGap));
    });
    multiply(some, to_bytes ? Input{x, rows.get(), count, K, K} : Input{apart.get(), nullptr, count, K, K + kGap},
             threads);
    for (LinearTask& task : some) task.y += count * task.weight.N;
  }
}

void quantize_rows(const float* w, int64_t N, int64_t K, int8_t* values, float* scale) {
  const auto row = MOTET_BEST(quantize_row);
  for (int64_t n = 0; n < N; ++n) row(w + n * K, K, values + n * K, scale + n);
}

void dequantize_rows(const Weight& weight, int64_t first, int64_t count, float* to) {
  MOTET_BEST(widen_rows)(weight, first, count, to);
}

}  // namespace motet
#endif
