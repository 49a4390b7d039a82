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

/// Rows of a tile to pairs along the keys, in parts: column panels of out[part][keys / 2][panel width].
template <int kKeys, int kSplit>
HWY_NOINLINE void pack_parts_columns(const Rows& rows, int first, int last, int64_t width, float* out) {
  HWY_ALIGN float low[kPanel], high[kPanel];
  for (int64_t column = 0; column < width; column += kPanel) {
    const ColumnPanel panel = column_panel(width, column);
    const int64_t have = std::min(panel.width, width - column);
    const auto row = [&](int i, float* to) {
      std::fill_n(to, kPanel, 0.f);
      if (i >= first && i < last) std::copy_n(rows.data + (i - first) * rows.stride + column, have, to);
    };
    float* o = out + column * (kKeys / 2) * kSplit;
    for (int i = 0; i < kKeys; i += 2, o += panel.width) {
      row(i, low), row(i + 1, high);
      for (int64_t j = 0; j < panel.width; j += kLanes) {
        VecWords a[kSplit], b[kSplit];
        split<kSplit>(load(low + j), a), split<kSplit>(load(high + j), b);
        for (int p = 0; p < kSplit; ++p) store(o + p * (kKeys / 2) * panel.width + j, paired(a[p], b[p]));
      }
    }
  }
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
