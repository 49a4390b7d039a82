#include "motet/kernels/cuda/testing.h"

namespace motet::cuda {
namespace {

using namespace testing;

struct SplitCase {
  int64_t rows, branches, rank, heads, gap;
  NumberType maps, gates;
  bool has_maps = true, has_gates = true, some = false;  // only some gradients come
};

TEST_F(Step, MapsOfDcmhaAndTheirGradientsMatchLoops) {
  for (const SplitCase& o : {SplitCase{6, 2, 2, 4, 0, kFloat, kFloat},
                             {33, 2, 2, 16, 64, kBrain, kBrain},
                             {7, 1, 3, 12, 5, kHalf, kHalf},
                             {5, 2, 1, 32, 0, kBrain, kFloat},
                             {9, 2, 2, 8, 8, kFloat, kFloat, true, false},
                             {9, 2, 2, 8, 8, kBrain, kFloat, false, true},
                             {4, 2, 2, 72, 0, kFloat, kHalf, true, true, true},
                             {3, 1, 1, 1, 0, kFloat, kFloat}}) {
    SCOPED_TRACE(std::to_string(o.heads) + " heads, rank " + std::to_string(o.rank));
    const double eps = 1e-3;
    const int64_t wide = o.rank * o.heads, all_gates = o.branches * o.heads, stride = all_gates + o.gap;
    Typed maps = numbers(o.maps, o.branches * o.rows * 2 * wide), gates = numbers(o.gates, o.rows * stride);
    Typed dmaps(o.maps, maps.size()), dgates(o.gates, o.rows * all_gates);
    std::vector<Typed> made, given;
    DcmhaParts parts, gradients;
    made.reserve(6), given.reserve(6);
    const auto make = [&](void*& to, void*& gradient, NumberType type, int64_t count, bool comes) {
      to = made.emplace_back(type, count).data();
      given.push_back(numbers(type, count));
      gradient = comes ? given.back().data() : nullptr;
    };
    for (int b = 0; b < o.branches; ++b) {
      make(parts.down[b], gradients.down[b], o.maps, o.rows * wide, !o.some || b == 0);
      make(parts.up[b], gradients.up[b], o.maps, o.rows * wide, !o.some || b == 1);
      make(parts.gate[b], gradients.gate[b], o.gates, o.rows * o.heads, !o.some || b == 0);
    }
    const DcmhaSplit s{o.rows,
                       o.branches,
                       o.rank,
                       o.heads,
                       o.has_maps ? maps.data() : nullptr,
                       o.maps,
                       {o.has_gates ? gates.data() : nullptr, o.gates, stride},
                       static_cast<float>(eps)};
    ASSERT_EQ(kernels_.dcmha_split(s, parts, none_), nullptr);
    ASSERT_EQ(kernels_.dcmha_split_backward(s, gradients, {dmaps.data(), dgates.data()}, none_), nullptr);

    const Doubles m = doubles(maps), g = packed(gates, o.rows, all_gates, stride);
    const double heads = static_cast<double>(o.heads);
    Doubles dm(m.size()), dg(g.size());
    for (int b = 0; b < o.branches; ++b) {
      const auto part = [&](int which) { return doubles(given[static_cast<size_t>(3 * b + which)]); };
      const Doubles ddown = gradients.down[b] ? part(0) : Doubles(static_cast<size_t>(o.rows * wide)),
                    dup = gradients.up[b] ? part(1) : Doubles(static_cast<size_t>(o.rows * wide)),
                    dgate = gradients.gate[b] ? part(2) : Doubles(static_cast<size_t>(o.rows * o.heads));
      Doubles down(ddown.size()), up(dup.size()), gate(dgate.size());
      for (int64_t row = 0; row < o.rows; ++row) {
        for (int64_t i = 0; i < wide; ++i) {
          const auto to = static_cast<size_t>(row * wide + i),
                     at = static_cast<size_t>((b * o.rows + row) * 2 * wide + i), first = at - i % o.heads,
                     of_down = to - static_cast<size_t>(i % o.heads);
          double squares = 0, along = 0;
          for (size_t n = 0; n < static_cast<size_t>(o.heads); ++n)
            squares += m[first + n] * m[first + n], along += m[first + n] * ddown[of_down + n];
          const double inverse = 1 / std::sqrt(squares / heads + eps);
          down[to] = m[at] * inverse, up[to] = m[at + static_cast<size_t>(wide)];
          dm[at] = (ddown[to] - m[at] * inverse * inverse * along / heads) * inverse;
          dm[at + static_cast<size_t>(wide)] = dup[to];
        }
        for (int64_t n = 0; n < o.heads; ++n) {
          const auto to = static_cast<size_t>(row * o.heads + n),
                     at = static_cast<size_t>(row * all_gates + b * o.heads + n);
          gate[to] = std::tanh(g[at]);
          dg[at] = dgate[to] * (1 - gate[to] * gate[to]);
        }
      }
      const auto got = [&](int which) -> Typed& { return made[static_cast<size_t>(3 * b + which)]; };
      if (o.has_maps) expect_near(got(0), down, "down", limit_of(o.maps));
      if (o.has_maps) expect_near(got(1), up, "up", limit_of(o.maps));
      if (o.has_gates) expect_near(got(2), gate, "gate", limit_of(o.gates));
    }
    if (o.has_maps) expect_near(dmaps, dm, "dmaps", limit_of(o.maps));
    if (o.has_gates) expect_near(dgates, dg, "dgates", limit_of(o.gates));
  }
}

}  // namespace
}  // namespace motet::cuda
