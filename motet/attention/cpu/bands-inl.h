// The bands of a mix: its tensors gathered for a sub-block or a tile, and their gradients scattered back.
#if defined(MOTET_CPU_BANDS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_BANDS_INL_H
#undef MOTET_CPU_BANDS_INL_H
#else
#define MOTET_CPU_BANDS_INL_H
#endif

#include "motet/attention/cpu/mix_dense-inl.h"
#include "motet/attention/cpu/mix_factored-inl.h"
#include "motet/attention/cpu/mix_pairs-inl.h"
#include "motet/attention/cpu/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// Sizes of one part: numbers of a row.
HWY_INLINE PartSize part_size(const Mix& mix, int part) { return plain::part_size(*mix.parts, part, mix.in, mix.out); }

/// The mix of a unit; `heads_in` and `heads_out` are the unit's, `first_out` its first output head.
HWY_INLINE Mix make_mix(MixKind kind, const HeadMix& parts, const Pairs& pairs, int heads_in, int heads_out) {
  Mix mix;
  mix.kind = kind, mix.in = heads_in, mix.out = heads_out, mix.parts = &parts, mix.pairs = &pairs;
  if (kind == MixKind::pairs) set_pairs_mix(mix);
  if (kind == MixKind::factored) set_factored_mix(mix);
  if (kind == MixKind::dense) set_dense_mix(mix);
  for (const int part : {kKeyDown, kKeyUp, kKeyGate, kKeyFull}) {
    if (!parts.has(part)) continue;
    const int first = part == kKeyDown ? 0 : static_cast<int>(part == kKeyUp ? mix.key_ranks : 2 * mix.key_ranks);
    for (int i = 0; i < part_size(mix, part).numbers(); ++i)
      mix.key_places.push_back(static_cast<int32_t>(kind == MixKind::factored
                                                        ? i % mix.in * (2 * mix.key_ranks + 1) + first + i / mix.in
                                                        : static_cast<int64_t>(mix.key_places.size())));
  }
  return mix;
}

/// The numbers of a query-side part at row `at` of sequence b.
HWY_INLINE const float* part_row(const Mix& mix, int part, int64_t b, int64_t at) {
  const MixTensor& t = mix.parts->part[part];
  return t.floats() + b * t.batch_stride + at * t.row_stride;
}

HWY_INLINE void gather_factored_row(const Mix& mix, int64_t b, int64_t t, float* to) {
  const HeadMix& parts = *mix.parts;
  const int64_t heads = mix.in, ranks = mix.query_ranks, step = 2 * ranks + 1;
  const float one = parts.identity ? 1.f : 0.f;
  const float* gate = parts.has(kQueryGate) ? part_row(mix, kQueryGate, b, t) : nullptr;
  for (int64_t h = 0; h < heads; ++h) to[h * step + 2 * ranks] = one + (gate ? gate[h] : 0.f);
  if (!ranks) return;
  const float *down = part_row(mix, kQueryDown, b, t), *up = part_row(mix, kQueryUp, b, t);
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t r = 0; r < ranks; ++r) {
      const bool have = r < parts.query_rank;
      to[h * step + r] = have ? down[r * heads + h] : 0.f;
      to[h * step + ranks + r] = have ? up[r * heads + h] : 0.f;
    }
}

/// The matrix [in][out] of a query with everything of its side, then its transpose.
HWY_INLINE void gather_dense_row(const Mix& mix, int64_t b, int64_t t, float* to) {
  const HeadMix& parts = *mix.parts;
  const int64_t n = mix.in, m = mix.out;
  if (parts.has(kWeight))
    std::memcpy(to, parts.part[kWeight].floats(), n * m * sizeof(float));
  else
    std::fill_n(to, n * m, 0.f);
  if (parts.has(kQueryFull)) {
    const float* full = part_row(mix, kQueryFull, b, t);
    for (int64_t i = 0; i < n * m; ++i) to[i] += full[i];
  }
  if (parts.has(kQueryDown)) {
    const float *down = part_row(mix, kQueryDown, b, t), *up = part_row(mix, kQueryUp, b, t);
    for (int64_t r = 0; r < parts.query_rank; ++r)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < m; ++j) to[i * m + j] += down[r * n + i] * up[r * m + j];
  }
  const float* gate = parts.has(kQueryGate) ? part_row(mix, kQueryGate, b, t) : nullptr;
  if (parts.identity || gate)
    for (int64_t i = 0; i < n; ++i) to[i * m + i] += (parts.identity ? 1.f : 0.f) + (gate ? gate[i] : 0.f);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) to[n * m + j * n + i] = to[i * m + j];
}

