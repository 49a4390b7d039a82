#include "motet/train/outliers.h"

#include <gtest/gtest.h>

namespace motet {
namespace {

double wave(int step, double size) { return 3 + size * ((step * 7 % 11) - 5); }

TEST(Outliers, AStepFarAboveTheLast128IsOne) {
  Outliers outliers(6);
  for (int step = 0; step < 128; ++step) {
    EXPECT_FALSE(outliers.is_one(step == 60 ? 40 : wave(step, 0.1), wave(step, 0.2))) << step;  // too early to tell
  }
  for (int step = 128; step < 256; ++step) EXPECT_FALSE(outliers.is_one(wave(step, 0.1), wave(step, 0.2)));
  EXPECT_TRUE(outliers.is_one(5.2, 3));  // mean 3, deviation 0.32
  EXPECT_TRUE(outliers.is_one(3, 7.5));  // deviation 0.63
  EXPECT_FALSE(outliers.is_one(4.7, 3));
  EXPECT_FALSE(outliers.is_one(0.1, 0));  // below
  EXPECT_EQ(outliers.count(), 2);
}

TEST(Outliers, WhatIsLeftOutDoesNotBecomeTheMeasure) {
  Outliers outliers(6);
  for (int step = 0; step < 128; ++step) outliers.is_one(wave(step, 0.1), 1);
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(outliers.is_one(50, 1)) << i;
}

TEST(Outliers, OneInAHundredStepsIsTheMost) {
  Outliers outliers(6);
  for (int step = 0; step < 128; ++step) outliers.is_one(wave(step, 0.1), 1);
  EXPECT_FALSE(outliers.too_many(128));
  outliers.is_one(50, 1);
  EXPECT_FALSE(outliers.too_many(1));  // one may always be left out
  outliers.is_one(50, 1);
  EXPECT_TRUE(outliers.too_many(199));
  EXPECT_FALSE(outliers.too_many(200));
}

TEST(Outliers, WithoutDeviationsNothingIsOne) {
  Outliers outliers(0);
  for (int step = 0; step < 200; ++step) EXPECT_FALSE(outliers.is_one(step, step));
}

TEST(Outliers, ARestoredOneJudgesAsTheOneThatWasSaved) {
  Outliers saved(6), restored(6);
  for (int step = 0; step < 150; ++step) saved.is_one(wave(step, 0.1), wave(step, 0.2));
  saved.is_one(50, 1);
  restored.restore(nlohmann::json::parse(saved.state().dump()));
  EXPECT_EQ(restored.state(), saved.state());
  for (int step = 150; step < 400; ++step) {
    const double loss = step % 50 == 0 ? 9 : wave(step, 0.1);
    EXPECT_EQ(restored.is_one(loss, 3), saved.is_one(loss, 3)) << step;
  }
  EXPECT_EQ(restored.count(), 6);
}

}  // namespace
}  // namespace motet
