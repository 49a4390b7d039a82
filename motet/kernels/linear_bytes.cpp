// The instruction multiplies bytes without a sign by bytes with one and adds four products to 32 bits. A weight goes in
// as w + 128; what that adds, 128 times the sum of a row of x, is taken off in the end. A number of x goes in as three
// digits of -128 to 127: (d2 256 + d1) 256 + d0.
#include "motet/kernels/linear_bytes.h"

#include "motet/core/instructions.h"

#if defined(__x86_64__) && !defined(MOTET_AVX2_ALONE)
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#if !defined(__clang__)  // intrinsics of GCC 12 that leave lanes open
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define MOTET_VNNI __attribute__((target("fma,avx512f,avx512vl,avx512dq,avx512bw,avx512vnni")))
#define MOTET_VNNI_INLINE MOTET_VNNI __attribute__((always_inline)) inline

namespace motet::bytes {
namespace {

constexpr int64_t kStep = 64;  // numbers of a vector of bytes
constexpr int kDigits = 3;
constexpr int64_t kMostK = 65536;     // sums of 255 * 128 stay below 2^31
constexpr int64_t kPacked = 32;       // rows of W that are packed at once: two vectors of sums
constexpr int64_t kPair = 2;          // rows of W that are multiplied at once as they lie
constexpr float kLargest = 0x7f7f7f;  // that has three digits

int64_t steps(int64_t K) { return (K + kStep - 1) / kStep; }

// Four rows of x, of which the last tile may have fewer. Digits [K / 64][rows][3][64] follow, zeros behind K.
struct alignas(64) Tile {
  float unit[kTileRows];     // of the digits; NaN where a number of the row is not finite
  double offset[kTileRows];  // what the 128 of the weights add

  const int8_t* digits() const { return reinterpret_cast<const int8_t*>(this + 1); }
  int8_t* digits() { return reinterpret_cast<int8_t*>(this + 1); }
};
int64_t tile_size(int64_t K) { return static_cast<int64_t>(sizeof(Tile)) + kTileRows * kDigits * steps(K) * kStep; }

// Rows [n, n + count) of W, and where y of a tile's first row lies.
struct Block {
  const Weight& weight;
  int64_t n, count;
  float* y;
  // Lines of the next block that each step asks for, into L2: README.md.
  const char *line, *last;
  int64_t ahead;

  const int8_t* row(int64_t i) const { return static_cast<const int8_t*>(weight.data) + (n + i) * weight.K; }
  void fetch(const char*& until) {
    for (until += ahead; line < until && line < last; line += 64) __builtin_prefetch(line, 0, 2);
  }
};

// Packing pays for itself by many rows of x, or by four that L1 does not hold while W passes as it lies.
bool packs(int64_t M, int64_t K) { return M > 8 || (M > 3 && M * K > 12288); }

__mmask16 mask(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count > 0 ? (1 << count) - 1 : 0);
}

// By its name: of the compiler's own form GCC 12 stores every sum in every step.
MOTET_VNNI_INLINE void add_products(__m512i& sums, __m512i w, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(w), "v"(x));
}

// (d2 256 + d1) 256 + d0 - offset; exact, because all of it is below 2^53.
MOTET_VNNI_INLINE __m512d total(__m256i d0, __m256i d1, __m256i d2, __m512d offset) {
  const __m512d base = _mm512_set1_pd(256);
  const __m512d upper = _mm512_fmadd_pd(_mm512_cvtepi32_pd(d2), base, _mm512_cvtepi32_pd(d1));
  return _mm512_sub_pd(_mm512_fmadd_pd(upper, base, _mm512_cvtepi32_pd(d0)), offset);
}

