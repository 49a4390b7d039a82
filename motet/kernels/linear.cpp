// Compiled once for each instruction set.
#include "motet/core/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "motet/kernels/linear.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include <algorithm>
#include <atomic>
#include <cstring>

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

constexpr int kSums = 2;  // vectors of sums of one product: they hide the latency of an addition
constexpr bool kManyRegisters = !(HWY_ARCH_X86 && kLanes < 16);

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

// A compiler would load what several products use once for each of them, and loads, not products, would be the limit.
HWY_INLINE void in_a_register(Vec& v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  asm("" : "+v"(v.raw));
#else
  (void)v;
#endif
}

// kN rows of W times kM rows of x: y[m * N + n]. Each product is summed in the same order whatever kM and kN are. What
// lies kAhead bytes behind the rows of W is fetched meanwhile.
template <int kM, int kN, int kAhead, class T>
HWY_INLINE void tile(const T* w, const float* x, int64_t K, float* y, int64_t N) {
  Vec sum[kM][kN][kSums];
#pragma GCC unroll 8
  for (int m = 0; m < kM; ++m)
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) sum[m][n][0] = sum[m][n][1] = hn::Zero(Floats());
  const auto step = [&](auto load_w, auto load_x, int64_t k, int i) HWY_ATTR {
    Vec b[kN];
#pragma GCC unroll 8
    for (int n = 0; n < kN; ++n) {
      b[n] = load_w(w + n * K + k);
      if constexpr (kAhead > 0) __builtin_prefetch(reinterpret_cast<const char*>(w + n * K + k) + kAhead);
    }
#pragma GCC unroll 8
    for (int m = 0; m < kM; ++m) {
      Vec a = load_x(x + m * K + k);
      if constexpr (kN > 1) in_a_register(a);
#pragma GCC unroll 8
      for (int n = 0; n < kN; ++n) sum[m][n][i] = hn::MulAdd(b[n], a, sum[m][n][i]);
    }
  };
  const auto all = [](const auto* p) HWY_ATTR { return load(p); };
  int64_t k = 0;
  for (; k + kSums * kLanes <= K; k += kSums * kLanes) {
    step(all, all, k, 0);
    step(all, all, k + kLanes, 1);
  }
  for (; k < K; k += kLanes) {
    const int64_t count = std::min(kLanes, K - k);
    const auto some = [count](const auto* p) HWY_ATTR { return load_some(p, count); };
    step(some, some, k, 0);
  }
#pragma GCC unroll 8
  for (int n = 0; n < kN; ++n) {
    const auto of = [&](int m) HWY_ATTR {
      return m < kM ? hn::Add(sum[m % kM][n][0], sum[m % kM][n][1]) : hn::Zero(Floats());
    };
    float sums[4];
    sums_of_lanes(of(0), of(1), of(2), of(3), sums);
#pragma GCC unroll 8
    for (int m = 0; m < kM; ++m) y[m * N + n] = sums[m];
  }
}

// kN rows of W times all rows of x: kM of them at once, of what is left half as many, and so on.
template <int kM, int kN, int kAhead, class T>
HWY_INLINE void rows_of_w(const T* w, const float* x, int64_t M, int64_t K, float* y, int64_t N) {
  int64_t m = 0;
  for (; m + kM <= M; m += kM) tile<kM, kN, kAhead>(w, x + m * K, K, y + m * N, N);
  if constexpr (kM > 1) rows_of_w<kM / 2, kN, kAhead>(w, x + m * K, M - m, K, y + m * N, N);
}

constexpr int kTileM = 4, kTileN = kManyRegisters ? 3 : 1;

// Few rows of x: W comes from memory, one pass over it, and arithmetic must hide behind its coming. A CPU asks too late
// for what so many sums use, so it is asked for 8 KB ahead. The fewer sums use a vector of float32, the more rows of W
// side by side get in memory's way; narrower numbers have the time, and a conversion that more sums share.
template <class T>
void few_rows(const T* w, int64_t count, const float* x, int64_t M, int64_t K, float* y, int64_t N) {
  constexpr int kAhead = 8 << 10;
  const int64_t tiles = (M + kTileM - 1) / kTileM, side = sizeof(T) == sizeof(float) || M < kTileM ? tiles : kTileN;
  int64_t n = 0;
  if (side >= kTileN)
    for (; n + kTileN <= count; n += kTileN) rows_of_w<kTileM, kTileN, kAhead>(w + n * K, x, M, K, y + n, N);
  if (kManyRegisters && side == 2)
    for (; n + 2 <= count; n += 2) rows_of_w<kTileM, 2, kAhead>(w + n * K, x, M, K, y + n, N);
  for (; n < count; ++n) rows_of_w<kTileM, 1, kAhead>(w + n * K, x, M, K, y + n, N);
}

// Many rows of x use a block of W several times, from L2. The block behind it is asked for meanwhile, a part with every
// tile, `bytes` from `next` on in all: a product by itself asks too late.
constexpr int64_t kBlockNumbers = 32 << 10;

