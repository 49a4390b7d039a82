#pragma once
// The tensor instructions of device.h on the host; included by emulation.h.
namespace motet::cuda {

inline uint32_t shared_base() { return 0; }
inline uint32_t opaque(uint32_t x) { return x; }

namespace emulated {

inline int lane() { return threadIdx.x % 32; }
inline uint16_t half_of(uint32_t pair, int which) { return static_cast<uint16_t>(pair >> 16 * which); }
inline uint32_t pair_of(uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; }
// Element (row, column) of matrix m that lane l holds half `which` of: r[m], or of the transpose.
struct Place {
  int row, column;
};
inline Place place(int l, int which, bool transposed) {
  const Place p{l / 4, l % 4 * 2 + which};
  return transposed ? Place{p.column, p.row} : p;
}

inline void load_matrices(uint32_t* r, uint32_t at, bool transposed) {
  std::array<uint32_t, 8> row{};
  std::memcpy(row.data(), shared(at, 16, false), 16);
  const Lanes all = warp_meet(row);
  for (int m = 0; m < 4; ++m) {
    uint16_t x[2];
    for (int which = 0; which < 2; ++which) {
      const Place p = place(lane(), which, transposed);
      x[which] = half_of(all[m * 8 + p.row][p.column / 2], p.column % 2);
    }
    r[m] = pair_of(x[0], x[1]);
  }
}

inline void store_matrices(uint32_t at, const uint32_t* r, bool transposed) {
  const Lanes all = warp_meet({r[0], r[1], r[2], r[3]});
  const int m = lane() / 8, row = lane() % 8;  // what this lane's address takes
  uint16_t x[8];
  for (int l = 0; l < 32; ++l)
    for (int which = 0; which < 2; ++which) {
      const Place p = place(l, which, transposed);
      if (p.row == row) x[p.column] = half_of(all[l][m], which);
    }
  std::memcpy(shared(at, 16, true), x, 16);
  warp_meet({});
}

/// d [16,8] += a [16,k] b [k,8]; k is 16 or 8.
template <bool kBfloat16, int kDepth>
void multiply(float* d, const uint32_t* a, const uint32_t* b) {
  std::array<uint32_t, 8> mine{};
  std::copy_n(a, kDepth / 4, mine.begin());
  std::copy_n(b, kDepth / 8, mine.begin() + 4);
  const Lanes all = warp_meet(mine);
  const auto number = [](uint32_t pair, int which) {
    return kBfloat16 ? widen_bfloat16(half_of(pair, which)) : widen_float16(half_of(pair, which));
  };
  for (int i = 0; i < 4; ++i) {
    const int row = lane() / 4 + 8 * (i / 2), column = lane() % 4 * 2 + i % 2;
    float sum = 0;
    for (int k = 0; k < kDepth; ++k) {
      const float x = number(all[row % 8 * 4 + k % 8 / 2][2 * (k / 8) + row / 8], k % 2);
      const float y = number(all[column * 4 + k % 8 / 2][4 + k / 8], k % 2);
      sum += x * y;
    }
    d[i] += sum;
  }
}

}  // namespace emulated

inline float shuffle_xor(float x, int lanes) {
  return std::bit_cast<float>(emulated::warp_meet({std::bit_cast<uint32_t>(x)})[emulated::lane() ^ lanes][0]);
}
inline bool warp_any(bool x) {
  const emulated::Lanes all = emulated::warp_meet({x});
  return std::any_of(all.begin(), all.end(), [](const auto& lane) { return lane[0] != 0; });
}
inline void load_matrices(uint32_t* r, uint32_t at) { emulated::load_matrices(r, at, false); }
inline void load_matrices_transposed(uint32_t* r, uint32_t at) { emulated::load_matrices(r, at, true); }
inline void store_matrices(uint32_t at, const uint32_t* r) { emulated::store_matrices(at, r, false); }
inline void store_matrices_transposed(uint32_t at, const uint32_t* r) { emulated::store_matrices(at, r, true); }
inline uint32_t transposed(uint32_t x) {
  const emulated::Lanes all = emulated::warp_meet({x});
  uint16_t y[2];
  for (int which = 0; which < 2; ++which) {
    const emulated::Place p = emulated::place(emulated::lane(), which, true);
    y[which] = emulated::half_of(all[p.row * 4 + p.column / 2][0], p.column % 2);
  }
  return emulated::pair_of(y[0], y[1]);
}

inline uint32_t pack_float16(float low, float high) { return emulated::pair_of(to_float16(low), to_float16(high)); }
template <bool kBfloat16>
uint32_t pack(float low, float high) {
  return kBfloat16 ? emulated::pair_of(to_bfloat16(low), to_bfloat16(high)) : pack_float16(low, high);
}
template <bool kBfloat16>
void multiply(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  emulated::multiply<kBfloat16, 16>(d, a, b);
}
inline void multiply8(float* d, uint32_t a0, uint32_t a1, uint32_t b) {
  const uint32_t a[2] = {a0, a1};
  emulated::multiply<false, 8>(d, a, &b);
}
inline void multiply_half(uint32_t* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
  float sums[4] = {};
  multiply<false>(sums, a, b0, b1);
  d[0] = pack_float16(sums[0], sums[1]), d[1] = pack_float16(sums[2], sums[3]);
}

inline uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
  const auto one = [&](int i) {
    using emulated::half_of;
    return widen_float16(half_of(a, i)) * widen_float16(half_of(b, i)) + widen_float16(half_of(c, i));
  };
  return pack_float16(one(0), one(1));
}
inline uint32_t times2(uint32_t a, uint32_t b) { return fma2(a, b, 0x80008000u); }  // + -0 changes nothing
inline uint32_t both_low(uint32_t a) { return emulated::pair_of(emulated::half_of(a, 0), emulated::half_of(a, 0)); }
inline uint32_t both_high(uint32_t a) { return emulated::pair_of(emulated::half_of(a, 1), emulated::half_of(a, 1)); }
inline float power_of_2(float x) {  // .ftz
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0 : y;
}
inline float log_of_2(float x) { return std::log2(x); }

