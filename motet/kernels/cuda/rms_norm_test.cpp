#include "motet/kernels/cuda/testing.h"

namespace motet::cuda {
namespace {

using namespace testing;

struct NormCase {
  int64_t rows, columns, gap;
  NumberType x, weight;
  bool weighted = true, weight_alone = false;
};

// y is cast to x's type between the norm and the weight.
NumberType out_type(const NormCase& n) { return n.weighted && n.weight != n.x ? kFloat : n.x; }

const NormCase kNorms[] = {{3, 1, 0, kFloat, kFloat},         {70, 7, 0, kFloat, kFloat},
                           {37, 64, 0, kBrain, kFloat},       {37, 64, 0, kBrain, kBrain},
                           {33, 64, 3, kHalf, kHalf},         {12, 64, 192, kBrain, kFloat},
                           {5, 300, 0, kHalf, kFloat},        {11, 1000, 24, kFloat, kBrain},
                           {20, 1024, 0, kHalf, kBrain},      {4, 1031, 1, kBrain, kFloat},
                           {700, 40, 0, kFloat, kFloat},      {3, 4096, 0, kBrain, kFloat},
                           {530, 1040, 0, kFloat, kFloat},    {40, 96, 0, kFloat, kFloat, false},
                           {9, 2056, 8, kHalf, kHalf, false}, {6, 130, 0, kBrain, kFloat, true, true}};

TEST_F(Step, RmsNormAndItsGradientsMatchLoops) {
  for (const NormCase& o : kNorms) {
    SCOPED_TRACE(std::to_string(o.rows) + " rows of " + std::to_string(o.columns));
    const int64_t stride = o.columns + o.gap;
    const double eps = 1e-3;
    Typed x = numbers(o.x, o.rows * stride), w = numbers(o.weight, o.columns);
    Typed y(out_type(o), o.rows * o.columns), inverse(kFloat, o.rows), dx(o.x, y.size()), dw(o.weight, o.columns);
    Typed dy = numbers(y.type, y.size());
    const RmsNorm n{o.rows,   o.columns, {x.data(), o.x, stride}, o.weighted ? w.data() : nullptr,
                    o.weight, y.type,    static_cast<float>(eps)};
    ASSERT_EQ(kernels_.rms_norm(n, y.data(), inverse.floats.data(), none_), nullptr);
    Memory memory(kernels_.rms_norm_workspace(n));
    const RmsNormGradients to{o.weight_alone ? nullptr : dx.data(), o.weighted ? dw.data() : nullptr};
    ASSERT_EQ(kernels_.rms_norm_backward(n, inverse.floats.data(), dy.data(), to, memory.runtime()), nullptr);

    const Doubles xs = packed(x, o.rows, o.columns, stride), ws = doubles(w), ds = doubles(dy);
    Doubles ys(xs.size()), inverses, dxs(xs.size()), dws(ws.size());
    for (int64_t r = 0; r < o.rows; ++r) {
      const auto at = [&](int64_t i) { return static_cast<size_t>(r * o.columns + i); };
      const auto weight = [&](int64_t i) { return o.weighted ? ws[static_cast<size_t>(i)] : 1; };
      const double columns = static_cast<double>(o.columns);
      double squares = 0, along = 0;
      for (int64_t i = 0; i < o.columns; ++i) squares += xs[at(i)] * xs[at(i)];
      inverses.push_back(1 / std::sqrt(squares / columns + eps));
      for (int64_t i = 0; i < o.columns; ++i) {
        const double normed = xs[at(i)] * inverses.back();
        ys[at(i)] = rounded(static_cast<float>(normed), o.x) * weight(i);
        dws[static_cast<size_t>(i)] += ds[at(i)] * normed;
        along += ds[at(i)] * weight(i) * normed / columns;
      }
      for (int64_t i = 0; i < o.columns; ++i)
        dxs[at(i)] = (ds[at(i)] * weight(i) - xs[at(i)] * inverses.back() * along) * inverses.back();
    }
    // A number that lies between two of x's type may be rounded to the other one, rarely.
    expect_near(y, ys, "y", limit_of(y.type) + (o.x == kFloat ? 0 : 2 * limit_of(o.x)));
    const std::vector<float> have = y.read();
    size_t far = 0;
    for (size_t i = 0; i < ys.size(); ++i)
      far += std::abs(have[i] - ys[i]) > limit_of(y.type) * (0.25 + std::abs(ys[i]));
    EXPECT_LE(far, ys.size() / 50);
    expect_near(inverse, inverses, "inverse", 1e-6);
    if (!o.weight_alone) expect_near(dx, dxs, "dx", limit_of(o.x));
    if (o.weighted) expect_near(dw, dws, "dweight", limit_of(o.weight), true);
  }
}

TEST_F(Step, BitsOfTheWeightsGradientDoNotDependOnTheOrderOfWarps) {
  const int64_t rows = 600, columns = 520;
  Typed x = numbers(kFloat, rows * columns), w = numbers(kFloat, columns), dy = numbers(kFloat, rows * columns);
  const RmsNorm n{rows, columns, {x.data(), kFloat, columns}, w.data(), kFloat, kFloat, 1e-5f};
  std::vector<float> seen[2];
  for (const bool reversed : {false, true}) {
    emulated::reverse_order(reversed);
    Typed y(kFloat, rows * columns), inverse(kFloat, rows), dx(kFloat, rows * columns), dw(kFloat, columns);
    Memory memory(kernels_.rms_norm_workspace(n));
    EXPECT_EQ(kernels_.rms_norm(n, y.data(), inverse.floats.data(), none_), nullptr);
    EXPECT_EQ(kernels_.rms_norm_backward(n, inverse.floats.data(), dy.data(), {dx.data(), dw.data()}, memory.runtime()),
              nullptr);
    for (const Typed* t : {&y, &dx, &dw})
      seen[reversed].insert(seen[reversed].end(), t->floats.begin(), t->floats.end());
  }
  emulated::reverse_order(false);
  EXPECT_EQ(seen[0], seen[1]);
}

}  // namespace
}  // namespace motet::cuda
