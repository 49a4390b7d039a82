#include "motet/kernels/cuda/testing.h"

namespace motet::cuda {
namespace {

using namespace testing;

struct LossCase {
  int64_t groups, group, classes, gap;
  NumberType type;
  float size = 2;
  bool ignored = false;
};

TEST_F(Step, LossesTheirMeanAndGradientsMatchLoops) {
  for (const LossCase& o : {LossCase{1, 1, 1, 0, kFloat},
                            {2, 3, 11, 0, kFloat},
                            {2, 9, 65, 0, kFloat, 2, true},
                            {1, 6, 1000, 8, kBrain},
                            {2, 4, 5000, 0, kBrain},
                            {2, 4, 4999, 1, kHalf, 30, true},
                            {1, 5, 1032, 0, kFloat, 60},
                            {2, 2, 2048, 0, kHalf},
                            {1, 300, 16, 0, kFloat}})
    for (const bool mean : {true, false}) {
      SCOPED_TRACE(std::to_string(o.classes) + " classes");
      const int64_t rows = o.groups * o.group, stride = o.classes + o.gap, group_stride = (o.group + 1) * stride;
      Typed logits = numbers(o.type, o.groups * group_stride, o.size), dlogits(o.type, rows * o.classes);
      std::vector<int64_t> targets(static_cast<size_t>(rows));
      for (size_t r = 0; r < targets.size(); ++r)
        targets[r] = o.ignored && r % 3 == 1 ? kIgnoredTarget
                                             : static_cast<int64_t>(random_() % static_cast<uint64_t>(o.classes));
      Typed losses(kFloat, rows), normalizers(kFloat, 2 * rows), means(kFloat, 2);
      float *const mean_at = mean ? &means.floats[0] : nullptr, *const count_at = mean ? &means.floats[1] : nullptr;
      const TokenLoss l{rows, o.classes, {logits.data(), o.type, stride}, o.group, group_stride, targets.data()};
      ASSERT_EQ(kernels_.token_loss(l, {losses.floats.data(), normalizers.floats.data(), mean_at, count_at}, none_),
                nullptr);
      Typed d = numbers(kFloat, mean ? 1 : rows);
      ASSERT_EQ(kernels_.token_loss_backward(l, {d.floats.data(), normalizers.floats.data(), count_at}, dlogits.data(),
                                             none_),
                nullptr);

      Doubles want_losses, want_gradients, all = doubles(logits);
      double sum = 0, count = 0;
      for (const int64_t target : targets) count += target != kIgnoredTarget;
      for (int64_t r = 0; r < rows; ++r) {
        const double* const x = all.data() + r / o.group * group_stride + r % o.group * stride;
        const int64_t target = targets[static_cast<size_t>(r)];
        double total = 0;
        for (int64_t i = 0; i < o.classes; ++i) total += std::exp(x[i]);
        const bool counts = target != kIgnoredTarget;
        want_losses.push_back(counts ? std::log(total) - x[target] : 0);
        sum += want_losses.back();
        const double g = counts ? mean ? d.floats[0] / count : d.floats[static_cast<size_t>(r)] : 0;
        for (int64_t i = 0; i < o.classes; ++i) want_gradients.push_back((std::exp(x[i]) / total - (i == target)) * g);
      }
      expect_near(losses, want_losses, "loss", 1e-6);
      expect_near(dlogits, want_gradients, "dlogits", limit_of(o.type), true);
      if (!mean) continue;
      EXPECT_NEAR(means.floats[0], sum / count, 1e-6 * (1 + sum / count));
      EXPECT_EQ(means.floats[1], count);
    }
}

TEST_F(Step, LossesOfUnusualLogitsAreThoseOfTheDefinition) {
  const float inf = INFINITY;
  Typed logits(kFloat, 7 * 3), losses(kFloat, 7), normalizers(kFloat, 14), dlogits(kFloat, 21), d(kFloat, 7);
  logits.floats = {-inf, 1,    1,      // a class that cannot be
                   -inf, 1,    1,      // the target that cannot be
                   -inf, -inf, -inf,   // none can be
                   NAN,  1,    1,      // not numbers
                   -inf, NAN,  -inf,   //
                   1e4f, 0,    -1e4f,  //
                   1,    1,    1};     // no such class
  d.floats.assign(7, 1);
  const std::vector<int64_t> targets{1, 0, 0, 1, 0, 0, 3};
  const TokenLoss l{7, 3, {logits.data(), kFloat, 3}, 7, 21, targets.data()};
  EXPECT_EQ(kernels_.token_loss(l, {losses.floats.data(), normalizers.floats.data()}, none_), nullptr);
  EXPECT_EQ(kernels_.token_loss_backward(l, {d.floats.data(), normalizers.floats.data()}, dlogits.data(), none_),
            nullptr);
  EXPECT_NEAR(losses.floats[0], std::log(2), 1e-6);
  EXPECT_EQ(losses.floats[1], inf);
  for (const int row : {2, 3, 4, 6}) EXPECT_TRUE(std::isnan(losses.floats[static_cast<size_t>(row)])) << row;
  EXPECT_EQ(losses.floats[5], 0);
  EXPECT_EQ(dlogits.floats[0], 0);
  EXPECT_EQ(dlogits.floats[3], -1);
  for (const size_t at : {6, 9, 12, 18}) EXPECT_TRUE(std::isnan(dlogits.floats[at])) << at;
  EXPECT_EQ(dlogits.floats[15], 0);
}

}  // namespace
}  // namespace motet::cuda
