#include "motet/kernels/cuda/testing.h"

namespace motet::cuda {
namespace {

using namespace testing;

struct TurnCase {
  int64_t D, pairs;
  bool interleaved;
  int64_t gap;  // behind each row of heads, as in a slice of a fused projection
  NumberType type;
  bool own_tables = false;
};

TEST_F(Step, RotationsOfSlicesMatchLoops) {
  const int64_t B = 2, T = 5, H = 3;
  for (const TurnCase& o : {TurnCase{8, 3, false, 0, kFloat},
                            {8, 3, true, 0, kFloat, true},
                            {64, 32, false, 0, kBrain},
                            {64, 32, true, 0, kBrain, true},
                            {48, 16, false, 96, kHalf},
                            {48, 12, true, 96, kHalf},
                            {40, 12, false, 40, kFloat},
                            {16, 8, false, 1, kBrain},
                            {24, 8, true, 8, kFloat, true},
                            {5, 1, true, 2, kHalf},
                            {2, 1, false, 0, kFloat},
                            {32, 0, false, 0, kBrain}})
    for (const bool back : {false, true}) {
      SCOPED_TRACE(std::to_string(o.D) + " numbers, pairs " + std::to_string(o.pairs));
      const int64_t row = H * o.D + o.gap, tables = o.own_tables ? B : 1;
      Typed x = numbers(o.type, B * T * row), angle = numbers(kFloat, tables * T * o.pairs, 3), cos = angle,
            sin = angle;
      for (float& a : cos.floats) a = std::cos(a);
      for (float& a : sin.floats) a = std::sin(a);
      Typed y(o.type, B * T * H * o.D);
      const HeadRotation r{B,
                           T,
                           H,
                           o.D,
                           o.pairs,
                           x.data(),
                           o.type,
                           T * row,
                           row,
                           o.D,
                           cos.floats.data(),
                           sin.floats.data(),
                           o.own_tables ? T * o.pairs : 0,
                           o.interleaved,
                           back};
      ASSERT_EQ(kernels_.rotate(r, y.data(), none_), nullptr);

      const Doubles xs = packed(x, B * T, H * o.D, row), c = doubles(cos), s = doubles(sin);
      Doubles ys = xs;
      for (int64_t head = 0; head < B * T * H; ++head)
        for (int64_t j = 0; j < o.pairs; ++j) {
          const auto table = static_cast<size_t>(head / H % (tables * T) * o.pairs + j);
          const auto a = static_cast<size_t>(head * o.D + (o.interleaved ? 2 * j : j));
          const size_t b = a + static_cast<size_t>(o.interleaved ? 1 : o.pairs);
          const double turn = back ? -s[table] : s[table];
          ys[a] = xs[a] * c[table] - xs[b] * turn, ys[b] = xs[b] * c[table] + xs[a] * turn;
        }
      expect_near(y, ys, "y", limit_of(o.type));
    }
}

TEST_F(Step, SwigluAndItsGradientsMatchLoops) {
  struct Case {
    int64_t rows, columns, gap;
    NumberType gate, up;
    bool up_alone = false;
  };
  for (const Case& o : {Case{1, 1, 0, kFloat, kFloat},
                        {7, 33, 0, kFloat, kFloat},
                        {5, 64, 0, kBrain, kBrain},
                        {9, 300, 4, kHalf, kHalf},
                        {6, 64, 64, kBrain, kBrain},
                        {3, 1000, 8, kFloat, kFloat, true},
                        {4, 40, 0, kBrain, kFloat},
                        {4, 41, 0, kHalf, kBrain}}) {
    SCOPED_TRACE(std::to_string(o.rows) + " rows of " + std::to_string(o.columns));
    const int64_t stride = o.columns + o.gap, count = o.rows * o.columns;
    const NumberType type = o.gate == o.up ? o.gate : kFloat;
    Typed gate = numbers(o.gate, o.rows * stride, 4), up = numbers(o.up, o.rows * stride), dy = numbers(type, count);
    if (count > 2) store(gate.data(), o.gate, 0, -1e4f), store(gate.data(), o.gate, 1, 1e4f);
    Typed y(type, count), dgate(o.gate, count), dup(o.up, count);
    const SiluTimes s{o.rows, o.columns, {gate.data(), o.gate, stride}, {up.data(), o.up, stride}, type};
    ASSERT_EQ(kernels_.silu_times(s, y.data(), none_), nullptr);
    const SiluTimesGradients to{o.up_alone ? nullptr : dgate.data(), dup.data()};
    ASSERT_EQ(kernels_.silu_times_backward(s, dy.data(), to, none_), nullptr);

    const Doubles g = packed(gate, o.rows, o.columns, stride), u = packed(up, o.rows, o.columns, stride),
                  d = doubles(dy);
    Doubles ys(g.size()), dgs(g.size()), dus(g.size());
    for (size_t i = 0; i < g.size(); ++i) {
      const double share = 1 / (1 + std::exp(-g[i]));
      ys[i] = g[i] * share * u[i], dus[i] = d[i] * g[i] * share;
      dgs[i] = d[i] * u[i] * share * (1 + g[i] * (1 - share));
    }
    expect_near(y, ys, "y", limit_of(type));
    if (!o.up_alone) expect_near(dgate, dgs, "dgate", limit_of(o.gate));
    expect_near(dup, dus, "dup", limit_of(o.up));
  }
}

}  // namespace
}  // namespace motet::cuda