/// Row band of queries [t0, t0 + count); rows beyond `count` are 0.
HWY_NOINLINE void gather_rows(const Mix& mix, int64_t b, int64_t t0, int count, float* band) {
  if (!mix.row_band) return;
  if (mix.kind == MixKind::dense && !mix.per_row) {
    gather_dense_row(mix, b, t0, band);
    return;
  }
  const int64_t step = mix.row_band / kRows;
  for (int r = 0; r < kRows; ++r) {
    float* to = band + r * step;
    const int64_t t = t0 + r;
    if (r >= count)
      std::fill_n(to, step, 0.f);
    else if (mix.kind == MixKind::factored)
      gather_factored_row(mix, b, t, to);
    else if (mix.kind == MixKind::dense)
      gather_dense_row(mix, b, t, to);
    else
      for (int i = 0; i < mix.out; ++i)
        to[i] = mix.pairs->lambda[b * mix.pairs->batch_stride + t * mix.pairs->row_stride +
                                  (mix.first_out + i) * mix.pairs->head_stride];
  }
}

/// Key-side parts as they are stored, that lie side by side in the rows of keys, from the first of one key on.
struct KeyParts {
  const char* data;
  Type type;
  int64_t stride, numbers;  // from key to key, of a key; in numbers
  const int32_t* places;    // of those numbers in the key band

  const char* row(int64_t i) const { return data + i * stride * bytes_of(type); }
  bool goes_on_as(const KeyParts& next) const {
    return next.data == data + numbers * bytes_of(type) && next.stride == stride && next.type == type;
  }
};

/// f(KeyParts) for all key-side parts of key s.
template <class Function>
HWY_INLINE void each_key_parts(const Mix& mix, int64_t b, int64_t s, const Function& f) {
  const int32_t* places = mix.key_places.data();
  KeyParts side_by_side{};
  for (const int part : {kKeyDown, kKeyUp, kKeyGate, kKeyFull}) {
    if (!mix.parts->has(part)) continue;
    const MixTensor& t = mix.parts->part[part];
    const int64_t at = b * t.batch_stride + s * t.row_stride;
    const KeyParts next{static_cast<const char*>(t.data) + at * bytes_of(t.type), t.type, t.row_stride,
                        part_size(mix, part).numbers(), places};
    places += next.numbers;
    if (side_by_side.goes_on_as(next)) {
      side_by_side.numbers += next.numbers;
      continue;
    }
    if (side_by_side.numbers) f(side_by_side);
    side_by_side = next;
  }
  if (side_by_side.numbers) f(side_by_side);
}

/// The transpose of keys [first, last) of a panel in a key band; narrow numbers are widened a few at a time, those of
/// int8 without their scales.
template <int kKeys>
HWY_INLINE void pack_parts(const KeyParts& parts, int first, int last, float* band) {
  if (parts.type == Type::float32)
    return pack_transposed({reinterpret_cast<const float*>(parts.data), parts.stride}, first, last, parts.numbers, band,
                           InPlaces<kKeys>{parts.places});
  constexpr int64_t kWide = 64;
  HWY_ALIGN float wide[kPanel * kWide];
  for (int64_t n = 0; n < parts.numbers; n += kWide) {
    const int64_t count = std::min(kWide, parts.numbers - n);
    for (int64_t i = 0; i < last - first; ++i) widen_row(parts.row(i), parts.type, n, count, wide + i * kWide);
    pack_transposed({wide, kWide}, first, last, count, band, InPlaces<kKeys>{parts.places + n});
  }
}