// Four blocks of the sums of four lanes each of a, b, c and d.
MOTET_VNNI_INLINE __m512i fold(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

// The sums of all lanes of eight vectors.
MOTET_VNNI_INLINE __m256i sums_of_lanes(const __m512i (&v)[8]) {
  const __m512i a = fold(v[0], v[1], v[2], v[3]), b = fold(v[4], v[5], v[6], v[7]);
  const __m512i halves = _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
  return _mm512_castsi512_si256(
      _mm512_add_epi32(_mm512_shuffle_i32x4(halves, halves, 0x08), _mm512_shuffle_i32x4(halves, halves, 0x0d)));
}

// Rows of W as they lie, two at once, times the kM rows of a tile.
template <int kM>
MOTET_VNNI void pairs(Block& block, const Tile& tile, const int8_t*) {
  const int64_t K = block.weight.K, N = block.weight.N, whole = K / kStep;
  const __mmask64 rest = (uint64_t{1} << K % kStep) - 1;
  const __m512i plus128 = _mm512_set1_epi8(-128);
  alignas(64) double offset[8] = {};
  alignas(32) float unit[8] = {};
  for (int i = 0; i < kM * kPair; ++i) offset[i] = tile.offset[i / kPair], unit[i] = tile.unit[i / kPair];
  const char* until = block.line;
  for (int64_t n = 0; n < block.count; n += kPair) {
    const int64_t second = std::min(n + 1, block.count - 1);  // a row of its own, or the last one again
    const int8_t *w0 = block.row(n), *w1 = block.row(second), *x = tile.digits();
    __m512i sums[kDigits][8];
#pragma GCC unroll 3
    for (int d = 0; d < kDigits; ++d)
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) sums[d][i] = _mm512_setzero_si512();
    const auto step = [&](__m512i a, __m512i b) __attribute__((always_inline)) MOTET_VNNI {
      a = _mm512_xor_si512(a, plus128), b = _mm512_xor_si512(b, plus128);
#pragma GCC unroll 4
      for (int m = 0; m < kM; ++m)
#pragma GCC unroll 3
        for (int d = 0; d < kDigits; ++d, x += kStep) {
          const __m512i digits = _mm512_load_si512(x);
          add_products(sums[d][m * kPair], a, digits);
          add_products(sums[d][m * kPair + 1], b, digits);
        }
    };
    for (int64_t i = 0; i < whole; ++i, w0 += kStep, w1 += kStep) {
      block.fetch(until);
      step(_mm512_loadu_si512(w0), _mm512_loadu_si512(w1));
    }
    if (rest) step(_mm512_maskz_loadu_epi8(rest, w0), _mm512_maskz_loadu_epi8(rest, w1));
    asm("" : "+m"(offset), "+m"(unit));  // else they take registers that the sums need
    const __m256 raw = _mm512_cvtpd_ps(
        total(sums_of_lanes(sums[0]), sums_of_lanes(sums[1]), sums_of_lanes(sums[2]), _mm512_load_pd(offset)));
    const __mmask8 here = second > n ? 3 : 1;
    const auto of_rows = [&](const float* p) MOTET_VNNI {
      return _mm256_castpd_ps(_mm256_broadcastsd_pd(_mm_castps_pd(_mm_maskz_loadu_ps(here, p + block.n + n))));
    };
    const __m256 bias = block.weight.bias ? of_rows(block.weight.bias) : _mm256_setzero_ps();
    const __m256 y = _mm256_fmadd_ps(_mm256_mul_ps(raw, _mm256_load_ps(unit)), of_rows(block.weight.scale), bias);
    const __m128 of_m[] = {_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1)};
#pragma GCC unroll 4
    for (int m = 0; m < kM; ++m) {  // of a masked store GCC makes vextractf32x4, which faults on what is masked
      const __m128 of_row = m % 2 ? _mm_movehl_ps(of_m[m / 2], of_m[m / 2]) : of_m[m / 2];
      float* const to = block.y + m * N + n;
      if (second > n)
        _mm_storel_pi(reinterpret_cast<__m64*>(to), of_row);
      else
        _mm_store_ss(to, of_row);
    }
  }
}

// 32 rows of W to [K / 4][32][4], so that a sum stands in each lane; rows beyond the last are those of a weight of 0.
MOTET_VNNI void pack(const Block& block, int8_t* to) {
  const int64_t K = block.weight.K;
  const __m512i plus128 = _mm512_set1_epi8(-128);
  for (int half = 0; half < 2; ++half)
    for (int64_t k = 0; k < K; k += kStep) {
      const __mmask64 here = K - k >= kStep ? ~uint64_t{0} : (uint64_t{1} << (K - k)) - 1;
      __m512i r[16], t[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        r[i] = _mm512_xor_si512(plus128, half * 16 + i < block.count
                                             ? _mm512_maskz_loadu_epi8(here, block.row(half * 16 + i) + k)
                                             : _mm512_setzero_si512());
#pragma GCC unroll 8
      for (int i = 0; i < 16; i += 2)
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]), t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
#pragma GCC unroll 4
      for (int i = 0; i < 16; i += 4) {  // block q of r[i + c]: column 4 q + c of rows i to i + 3
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]), r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]), r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
      }
      int8_t* const at = to + k * kPacked + half * 64;
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        const __m512i even0 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88),
                      odd0 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd),
                      even1 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88),
                      odd1 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        const auto store = [&](int column, __m512i v) MOTET_VNNI { _mm512_store_si512(at + column * 4 * kPacked, v); };
        store(c, _mm512_shuffle_i32x4(even0, even1, 0x88)), store(4 + c, _mm512_shuffle_i32x4(odd0, odd1, 0x88));
        store(8 + c, _mm512_shuffle_i32x4(even0, even1, 0xdd)), store(12 + c, _mm512_shuffle_i32x4(odd0, odd1, 0xdd));
      }
    }
}

