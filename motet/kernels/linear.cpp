// Compiled once for each instruction set.
#include "motet/core/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "motet/kernels/linear.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/highway.h>

#include <algorithm>
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
constexpr int kBlock = HWY_ARCH_X86 && kLanes < 16 ? 4 : 8;  // rows of x at once: what the registers hold sums of

// One row of W times kM rows of x, each product summed in the same order whatever kM is. The rows of W come one after
// the other: several side by side are streams too short for the hardware to fetch ahead (half the speed).
template <int kM, class T>
HWY_INLINE void row(const T* w, const float* x, int64_t K, float* y) {
  Vec sum[kM][kSums];
#pragma GCC unroll 8
  for (auto& product : sum) product[0] = product[1] = hn::Zero(Floats());
  int64_t k = 0;
  for (; k + kSums * kLanes <= K; k += kSums * kLanes)
#pragma GCC unroll 2
    for (int i = 0; i < kSums; ++i) {
      const Vec a = load(w + k + i * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < kM; ++m) sum[m][i] = hn::MulAdd(a, load(x + m * K + k + i * kLanes), sum[m][i]);
    }
  for (; k < K; k += kLanes) {
    const int64_t count = std::min(kLanes, K - k);
    const Vec a = load_some(w + k, count);
#pragma GCC unroll 8
    for (int m = 0; m < kM; ++m) sum[m][0] = hn::MulAdd(a, load_some(x + m * K + k, count), sum[m][0]);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kM; ++m) y[m] = hn::GetLane(hn::SumOfLanes(Floats(), hn::Add(sum[m][0], sum[m][1])));
}

// Several rows of x take so long for a vector of W that few of its loads are under way at once and memory stands still:
// 13 GB/s in place of 32 for 8 rows in float32 on a Zen 5. So W is first read into L2 at the speed of memory, a block
// at a time (1.55 times the products a second for 8 rows, 1.6 for 16; with 8 bits a number nothing is won).
constexpr int64_t kTouchedBytes = 128 << 10;
constexpr int64_t kTouchedRows = 4;  // of x

HWY_INLINE void touch(const void* begin, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(begin);
  const hn::ScalableTag<uint8_t> d;
  auto all = hn::Zero(d);
  for (size_t i = 0; i + 64 <= bytes; i += 64) all = hn::Or(all, hn::LoadU(d, p + i));
  uint8_t first = hn::GetLane(all);
  asm volatile("" : : "r"(first));
}

// Rows [begin, end) of W.
template <class T>
void stripe(const LinearTask& task, int64_t begin, int64_t end, const float* x, int64_t M) {
  const Weight& weight = task.weight;
  const int64_t N = weight.N, K = weight.K;
  const bool touches = sizeof(T) == sizeof(float) && M >= kTouchedRows;
  const int64_t block = std::max<int64_t>(1, kTouchedBytes / (K * static_cast<int64_t>(sizeof(T))));
  for (int64_t n = begin; n < end; ++n) {
    if (touches && (n - begin) % block == 0)
      touch(static_cast<const T*>(weight.data) + n * K, static_cast<size_t>(std::min(block, end - n) * K) * sizeof(T));
    const T* const w = static_cast<const T*>(weight.data) + n * K;
    float sums[kMaxLinearRows];
    int64_t m = 0;
    for (; m + kBlock <= M; m += kBlock) row<kBlock>(w, x + m * K, K, sums + m);
    for (; m + 2 <= M; m += 2) row<2>(w, x + m * K, K, sums + m);
    for (; m < M; ++m) row<1>(w, x + m * K, K, sums + m);
    const float scale = weight.scale ? weight.scale[n] : 1, bias = weight.bias ? weight.bias[n] : 0;
    for (m = 0; m < M; ++m) task.y[m * N + n] = sums[m] * scale + bias;
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

}  // namespace

void linear(std::span<const LinearTask> tasks, const float* x, int64_t M, const Threads& threads) {
  int64_t rows = 0, work = 0;
  for (const LinearTask& task : tasks) rows += task.weight.N, work += task.weight.N * task.weight.K * M;
  const int64_t stripes = std::clamp<int64_t>(work / kWorthATask, 1, threads.count);
  const auto kernel = MOTET_BEST(linear_stripe);
  threads.run(stripes, [&](int64_t i) {
    int64_t begin = rows * i / stripes, end = rows * (i + 1) / stripes;  // of all tasks, one behind the other
    for (const LinearTask& task : tasks) {
      const int64_t N = task.weight.N;
      if (begin < N && end > 0) kernel(task, std::max<int64_t>(begin, 0), std::min(end, N), x, M);
      begin -= N, end -= N;
    }
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
