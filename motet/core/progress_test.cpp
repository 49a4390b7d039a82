#include "motet/core/progress.h"

#include <gtest/gtest.h>

namespace motet {
namespace {

TEST(Progress, DurationsAreShort) {
  EXPECT_EQ(duration_text(-1), "0s");
  EXPECT_EQ(duration_text(8.4), "8s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(65), "1m05s");
  EXPECT_EQ(duration_text(3599.4), "59m59s");
  EXPECT_EQ(duration_text(3600), "1h00m");
  EXPECT_EQ(duration_text(7384), "2h03m");
}

TEST(Progress, ALineHasBarCountRateTimeLeftAndSuffix) {
  const ProgressState state = {.label = "mha", .done = 10, .total = 20, .seconds = 2, .suffix = "loss 2.31"};
  EXPECT_EQ(progress_line(state, 10), "mha  [#####-----]  50% 10/20  5.0/s  2s left  loss 2.31");
  EXPECT_EQ(progress_line(state, 0), "mha  50% 10/20  5.0/s  2s left  loss 2.31");
}

TEST(Progress, WhatWasDoneBeforeIsNoSpeed) {
  EXPECT_EQ(progress_line({.label = "a", .done = 90, .begun = 80, .total = 100, .seconds = 5}, 0),
            "a  90% 90/100  2.0/s  5s left");
  EXPECT_EQ(progress_line({.label = "a", .done = 80, .begun = 80, .total = 100, .seconds = 5}, 0), "a  80% 80/100");
}

TEST(Progress, OnlyFinishedWorkIsAHundredPercentAndHasNoTimeLeft) {
  EXPECT_EQ(progress_line({.label = "a", .done = 199, .total = 200, .seconds = 199}, 0),
            "a  99% 199/200  1.0/s  1s left");
  EXPECT_EQ(progress_line({.label = "a", .done = 20, .total = 20, .seconds = 2}, 0), "a  100% 20/20  10/s");
}

TEST(Progress, AnUnknownTotalHasNeitherBarNorTimeLeft) {
  EXPECT_EQ(progress_line({.label = "read", .done = 300, .total = 0, .seconds = 2}, 10), "read  300  150/s");
}

TEST(Progress, TheBarNeverOverflows) {
  EXPECT_EQ(progress_line({.label = "a", .done = 30, .total = 20, .seconds = 0}, 4), "a  [####]  100% 30/20");
}

TEST(Progress, ShortWorkPrintsNothing) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress("short", 3);
    for (int i = 1; i <= 3; ++i) progress.update(i, "x");
    progress.finish();
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace motet
