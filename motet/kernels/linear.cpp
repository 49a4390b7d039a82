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
#include "motet/kernels/linear.h"

HWY_BEFORE_NAMESPACE();
namespace motet::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vec = hn::Vec<Floats>;
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
// A tile: the most rows of x and of W, whose sums leave registers for what is loaded, of 16 or 32; and the rows of x
// that a smaller one has, which single rows of x come after.
constexpr int kTileM = kLanes == 16 ? 8 : 4, kTileN = 3, kLeastM = 4;
// Vectors of sums of one product. Two hide the latency of an addition where one row meets another by itself, for which
// short vectors need both.
constexpr int kSums = (kSixteenRegisters ? 12 : 24) / (kTileM * kTileN);
constexpr int kStep = 2;  // vectors

#if HWY_TARGET != HWY_SCALAR
// Blocks of four lanes added up, halves first.
template <class D>
HWY_INLINE void add_blocks(D d, hn::Vec<D> v, float* HWY_RESTRICT sums) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    hn::StoreU(v, d, sums);
  } else {
    const hn::Half<D> half;
    add_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), sums);
  }
}
#endif

// The sums of the lanes of four vectors, each in the same order wherever it stands.
HWY_INLINE void sums_of_lanes(Vec a, Vec b, Vec c, Vec d, float* HWY_RESTRICT sums) {
#if HWY_TARGET == HWY_SCALAR
  sums[0] = hn::GetLane(a), sums[1] = hn::GetLane(b), sums[2] = hn::GetLane(c), sums[3] = hn::GetLane(d);
#else
  const Floats f;
  const hn::Repartition<uint64_t, Floats> pairs;
  const auto halves = [&](Vec u, Vec v) HWY_ATTR {  // of each block of four lanes: u0+u2, v0+v2, u1+u3, v1+v3
    return hn::BitCast(pairs, hn::Add(hn::InterleaveLower(f, u, v), hn::InterleaveUpper(f, u, v)));
  };
  const auto ab = halves(a, b), cd = halves(c, d);
  add_blocks(
      f,
      hn::Add(hn::BitCast(f, hn::InterleaveLower(pairs, ab, cd)), hn::BitCast(f, hn::InterleaveUpper(pairs, ab, cd))),
      sums);
#endif
}

// Rows of W far apart meet rows of x at addresses that a compiler would each keep in a register, of which there are too
// few: of pointers that it does not know it adds distances to two.
template <class T>
HWY_INLINE void in_two_registers(const T*& w, const float*& x) {
#if HWY_ARCH_X86
  asm("" : "+r"(w), "+r"(x));
#endif
}

// A compiler would load what several products use once for each of them, and loads, not products, would be the limit.
HWY_INLINE void in_a_register(Vec& v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  asm("" : "+v"(v.raw));
#else
  (void)v;
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
  int64_t step = 0;   // bytes, with every two vectors of a product
  int64_t apart = 1;  // rows of W from one of a tile to its next
};

