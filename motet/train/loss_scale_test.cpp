#include "motet/train/loss_scale.h"

#include "motet/core/testing.h"
#include "motet/train/loss.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;

TEST(LossScale, HalvesWhenAGradientIsNotFiniteAndDoublesAfterTwoThousandSteps) {
  LossScale scale(true);
  EXPECT_EQ(scale.value(), 65536);
  EXPECT_FALSE(scale.update(false));
  EXPECT_EQ(scale.value(), 32768);
  for (int i = 0; i < 1999; ++i) EXPECT_TRUE(scale.update(true));
  EXPECT_EQ(scale.value(), 32768);
  LossScale other(true);
  other.restore(scale.state());
  for (LossScale* one : {&scale, &other}) {
    EXPECT_TRUE(one->update(true));
    EXPECT_EQ(one->value(), 65536);
    for (int i = 0; i < 1999; ++i) one->update(true);
    EXPECT_EQ(one->value(), 65536);
    for (int i = 0; i < 16; ++i) {
      EXPECT_TRUE(one->can_fall());
      one->update(false);
    }
    EXPECT_EQ(one->value(), 1);
    EXPECT_FALSE(one->can_fall());
  }
}

TEST(LossScale, WithoutFloat16ItDoesNothing) {
  LossScale none(false);
  EXPECT_EQ(none.value(), 1);
  EXPECT_TRUE(none.update(true));
  EXPECT_FALSE(none.can_fall());
  const Tensor gradient = at::ones({3});
  none.unscale({gradient}, 1);
  EXPECT_TRUE(gradient.equal(at::ones({3})));
}

TEST(LossScale, UnscaledGradientsAreThoseOfTheLoss) {
  LossScale scale(true);
  const Tensor a = at::full({3}, 65536.0 * 5), b = at::full({2, 2}, 65536.0);
  scale.unscale({a, b}, 1);
  EXPECT_TRUE(a.equal(at::full({3}, 5.0)));
  EXPECT_TRUE(b.equal(at::ones({2, 2})));
}

// Twenty steps are near those of float32, and one whose gradient is not finite is left out.
TEST(Trainer, Float16TrainsAsFloat32AndLeavesOutWhatOverflows) {
  const TextData data = two_texts();
  const RunConfig wide = small_run(), half = small_run({{"train.dtype", "float16"}});
  for (const char* mechanism : {"softmax", "dcmha", "differential"}) {
    Trainer a = trainer(wide, data, mechanism), b = trainer(half, data, mechanism);
    for (int i = 0; i < 20; ++i) {
      const StepRecord one = a.step(), other = b.step();
      EXPECT_NEAR(one.loss, other.loss, 0.01) << mechanism << " " << i;
      EXPECT_NEAR(one.gradient_norm, other.gradient_norm, 0.05 * one.gradient_norm) << mechanism << " " << i;
      EXPECT_EQ(other.loss_scale, 65536);
      EXPECT_FALSE(other.skipped);
    }
    const WindowScore half_score = b.evaluate();
    EXPECT_NEAR(half_score.loss, a.evaluate().loss, 0.01);
  }
}

TEST(Trainer, AnOverflowOfFloat16IsLeftOutAndTheScaleFalls) {
  const TextData data = two_texts();
  const RunConfig run = small_run({{"train.dtype", "float16"}, {"train.learning_rate", "0"}});
  Trainer t = trainer(run, data);
  nlohmann::json state = t.state();
  state["loss_scale"] = {{"scale", 1e9}, {"finite_steps", 0}};  // beyond float16
  t.restore(state, t.tensors());
  int skipped = 0;
  double scale = 1e9;
  StepRecord record = t.step();
  for (; record.skipped; record = t.step()) {
    EXPECT_FALSE(std::isfinite(record.gradient_norm));
    EXPECT_EQ(record.loss_scale, scale);
    scale /= 2, ++skipped;
  }
  EXPECT_GT(skipped, 2);
  EXPECT_TRUE(std::isfinite(record.gradient_norm));
  EXPECT_EQ(t.state()["loss_scale"]["scale"], scale);
  EXPECT_EQ(t.state()["loss_scale"]["finite_steps"], 1);
  EXPECT_EQ(t.steps_done(), skipped + 1);
}

// Of 4096 tokens as targets most are none of 8192 rows: their gradients are 1/4096 of a mean's 1/8192, below float16.
TEST(TrainingLoss, GradientsOfFloat16LogitsInPartsHaveTheFactor) {
  Model model = fresh(tiny({}, {}, 4096));
  const Tensor ids = at::randint(4, {512, 16}, at::kLong);
  const auto others = [&](at::ScalarType products, double factor) {  // of the output matrix: rows of no target
    model->zero_grad();
    model->set_autocast(products == at::kHalf ? std::optional(products) : std::nullopt);
    training_loss(*model, {ids, ids, {}}, {.loss_rows = 1024}, {}, factor).objective.backward();
    return model->output_weight().grad().slice(0, 4) / factor;
  };
  const Tensor wanted = others(at::kFloat, 1), made = others(at::kHalf, 65536), vanished = others(at::kHalf, 1);
  EXPECT_LT(((made - wanted).norm() / wanted.norm()).item<double>(), 0.01);
  EXPECT_GT(((vanished - wanted).norm() / wanted.norm()).item<double>(), 0.1) << "the sizes show nothing";
}

}  // namespace
}  // namespace motet