// All of a packed block times the kM rows of a tile.
template <int kM>
MOTET_VNNI void lanes(Block& block, const Tile& tile, const int8_t* packed) {
  const Weight& weight = block.weight;
  const int8_t* x = tile.digits();
  const char* until = block.line;
  __m512i sums[kM * kDigits][2];
#pragma GCC unroll 12
  for (int i = 0; i < kM * kDigits; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_si512();
  for (int64_t k = 0; k < weight.K; k += kStep, x += kM * kDigits * kStep) {
    block.fetch(until);
    for (int64_t four = 0; four < kStep; four += 4, packed += 4 * kPacked) {
      const __m512i w0 = _mm512_load_si512(packed), w1 = _mm512_load_si512(packed + 64);
#pragma GCC unroll 12
      for (int i = 0; i < kM * kDigits; ++i) {
        int32_t number;
        std::memcpy(&number, x + i * kStep + four, sizeof number);
        __m512i digits = _mm512_set1_epi32(number);
        add_products(sums[i][0], w0, digits);
        add_products(sums[i][1], w1, digits);
      }
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < kM; ++m) {
    const __m512d offset = _mm512_set1_pd(tile.offset[m]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __mmask16 here = mask(block.count - 16 * half);
      const int64_t n = block.n + 16 * half;
      const __m512i d0 = sums[m * 3][half], d1 = sums[m * 3 + 1][half], d2 = sums[m * 3 + 2][half];
      const __m256 low = _mm512_cvtpd_ps(
          total(_mm512_castsi512_si256(d0), _mm512_castsi512_si256(d1), _mm512_castsi512_si256(d2), offset));
      const __m256 high = _mm512_cvtpd_ps(total(_mm512_extracti64x4_epi64(d0, 1), _mm512_extracti64x4_epi64(d1, 1),
                                                _mm512_extracti64x4_epi64(d2, 1), offset));
      const __m512 raw = _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
      const __m512 bias = weight.bias ? _mm512_maskz_loadu_ps(here, weight.bias + n) : _mm512_setzero_ps();
      _mm512_mask_storeu_ps(block.y + m * weight.N + 16 * half, here,
                            _mm512_fmadd_ps(_mm512_mul_ps(raw, _mm512_set1_ps(tile.unit[m])),
                                            _mm512_maskz_loadu_ps(here, weight.scale + n), bias));
    }
  }
}

// 64 numbers of x, of which `count` are there, zeros behind them.
MOTET_VNNI_INLINE void load_step(const float* x, int64_t count, __m512 (&v)[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    v[i] = count >= kStep ? _mm512_loadu_ps(x + 16 * i) : _mm512_maskz_loadu_ps(mask(count - 16 * i), x + 16 * i);
}

MOTET_VNNI_INLINE float power_of_two(int exponent) { return std::bit_cast<float>((exponent + 127) << 23); }

// The power of two by which a row whose largest number has these bits becomes whole numbers of three digits.
MOTET_VNNI_INLINE int shift_of(uint32_t largest) {
  const int shift = std::min(149 - static_cast<int>(largest >> 23), 126);
  return std::bit_cast<float>(largest) * power_of_two(shift) > kLargest ? shift - 1 : shift;
}

// The three digits of 64 whole numbers, each as 64 bytes behind each other.
MOTET_VNNI_INLINE void store_digits(const __m512i (&whole)[4], int8_t* to, __m512i (&sums)[kDigits]) {
  const __m512i plus128 = _mm512_set1_epi32(0x808080), ones = _mm512_set1_epi8(1);
  const __m512i by_digit = _mm512_broadcast_i32x4(
      _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, -1, -1, -1, -1));  // of each four numbers
  const __m512i two = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29),
                third = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
  __m512i v[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    v[i] = _mm512_shuffle_epi8(_mm512_xor_si512(_mm512_add_epi32(whole[i], plus128), plus128), by_digit);
  const __m512i first = _mm512_permutex2var_epi32(v[0], two, v[1]), last = _mm512_permutex2var_epi32(v[2], two, v[3]);
  const __m512i digits[] = {_mm512_shuffle_i64x2(first, last, 0x44), _mm512_shuffle_i64x2(first, last, 0xee),
                            _mm512_shuffle_i64x2(_mm512_permutex2var_epi32(v[0], third, v[1]),
                                                 _mm512_permutex2var_epi32(v[2], third, v[3]), 0x44)};
#pragma GCC unroll 3
  for (int d = 0; d < kDigits; ++d) {
    _mm512_store_si512(to + d * kStep, digits[d]);
    add_products(sums[d], ones, digits[d]);
  }
}

// One row of x to its digits, the rows of its tile apart.
MOTET_VNNI void split_row(const float* x, int64_t K, int64_t rows, int8_t* to, float& unit, double& offset) {
  // Of bits without a sign: what is not finite is larger than what is.
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i largest = _mm512_setzero_si512(), other = largest;
  __m512 v[4];
  for (int64_t k = 0; k < K; k += kStep) {
    load_step(x + k, K - k, v);
    const auto bits = [&](int i) MOTET_VNNI { return _mm512_and_si512(_mm512_castps_si512(v[i]), magnitude); };
    largest = _mm512_max_epu32(_mm512_max_epu32(largest, bits(0)), bits(1));
    other = _mm512_max_epu32(_mm512_max_epu32(other, bits(2)), bits(3));
  }
  const uint32_t top = _mm512_reduce_max_epu32(_mm512_max_epu32(largest, other));
  const bool finite = top < 0x7f800000;
  const int shift = finite ? shift_of(top) : 0;
  unit = finite ? power_of_two(-shift) : NAN;
  const __m512 up = _mm512_set1_ps(power_of_two(shift));
  __m512i sums[kDigits] = {};
  for (int64_t k = 0; k < K; k += kStep, to += rows * kDigits * kStep) {
    load_step(x + k, K - k, v);
    __m512i whole[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) whole[i] = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], up));
    store_digits(whole, to, sums);
  }
  const auto sum = [&](int d) MOTET_VNNI { return static_cast<double>(_mm512_reduce_add_epi32(sums[d])); };
  offset = 128 * ((sum(2) * 256 + sum(1)) * 256 + sum(0));
}

}  // namespace

