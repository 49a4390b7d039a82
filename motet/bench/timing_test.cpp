#include "motet/bench/timing.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "motet/core/error.h"

namespace motet {
namespace {

TEST(Timing, MedianOfAnOddNumberIsTheMiddleValue) { EXPECT_EQ(median(std::vector<double>{9, 1, 2}), 2); }

TEST(Timing, MedianOfAnEvenNumberIsTheMeanOfTheMiddleTwo) { EXPECT_EQ(median(std::vector<double>{4, 1, 100, 2}), 3); }

TEST(Timing, MedianOfNothingIsAnError) { EXPECT_THROW(median(std::vector<double>{}), Error); }

TEST(Timing, WallAndProcessorTimeHaveMediansOfTheirOwn) {
  const Time m = median(std::vector<Time>{{1, 30}, {2, 10}, {3, 20}});
  EXPECT_EQ(m.wall, 2);
  EXPECT_EQ(m.cpu, 20);
}

TEST(Timing, WorkTakesProcessorTime) {
  const Time t = timed([] {
    volatile double x = 1;
    for (int i = 0; i < 3000000; ++i) x = x * 1.0000001;
  });
  EXPECT_GT(t.wall, 0);
  EXPECT_GT(t.cpu, 0);
}

TEST(Timing, ContestantsTakeTurns) {
  std::string order;
  interleaved({[&] { order += 'a'; }, [&] { order += 'b'; }}, {.warmups = 1, .repeats = 2});
  EXPECT_EQ(order, "ababab");
}

TEST(Timing, WarmupsAreNotCounted) {
  int calls = 0;
  const auto slow_at_first = [&] {
    if (++calls <= 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  EXPECT_LT(interleaved({slow_at_first}, {.warmups = 2, .repeats = 1})[0].wall, 0.04);
  EXPECT_EQ(calls, 3);
}

TEST(Timing, ASleepTakesTimeOfTheClockAlone) {
  const Time t = timed([] { std::this_thread::sleep_for(std::chrono::milliseconds(40)); });
  EXPECT_GE(t.wall, 0.04);
  EXPECT_LT(t.cpu, 0.03);
}

TEST(Timing, AnEmptyContestantIsPassedOver) {
  const auto times = interleaved({[] {}, nullptr}, {.warmups = 0, .repeats = 5});
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[1].wall, 0);
}

}  // namespace
}  // namespace motet