inline uint4 load16(uint32_t at) {
  uint4 v;
  std::memcpy(&v, emulated::shared(at, 16, false), 16);
  return v;
}
inline float2 load8(uint32_t at) {
  float2 v;
  std::memcpy(&v, emulated::shared(at, 8, false), 8);
  return v;
}
inline float load4(uint32_t at) { return Shared<float>{at}.get(0); }
inline void store4(uint32_t at, float v) { Shared<float>{at}.set(0, v); }
inline void store16(uint32_t at, uint4 v) { std::memcpy(emulated::shared(at, 16, true), &v, 16); }

inline void sync_256() { emulated::some_meet(256); }
template <int kCount>
void more_registers() {}
template <int kCount>
void fewer_registers() {}

inline void arrivals_init(uint32_t barrier) { emulated::arrivals_init(barrier); }
inline void arrivals_expect(uint32_t barrier, uint32_t bytes) { emulated::arrivals_expect(barrier, bytes); }
inline void arrivals_wait(uint32_t barrier, uint32_t parity) { emulated::arrivals_wait(barrier, parity); }
inline void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  const auto* x = static_cast<const std::byte*>(from);
  emulated::copy_later(barrier, to, {x, x + bytes});
}
struct TileMap {
  const uint16_t* data;
  int64_t width, rows, heads, row_stride, head_stride, batch_stride;
  int box_heads;
};
inline void copy_tile(uint32_t to, const TileMap* from, int column, int row, int head, int b, uint32_t barrier) {
  std::vector<std::byte> box(static_cast<size_t>(from->box_heads) * 2048);
  for (int h = 0; h < from->box_heads; ++h)
    for (int r = 0; r < 16; ++r)
      for (int c = 0; c < 64; ++c) {
        uint16_t x = 0;
        if (column + c < from->width && row + r < from->rows && head + h < from->heads)
          x = from->data[b * from->batch_stride + (row + r) * from->row_stride + (head + h) * from->head_stride +
                         column + c];
        std::memcpy(&box[h * 2048 + r * 128 + (c / 8 ^ r % 8) * 16 + c % 8 * 2], &x, 2);
      }
  emulated::copy_later(barrier, to, std::move(box));
}
inline const char* make_tile_map(TileMap& to, const void* data, bool, int64_t width, int64_t rows, int64_t heads,
                                 int64_t, int64_t row_stride, int64_t head_stride, int64_t batch_stride,
                                 int box_heads) {
  to = {static_cast<const uint16_t*>(data), width, rows, heads, row_stride, head_stride, batch_stride, box_heads};
  return nullptr;
}

}  // namespace motet::cuda