bool can_multiply(int64_t K) { return has_avx512_vnni() && K <= kMostK; }

int64_t size(int64_t M, int64_t K) { return (M + kTileRows - 1) / kTileRows * tile_size(K); }

void split(const float* x, int64_t first, int64_t count, int64_t K, int8_t* rows) {
  for (int64_t m = 0; m < count; m += kTileRows) {
    Tile& tile = *reinterpret_cast<Tile*>(rows + (first + m) / kTileRows * tile_size(K));
    const int64_t of_tile = std::min(kTileRows, count - m);
    for (int64_t i = 0; i < of_tile; ++i)
      split_row(x + (first + m + i) * K, K, of_tile, tile.digits() + i * kDigits * kStep, tile.unit[i], tile.offset[i]);
  }
}

int64_t block(int64_t M, int64_t K) { return packs(M, K) ? kPacked : kPair; }

int64_t space(int64_t M, int64_t K) { return packs(M, K) ? kPacked * steps(K) * kStep : 0; }

void multiply(const LinearTask& task, int64_t begin, int64_t end, int64_t next, const int8_t* rows, int64_t M,
              int8_t* space) {
  const Weight& weight = task.weight;
  const bool packed = packs(M, weight.K);
  const auto kernels =
      packed ? std::array{lanes<1>, lanes<2>, lanes<3>, lanes<4>} : std::array{pairs<1>, pairs<2>, pairs<3>, pairs<4>};
  // As they lie, rows of a block stay in L1 while the tiles pass.
  const int64_t block_rows = packed ? kPacked : std::max(kPair, (16 << 10) / weight.K / kPair * kPair);
  const auto byte = [&](int64_t n) { return static_cast<const char*>(weight.data) + std::min(n, next) * weight.K; };
  for (int64_t n = begin; n < end; n += block_rows) {
    const int64_t count = std::min(block_rows, end - n);
    const int64_t passes = (M + kTileRows - 1) / kTileRows * (packed ? 1 : (count + 1) / kPair) * steps(weight.K);
    Block block{.weight = weight,
                .n = n,
                .count = count,
                .y = task.y + n,
                .line = byte(n + block_rows),
                .last = byte(n + block_rows + count),
                .ahead = (count * weight.K / passes + 63) / 64 * 64};
    if (packed) pack(block, space);
    for (int64_t m = 0; m < M; m += kTileRows, block.y += kTileRows * weight.N)
      kernels[static_cast<size_t>(std::min(kTileRows, M - m) - 1)](
          block, *reinterpret_cast<const Tile*>(rows + m / kTileRows * tile_size(weight.K)), space);
  }
}

}  // namespace motet::bytes

#else

namespace motet::bytes {

bool can_multiply(int64_t) { return false; }
int64_t size(int64_t, int64_t) { return 0; }
void split(const float*, int64_t, int64_t, int64_t, int8_t*) {}
int64_t block(int64_t, int64_t) { return 1; }
int64_t space(int64_t, int64_t) { return 0; }
void multiply(const LinearTask&, int64_t, int64_t, int64_t, const int8_t*, int64_t, int8_t*) {}

}  // namespace motet::bytes
#endif