// Numbers [begin, end) of kN rows of W times those of kM rows of x, added to the sums of a tile.
template <Rows kRows, int kM, int kN, class T>
HWY_INLINE void add_products(Vec (&sum)[kM * kN * kSums], const T* w, const float* x, int64_t K, int64_t begin,
                             int64_t end, Fetch& fetch) {
  const int64_t apart = kRows == Rows::apart ? fetch.apart * K : K;
  const auto step = [&](auto load_w, auto load_x, int64_t k, auto i) MOTET_INLINED {
    const T* from_w = w + k;
    const float* from_x = x + k;
    if constexpr (kRows == Rows::apart) in_two_registers(from_w, from_x);
    Vec b[kN];
    each<kN>([&](auto n) MOTET_INLINED { b[n] = load_w(from_w + n * apart); });
    each<kM>([&](auto m) MOTET_INLINED {
      Vec a = load_x(from_x + m * K);
      if constexpr (kN > 1) in_a_register(a);
      each<kN>([&](auto n) MOTET_INLINED {
        constexpr int at = (m() * kN + n()) * kSums + i() % kSums;
        sum[at] = hn::MulAdd(b[n], a, sum[at]);
      });
    });
  };
  const auto all = [](const auto* p) MOTET_INLINED { return load(p); };
  constexpr Count<0> first;
  constexpr Count<1> second;
  int64_t k = begin;
  const char *line = fetch.next, *until = line;
  if constexpr (kRows == Rows::apart)  // two at once want more registers than there are
    for (; k + kLanes <= end; k += kLanes) step(all, all, k, first);
  for (; k + kStep * kLanes <= end; k += kStep * kLanes) {
    if constexpr (kRows != Rows::apart)
      for (until += fetch.step; line < until && line < fetch.end; line += 64) __builtin_prefetch(line, 0, 2);
    if constexpr (kRows == Rows::asked_again)
      each<kN>([&](auto n) MOTET_INLINED {
        const T* const next = w + (kN + n) * K + k;
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

// y[m * N + n * apart] of a tile from its sums.
template <int kM, int kN>
HWY_INLINE void finish(const Vec (&sum)[kM * kN * kSums], float* y, int64_t N, int64_t apart) {
  each<kN>([&](auto n) MOTET_INLINED {
    const auto of = [&](int m) MOTET_INLINED {
      const int at = (m % kM * kN + n()) * kSums;
      if (m >= kM) return hn::Zero(Floats());
      return kSums == 1 ? sum[at] : hn::Add(sum[at], sum[at + kSums - 1]);
    };
    float sums[(kM + 3) / 4 * 4];
    each<(kM + 3) / 4>([&](auto four) MOTET_INLINED {
      constexpr int m = four() * 4;
      sums_of_lanes(of(m), of(m + 1), of(m + 2), of(m + 3), sums + m);
    });
    each<kM>([&](auto m) MOTET_INLINED { y[m * N + n * apart] = sums[m]; });
  });
}

// kN rows of W times kM rows of x. Each product is summed in the same order whatever kM and kN are.
template <Rows kRows, int kM, int kN, class T>
HWY_INLINE void tile(const T* w, const float* x, int64_t K, float* y, int64_t N, Fetch& fetch) {
  Vec sum[kM * kN * kSums];
  each<kM * kN * kSums>([&](auto i) MOTET_INLINED { sum[i] = hn::Zero(Floats()); });
  add_products<kRows, kM, kN>(sum, w, x, K, 0, K, fetch);
  finish<kM, kN>(sum, y, N, kRows == Rows::apart ? fetch.apart : 1);
}

// From the first row of W of a tile to that of the next.
template <Rows kRows, int kN>
constexpr int kToNext = kRows == Rows::apart ? 1 : kN;

// Rows that a tile cannot hold in L1 are multiplied in pieces: those of x stay there for a few tiles, whose sums wait
// in memory meanwhile. The order of additions is the same.
constexpr int64_t kLeastTiles = 4, kMostTiles = 8;
template <class T>
constexpr int64_t numbers(int64_t bytes, int64_t M) {  // of a row, when those of a tile have these bytes
  return bytes / static_cast<int64_t>(M * sizeof(float) + kTileN * sizeof(T));
}
template <class T>
constexpr bool in_pieces(int64_t M, int64_t K) {
  return M >= kLeastM && K >= numbers<T>(35 << 10, std::min<int64_t>(M, kTileM));
}

template <Rows kRows, int kM, int kN, class T>
HWY_NOINLINE void long_tiles(const T* w, int64_t tiles, const float* x, int64_t K, float* y, int64_t N, Fetch& fetch) {
  constexpr int kAll = kM * kN * kSums, kNext = kToNext<kRows, kN>;
  HWY_ALIGN float kept[kMostTiles][kAll * kLanes];
  constexpr int64_t kPiece = numbers<T>(21 << 10, kM);
  const int64_t pieces = (K + kPiece / 2) / kPiece, step = (K / pieces / (kStep * kLanes) + 1) * kStep * kLanes;
  for (int64_t k = 0, end; k < K; k = end) {
    end = std::min(K, k + step);
    for (int64_t t = 0; t < tiles; ++t) {
      Vec sum[kAll];
      each<kAll>([&](auto i)
                     MOTET_INLINED { sum[i] = k > 0 ? hn::Load(Floats(), kept[t] + i * kLanes) : hn::Zero(Floats()); });
      add_products<kRows, kM, kN>(sum, w + t * kNext * K, x, K, k, end, fetch);
      if (end == K)
        finish<kM, kN>(sum, y + t * kNext, N, kRows == Rows::apart ? fetch.apart : 1);
      else
        each<kAll>([&](auto i) MOTET_INLINED { hn::Store(sum[i], Floats(), kept[t] + i * kLanes); });
    }
  }
}

// `count` rows of W times kM rows of x. A function of its own: the compiler keeps the sums of one in registers, not
// those of several.
template <Rows kRows, int kM, int kN, class T>
HWY_NOINLINE void rows_of_x(const T* w, int64_t count, const float* x, int64_t K, float* y, int64_t N, Fetch& fetch) {
  constexpr int kNext = kToNext<kRows, kN>;
  const int64_t all = count / kN;
  int64_t t = 0;
  if constexpr (kM >= kLeastM && kN > 1) {
    while (in_pieces<T>(kM, K) && t < all) {
      const int64_t tiles = std::min(all - t, kMostTiles);
      long_tiles<kRows, kM, kN>(w + t * kNext * K, tiles, x, K, y + t * kNext, N, fetch);
      t += tiles;
    }
  }
  for (; t < all; ++t) tile<kRows, kM, kN>(w + t * kNext * K, x, K, y + t * kNext, N, fetch);
  if constexpr (kN > 1)
    for (int64_t n = all * kN; n < count; ++n) tile<kRows, kM, 1>(w + n * K, x, K, y + n, N, fetch);
}

// Rows of W of a tile with so many rows of x: what is converted on its way has the registers of one of three.
template <class T>
constexpr int rows_of_w(int rows_of_x) {
  return kSixteenRegisters && sizeof(T) < sizeof(float) && rows_of_x == kTileM ? kTileN - 1 : kTileN;
}

// A block of W times M rows of x, kTileM at once: W comes from memory once, and from L2 for all rows but the first.
template <int kN, class T>
void block_of_w(const T* w, int64_t count, const float* x, int64_t M, int64_t K, float* y, int64_t N, Fetch& fetch) {
  const auto pass = [&](auto rows, auto again) {
    rows_of_x<again(), rows(), std::min(kN, rows_of_w<T>(rows()))>(w, count, x, K, y, N, fetch);
    M -= rows, x += rows * K, y += rows * N;
  };
  constexpr std::integral_constant<Rows, Rows::asked_again> first;
  constexpr std::integral_constant<Rows, Rows::adjacent> later;
  const bool small = M < kTileM;
  if (M >= kTileM) pass(Count<kTileM>(), first);
  while (M >= kTileM) pass(Count<kTileM>(), later);
  if (M >= kLeastM) small ? pass(Count<kLeastM>(), first) : pass(Count<kLeastM>(), later);
  if (M == 3) pass(Count<3>(), later);
  if (M == 2) pass(Count<2>(), later);
  if (M == 1) pass(Count<1>(), later);
}

// Of rows of x that one tile has all products are made while W comes by, once: memory is the limit, and a CPU fetches
// more when it is read in several places. Measured where sixteen registers are, elsewhere they come as blocks.
constexpr bool come_apart(int64_t M) { return kSixteenRegisters && M <= kTileM; }

template <class T>
void rows_apart(const T* w, int64_t count, const float* x, int64_t M, int64_t K, float* y, int64_t N) {
  if constexpr (kSixteenRegisters) {
    const auto pass = [&](auto rows) {
      constexpr int kN = rows() <= 2 ? 4 : rows_of_w<T>(rows());
      Fetch fetch{.apart = count / kN};
      rows_of_x<Rows::apart, rows(), kN>(w, count, x, K, y, N, fetch);
    };
    if (M == 4) pass(Count<4>());
    if (M == 3) pass(Count<3>());
    if (M == 2) pass(Count<2>());
    if (M == 1) pass(Count<1>());
  }
}

int64_t passes_of(int64_t M) {
  const int64_t rest = M % kTileM;
  return M / kTileM + rest / kLeastM + (rest % kLeastM > 0);
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

// Rows of W in fewer bits that become float32 beside their products, once for all rows of x: where sixteen registers
// leave few for a conversion between products, from the number of rows on at which neither form is the faster one.
constexpr int64_t kWidened = kLeastTiles * kTileN;
bool widens(const Weight& weight, int64_t M) {
  return kSixteenRegisters && weight.type != WeightType::float32 && M > 4 * kTileM;
}

// Rows [begin, end) of W; the caller goes on with those up to `next`. Into `space` they are widened, unless it is null:
// the same products, in the same order.
template <class T>
void stripe(const LinearTask& task, int64_t begin, int64_t end, int64_t next, const float* x, int64_t M, float* space) {
  const Weight& weight = task.weight;
  const int64_t N = weight.N, K = weight.K, row = K * static_cast<int64_t>(sizeof(T));
  const int64_t block = space ? kWidened : block_rows(M, row, in_pieces<T>(M, K));
  // One or two rows of x do not fill the time that a row of float32 takes to come: several side by side are only in
  // memory's way.
  const bool row_by_row = M <= 2 && sizeof(T) == sizeof(float);
  const auto at = [&](int64_t n) { return static_cast<const T*>(weight.data) + n * K; };
  if (come_apart(M)) {
    rows_apart<T>(at(begin), end - begin, x, M, K, task.y + begin, N);
    if (weight.scale || weight.bias)
      for (int64_t r = 0; r < M; ++r) scale_and_bias(weight, begin, end - begin, task.y + r * N + begin);
    return;
  }
  for (int64_t m = 0; m < M; m += kRowsOfX) {
    const int64_t rows = std::min(kRowsOfX, M - m), passes = passes_of(rows);
    const int64_t at_once = row_by_row ? 1 : space || rows < kTileM ? kTileN : rows_of_w<T>(kTileM);
    for (int64_t n = begin; n < end; n += block) {
      const int64_t count = std::min(block, end - n), tiles = (count + at_once - 1) / at_once;
      const int64_t steps = std::max<int64_t>(1, K / (kStep * kLanes)) * tiles * passes;
      const auto byte = [&](int64_t of) { return reinterpret_cast<const char*>(at(std::min(of, next))); };
      Fetch fetch{byte(n + block), byte(n + block + count), (count * row / steps + 63) / 64 * 64};
      float* const y = task.y + m * N + n;
      if (row_by_row) {
        block_of_w<1>(at(n), count, x + m * K, rows, K, y, N, fetch);
      } else if (space) {
        widen<T>({.data = at(n), .K = K}, 0, count, space);
        block_of_w<kTileN>(space, count, x + m * K, rows, K, y, N, fetch);
      } else {
        block_of_w<kTileN>(at(n), count, x + m * K, rows, K, y, N, fetch);
      }
      if (weight.scale || weight.bias)
        for (int64_t r = 0; r < rows; ++r) scale_and_bias(weight, n, count, y + r * N);
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

// The numbers of float32 that `linear_stripe` wants beside it.
int64_t linear_space(const Weight& weight, int64_t M) { return widens(weight, M) ? kWidened * weight.K : 0; }

void linear_stripe(const LinearTask& task, int64_t begin, int64_t end, int64_t next, const float* x, int64_t M,
                   float* space) {
  if (!widens(task.weight, M)) space = nullptr;
  with_number(task.weight.type, [&](auto number) { stripe<decltype(number)>(task, begin, end, next, x, M, space); });
}

}  // namespace motet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "motet/core/aligned.h"
#include "motet/kernels/best.h"
#include "motet/kernels/linear_bytes.h"
#include "motet/kernels/share.h"

namespace motet {
namespace {

constexpr int64_t kWorthAThread = 1 << 15;  // multiplications; less is done before another thread has woken up
constexpr int64_t kWorthAPart = 1 << 18;
constexpr int64_t kMostParts = 8;  // of a share: many rows of x want many of W, which they meet in L2

constexpr int64_t kBytesAtOnce = 512;  // rows of x that are kept as bytes: memory that does not grow with them

bool in_bytes(const LinearTask& task) { return task.weight.type == WeightType::int8 && task.weight.scale; }

// x as the kernels read it.
struct Input {
  const float* x;
  const int8_t* bytes;  // the same rows for weights in 8 bits, or null: those are multiplied as floats too
  int64_t M, K;
};

int64_t space_of_worker(std::span<const LinearTask> tasks, const Input& in) {  // bytes, whole lines of them
  int64_t bytes = in.bytes ? bytes::space(in.M, in.K) : 0;
  for (const LinearTask& task : tasks)
    bytes = std::max<int64_t>(bytes, MOTET_BEST(linear_space)(task.weight, in.M) * sizeof(float));
  return (bytes + 63) / 64 * 64;
}

void multiply(std::span<const LinearTask> tasks, const Input& in, const Threads& threads) {
  int64_t rows = 0;
  for (const LinearTask& task : tasks) rows += task.weight.N;
  const int64_t work = rows * in.K * in.M, workers = std::clamp<int64_t>(work / kWorthAThread, 1, threads.count),
                least = std::max(rows * kWorthAPart / std::max<int64_t>(work, 1), rows / (workers * kMostParts)),
                whole = in.bytes ? bytes::block(in.M, in.K) : HWY_NAMESPACE::kGranule,
                part = (least / whole + 1) * whole, space = space_of_worker(tasks, in);
  const auto spaces = aligned_array<int8_t>(space * workers);
  const auto kernel = MOTET_BEST(linear_stripe);
  const auto compute = [&](Share::Part of, int64_t worker) {  // rows of all tasks, one behind the other
    int8_t* const own = spaces.get() + worker * space;
    for (const LinearTask& task : tasks) {
      const int64_t N = task.weight.N;
      if (of.begin < N && of.end > 0) {
        const int64_t begin = std::max<int64_t>(of.begin, 0), end = std::min(of.end, N), next = std::min(of.next, N);
        if (in.bytes && in_bytes(task))
          bytes::multiply(task, begin, end, next, in.bytes, in.M, own);
        else
          kernel(task, begin, end, next, in.x, in.M, reinterpret_cast<float*>(own));
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
  const int64_t K = tasks.front().weight.K;
  if (!bytes::can_multiply(K) || std::none_of(tasks.begin(), tasks.end(), in_bytes))
    return multiply(tasks, {x, nullptr, M, K}, threads);
  std::vector<LinearTask> some(tasks.begin(), tasks.end());
  const auto rows = aligned_array<int8_t>(bytes::size(std::min(M, kBytesAtOnce), K));
  for (int64_t m = 0; m < M; m += kBytesAtOnce, x += kBytesAtOnce * K) {
    const int64_t count = std::min(M - m, kBytesAtOnce), tiles = (count + bytes::kTileRows - 1) / bytes::kTileRows;
    threads.run_parts(tiles, kWorthAThread / (bytes::kTileRows * K), [&](int64_t begin, int64_t end) {
      const int64_t first = begin * bytes::kTileRows;
      bytes::split(x, first, std::min(end * bytes::kTileRows, count) - first, K, rows.get());
    });
    multiply(some, {x, rows.get(), count, K}, threads);
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