/// Numbers of int8 in a panel of a key band, whose key `first` is key s, times their scales.
template <int kKeys>
HWY_INLINE void scale_parts(const Mix& mix, int64_t b, int64_t s, int first, int last, float* band) {
  const int32_t* places = mix.key_places.data();
  for (const int part : {kKeyDown, kKeyUp, kKeyGate, kKeyFull}) {
    if (!mix.parts->has(part)) continue;
    const MixTensor& t = mix.parts->part[part];
    const PartSize size = part_size(mix, part);
    for (int64_t row = 0; t.scale && row < size.rows; ++row) {
      HWY_ALIGN float scale[kPanel];
      pack_transposed({t.scale_of(b, s) + row, t.scale_row}, first, last, 1, scale, InOrder{kPanel});
      for (int64_t i = 0; i < size.columns; ++i) {
        float* const to = band + int64_t{places[row * size.columns + i]} * kKeys;
        for (int j = 0; j < kPanel; j += kLanes) store(to + j, hn::Mul(load(to + j), load(scale + j)));
      }
    }
    places += size.numbers();
  }
}

/// Key band [key_numbers][kKeys] of the tile at key s0; keys outside `readable` and S give 0.
template <int kKeys>
HWY_NOINLINE void gather_keys(const Mix& mix, int64_t b, int64_t s0, Span readable, float* band) {
  if (!mix.key_numbers) return;
  if (static_cast<int64_t>(mix.key_places.size()) < mix.key_numbers) std::fill_n(band, mix.key_numbers * kKeys, 0.f);
  for (int panel = 0; panel < kKeys; panel += kPanel) {
    const int64_t first = std::clamp<int64_t>(readable.begin - s0 - panel, 0, kPanel);
    const int64_t last = std::clamp<int64_t>(readable.end - s0 - panel, first, kPanel);
    each_key_parts(mix, b, s0 + panel + first, [&](const KeyParts& parts) HWY_ATTR {
      pack_parts<kKeys>(parts, static_cast<int>(first), static_cast<int>(last), band + panel);
    });
    scale_parts<kKeys>(mix, b, s0 + panel + first, static_cast<int>(first), static_cast<int>(last), band + panel);
  }
}