template <int kM, class T>
HWY_INLINE void rows_of_x(const T* w, int64_t count, const float* x, int64_t K, float* y, int64_t N, const char* next,
                          int64_t bytes) {
  const int64_t part = bytes * kTileN / count;
  int64_t n = 0;
  for (; n + kTileN <= count; n += kTileN, next += part) {
    for (int64_t i = 0; i < part; i += 64) __builtin_prefetch(next + i);
    tile<kM, kTileN, 0>(w + n * K, x, K, y + n, N);
  }
  for (; n < count; ++n) tile<kM, 1, 0>(w + n * K, x, K, y + n, N);
}

template <class T>
void block_of_rows(const T* w, int64_t count, const float* x, int64_t M, int64_t K, float* y, int64_t N, bool last) {
  const char* const next = reinterpret_cast<const char*>(w + count * K);
  const int64_t bytes = last ? 0 : count * K * static_cast<int64_t>(sizeof(T)), tiles = M / kTileM;
  int64_t m = 0;
  for (; m + kTileM <= M; m += kTileM)
    rows_of_x<kTileM>(w, count, x + m * K, K, y + m * N, N, next + m / kTileM * (bytes / tiles), bytes / tiles);
  for (; m < M; ++m) rows_of_x<1>(w, count, x + m * K, K, y + m * N, N, next, 0);
}

constexpr int64_t kRowsOfX = 128;  // that stay in L2 beside a block

// Rows [begin, end) of W.
template <class T>
void stripe(const LinearTask& task, int64_t begin, int64_t end, const float* x, int64_t M) {
  const Weight& weight = task.weight;
  const int64_t N = weight.N, K = weight.K, block = std::max<int64_t>(kTileN, kBlockNumbers / K / kTileN * kTileN);
  for (int64_t m = 0; m < M; m += kRowsOfX) {
    const int64_t rows = std::min(kRowsOfX, M - m);
    for (int64_t n = begin; n < end; n += block) {
      const T* const w = static_cast<const T*>(weight.data) + n * K;
      const int64_t count = std::min(block, end - n);
      float* const y = task.y + m * N + n;
      if (M <= kMaxLinearRows)
        few_rows(w, count, x, M, K, y, N);
      else
        block_of_rows(w, count, x + m * K, rows, K, y, N, n + count == end);
      if (!weight.scale && !weight.bias) continue;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < count; ++i)
          y[r * N + i] =
              y[r * N + i] * (weight.scale ? weight.scale[n + i] : 1) + (weight.bias ? weight.bias[n + i] : 0);
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

void widen_rows(const Weight& weight, int64_t first, int64_t count, float* to) {
  switch (weight.type) {
    case WeightType::float32:
      return widen<float>(weight, first, count, to);
    case WeightType::bfloat16:
      return widen<hwy::bfloat16_t>(weight, first, count, to);
    case WeightType::int8:
      return widen<int8_t>(weight, first, count, to);
  }
}

void linear_stripe(const LinearTask& task, int64_t begin, int64_t end, const float* x, int64_t M) {
  switch (task.weight.type) {
    case WeightType::float32:
      return stripe<float>(task, begin, end, x, M);
    case WeightType::bfloat16:
      return stripe<hwy::bfloat16_t>(task, begin, end, x, M);
    case WeightType::int8:
      return stripe<int8_t>(task, begin, end, x, M);
  }
}

}  // namespace motet::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "motet/kernels/best.h"

namespace motet {
namespace {

constexpr int64_t kWorthATask = 1 << 15;  // multiplications; less is done before another thread has woken up
constexpr int64_t kStripe = 1 << 18;      // of one stripe: a thread that is held up leaves others to the rest
constexpr int64_t kMostStripes = 8;       // for each thread

}  // namespace

void linear(std::span<const LinearTask> tasks, const float* x, int64_t M, const Threads& threads) {
  int64_t rows = 0, work = 0;
  for (const LinearTask& task : tasks) rows += task.weight.N, work += task.weight.N * task.weight.K * M;
  const int64_t workers = std::clamp<int64_t>(work / kWorthATask, 1, threads.count),
                stripes = workers == 1 ? 1 : std::clamp<int64_t>(work / kStripe, workers, workers * kMostStripes);
  const auto kernel = MOTET_BEST(linear_stripe);
  const auto stripe = [&](int64_t i) {
    int64_t begin = rows * i / stripes, end = rows * (i + 1) / stripes;  // of all tasks, one behind the other
    for (const LinearTask& task : tasks) {
      const int64_t N = task.weight.N;
      if (begin < N && end > 0) kernel(task, std::max<int64_t>(begin, 0), std::min(end, N), x, M);
      begin -= N, end -= N;
    }
  };
  std::atomic<int64_t> next{0};
  threads.run(workers, [&](int64_t) {
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < stripes;) stripe(i);
  });
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
