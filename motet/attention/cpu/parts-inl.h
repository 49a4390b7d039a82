// Rows of numbers into the packed panels of tiles, in parts (motet/core/parts-inl.h).
#if defined(MOTET_CPU_PARTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_PARTS_INL_H
#undef MOTET_CPU_PARTS_INL_H
#else
#define MOTET_CPU_PARTS_INL_H
#endif

#include "motet/attention/cpu/pack-inl.h"
#include "motet/core/parts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

using namespace motet::HWY_NAMESPACE::parts;

/// Rows of 32 keys to pairs along the width, in parts: out[part][pairs][32 keys], of which those beyond the width are
/// 0. `staging` holds as much.
template <int kSplit>
HWY_NOINLINE void pack_parts_transposed(const Rows& rows, int first, int last, int64_t width, int64_t pairs,
                                        float* staging, float* out) {
  std::fill_n(staging, kPanel * kSplit * pairs, 0.f);
  for (int i = first; i < last; ++i)
    split_row<kSplit>(rows.data + (i - first) * rows.stride, width, staging + (i - first) * kSplit * pairs, pairs);
  for (int p = 0; p < kSplit; ++p)
    pack_transposed({staging + p * pairs, kSplit * pairs}, first, last, pairs, out + p * pairs * kPanel,
                    InOrder{kPanel});
}

/// Rows of a tile to pairs along the keys, in parts: column panels of out[part][keys / 2][panel width]. Of a panel of
/// 32 keys key i and key i + 16 are a pair, so that vectors of weights are paired as they lie (split_panels).
template <int kKeys, int kSplit>
HWY_NOINLINE void pack_parts_columns(const Rows& rows, int first, int last, int64_t width, float* out) {
  constexpr int kHalf = kPanel / 2;
  HWY_ALIGN float rest[2][kPanel];
  for (int64_t column = 0; column < width; column += kPanel) {
    const ColumnPanel panel = column_panel(width, column);
    const int64_t have = std::min(panel.width, width - column);
    const auto row = [&](int i, float* copy) -> const float* {
      const bool inside = i >= first && i < last;
      const float* const x = rows.data + (i - first) * rows.stride + column;
      if (inside && have == panel.width) return x;
      std::fill_n(copy, kPanel, 0.f);
      if (inside) std::copy_n(x, have, copy);
      return copy;
    };
    float* o = out + column * (kKeys / 2) * kSplit;
    for (int i = 0; i < kKeys / 2; ++i, o += panel.width) {
      const int key = i / kHalf * kPanel + i % kHalf;
      const float *const low = row(key, rest[0]), *const high = row(key + kHalf, rest[1]);
      for (int64_t j = 0; j < panel.width; j += kLanes) {
        VecWords a[kSplit], b[kSplit];
        split<kSplit>(load(low + j), a), split<kSplit>(load(high + j), b);
        for (int p = 0; p < kSplit; ++p) store(o + p * (kKeys / 2) * panel.width + j, paired(a[p], b[p]));
      }
    }
  }
}

/// `count` weights of a row, whole panels of 32 keys, to such pairs, in parts that lie `stride` apart.
template <int kSplit>
HWY_INLINE void split_panels(const float* from, int64_t count, float* to, int64_t stride) {
  constexpr int kHalf = kPanel / 2;
  for (int64_t i = 0; i < count; i += kPanel)
    for (int j = 0; j < kHalf; j += kLanes) {
      VecWords low[kSplit], high[kSplit];
      split_weights<kSplit>(load(from + i + j), low), split_weights<kSplit>(load(from + i + kHalf + j), high);
      for (int p = 0; p < kSplit; ++p) store(to + p * stride + i / 2 + j, paired(low[p], high[p]));
    }
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