/// What gather_keys will read: rows too short for the hardware to look ahead. It is asked for a few lines at a time,
/// for many at once take the buffers in which misses wait.
class KeyLines {
 public:
  /// Of keys [s0, s0 + keys).
  KeyLines(const Mix& mix, int64_t b, int64_t s0, int64_t keys, Span readable, int64_t times) {
    const int64_t first = std::max(readable.begin, s0), count = std::min(readable.end, s0 + keys) - first;
    if (!mix.key_numbers || count <= 0) return;
    int64_t lines = 0;
    each_key_parts(mix, b, first, [&](const KeyParts& parts) {
      const char* const end = parts.row(count - 1) + parts.numbers * bytes_of(parts.type);
      runs_[count_++] = {parts.data, end}, lines += (end - parts.data + kLine - 1) / kLine;
    });
    each_ = (lines + times - 1) / std::max<int64_t>(times, 1);
  }
  /// A part of them, so that all have been asked for after so many `times`.
  HWY_INLINE void some() {
    for (int64_t i = 0; i < each_ && count_ > 0; ++i) {
      Run& run = runs_[count_ - 1];
      prefetch_l2(run.next);
      if ((run.next += kLine) >= run.end) --count_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  struct Run {
    const char *next, *end;
  };
  Run runs_[4];
  int count_ = 0;
  int64_t each_ = 0;
};

/// Gradients of the key band of a tile to the tensors; `count` keys are real.
template <int kKeys>
HWY_NOINLINE void scatter_keys(const Mix& mix, const std::array<float*, kNumMixParts>& to, int64_t row0, int count,
                               const float* band) {
  const int32_t* places = mix.key_places.data();
  for (const int part : {kKeyDown, kKeyUp, kKeyGate, kKeyFull}) {
    if (!mix.parts->has(part)) continue;
    const int64_t numbers = part_size(mix, part).numbers();
    if (to[part]) unpack_transposed(band, InPlaces<kKeys>{places}, count, numbers, to[part] + row0 * numbers, numbers);
    places += numbers;
  }
}

/// Number (n, m) of a gradient of a matrix as dense_outer leaves it.
HWY_INLINE int64_t outer_place(const Mix& mix, int64_t n, int64_t m) {
  const int64_t blocks_m = (mix.out + kBlockM - 1) / kBlockM;
  return (n / kBlockN * blocks_m + m / kBlockM) * kRows * kLanes + n % kBlockN * kBlockM + m % kBlockM;
}

/// Gradients of one query's dense parts; the static weight's are added to `weight` [in][out].
HWY_INLINE void scatter_dense_row(const Mix& mix, const std::array<float*, kNumMixParts>& to, int64_t b, int64_t t,
                                  int64_t T, const float* sums, float* weight) {
  const HeadMix& parts = *mix.parts;
  const int64_t n = mix.in, m = mix.out, at = b * T + t;
  const auto gradient = [&](int64_t i, int64_t j) { return sums[outer_place(mix, i, j)]; };
  const bool low_rank = parts.has(kQueryDown);
  float* down = low_rank && to[kQueryDown] ? to[kQueryDown] + at * parts.query_rank * n : nullptr;
  float* up = low_rank && to[kQueryUp] ? to[kQueryUp] + at * parts.query_rank * m : nullptr;
  if (down) std::fill_n(down, parts.query_rank * n, 0.f);
  if (up) std::fill_n(up, parts.query_rank * m, 0.f);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) {
      const float g = gradient(i, j);
      if (weight) weight[i * m + j] += g;
      if (parts.has(kQueryFull) && to[kQueryFull]) to[kQueryFull][(at * n + i) * m + j] = g;
      for (int64_t r = 0; low_rank && r < parts.query_rank; ++r) {
        if (down) down[r * n + i] += g * part_row(mix, kQueryUp, b, t)[r * m + j];
        if (up) up[r * m + j] += g * part_row(mix, kQueryDown, b, t)[r * n + i];
      }
    }
  if (parts.has(kQueryGate) && to[kQueryGate])
    for (int64_t i = 0; i < n; ++i) to[kQueryGate][at * n + i] = gradient(i, i);
}

/// Gradients of the row band of queries [t0, t0 + count) to the tensors (lambda's to [B,T,Ho]).
struct RowScatter {
  int64_t b, t0, T;
  int count;
  const std::array<float*, kNumMixParts>* to;
  float* lambda;
  int64_t lambda_heads;
  float* weight;        // sum of the block for the static weight; null: not wanted
  const float* totals;  // sums [heads in][8] of the weights that the mix read, where they should be 1; null: none
};
HWY_NOINLINE void scatter_rows(const Mix& mix, const RowScatter& s, const float* sums) {
  if (!mix.row_gradients) return;
  const int64_t list = kRows * padded_heads(mix.in);
  for (int r = 0; r < s.count; ++r) {
    const int64_t at = s.b * s.T + s.t0 + r;
    if (mix.kind == MixKind::dense) {
      scatter_dense_row(mix, *s.to, s.b, s.t0 + r, s.T, sums + r * kLanes, s.weight);
    } else if (mix.kind == MixKind::pairs) {
      for (int i = 0; s.lambda && i < mix.out; ++i)
        s.lambda[at * s.lambda_heads + mix.first_out + i] =
            sums[pair_place(r, i, mix.out)] / std::max(s.totals[(2 * i + 1) * kRows + r], 1e-30f);
    } else {
      const int64_t q = mix.query_ranks, heads = mix.in, have = mix.parts->query_rank;
      const auto copy = [&](int part, int64_t ranks, int64_t first) {
        if (!mix.parts->has(part) || !(*s.to)[part]) return;
        for (int64_t k = 0; k < ranks; ++k)
          for (int64_t h = 0; h < heads; ++h)
            (*s.to)[part][(at * ranks + k) * heads + h] = sums[(first + k) * list + pair_place(r, h, heads)];
      };
      copy(kQueryDown, have, 0);
      copy(kQueryUp, have, q);
      copy(kQueryGate, 1, 2 * q);
    }
  }
}

/// The gradient of a shared matrix, summed over lanes, added to `weight` [in][out].
HWY_NOINLINE void scatter_shared(const Mix& mix, const float* sums, float* weight) {
  if (!mix.shared_gradients || !weight) return;
  const int64_t blocks_m = (mix.out + kBlockM - 1) / kBlockM;
  for (int64_t n = 0; n < mix.in; ++n)
    for (int64_t m = 0; m < mix.out; ++m) {
      const int64_t block = n / kBlockN * blocks_m + m / kBlockM, place = n % kBlockN * kBlockM + m % kBlockM;
      float total = 0;
      for (int i = 0; i < kLanes; ++i) total += sums[(block * kLanes + place) * kLanes + i];
      weight[n * mix.out + m] += total;
    }
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
