// Spikes that were planted are found, by a plain loop too.
#include "motet/lab/watch.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motet/core/splitmix.h"

namespace motet {
namespace {

double uniform(uint64_t number) { return static_cast<double>(splitmix64(7, number) >> 11) * 0x1p-53; }

// A falling loss with noise.
std::vector<double> falling(size_t steps) {
  std::vector<double> losses;
  for (size_t i = 0; i < steps; ++i) losses.push_back(2 + std::exp(-static_cast<double>(i) / 300) + 0.1 * uniform(i));
  return losses;
}

// The definition in two passes over sums that start anew at each step.
int64_t plain(const std::vector<double>& losses) {
  int64_t count = 0;
  for (int i = 0; i < static_cast<int>(losses.size()); ++i) {
    if (i < 50) continue;
    double sum = 0, squares = 0;
    for (int j = i - 50; j < i; ++j) sum += losses[static_cast<size_t>(j)];
    for (int j = i - 50; j < i; ++j) squares += std::pow(losses[static_cast<size_t>(j)] - sum / 50, 2);
    if (losses[static_cast<size_t>(i)] - sum / 50 > 4 * std::sqrt(squares / 49)) ++count;
  }
  return count;
}

TEST(Spikes, AreThoseThatWerePlanted) {
  const std::vector<double> quiet = falling(600);
  EXPECT_EQ(spikes(quiet), 0);
  std::vector<double> planted = quiet;
  for (const size_t at : {60, 200, 201, 599}) planted[at] += 1;
  EXPECT_EQ(plain(planted), 4) << "the second of two in a row is one too";
  EXPECT_EQ(spikes(planted), 4);
  std::vector<double> early = quiet;
  early[49] += 5;
  EXPECT_EQ(spikes(early), 0) << "nothing is known yet";
  early = quiet, early[50] += 5;
  EXPECT_EQ(spikes(early), 1);
  std::vector<double> fall = quiet;
  fall[300] -= 5;
  EXPECT_EQ(spikes(fall), 0) << "only upwards";
  EXPECT_EQ(spikes({}), 0);
}

TEST(Spikes, EqualThePlainLoop) {
  for (uint64_t series = 0; series < 50; ++series) {
    std::vector<double> losses = falling(300);
    // Noise with heavy tails, of which some lies beyond the limit.
    for (size_t i = 0; i < losses.size(); ++i) losses[i] += 0.02 / (uniform(1000 * (series + 1) + i) + 0.01);
    EXPECT_EQ(spikes(losses), plain(losses)) << series;
    EXPECT_GT(plain(losses), 0) << series;
  }
}

TEST(Watched, IsBehindTheWarmupAndCountsWhatWasNoLongerTrained) {
  Watched run{.losses = falling(100), .gradient_norms = std::vector<double>(100, 1.0), .planned = 100, .warmup = 10};
  run.gradient_norms[9] = 50, run.gradient_norms[10] = 7;
  using Numbers = std::map<std::string, double>;
  EXPECT_EQ(watched(run), (Numbers{{"diverged", 0}, {"largest_gradient", 7}, {"spikes", 0}}));
  run.gradient_norms[99] = 8, run.losses[80] += 1;
  EXPECT_EQ(watched(run), (Numbers{{"diverged", 0}, {"largest_gradient", 8}, {"spikes", 1}}));
  run.gradient_norms[50] = INFINITY, run.gradient_norms[51] = NAN;
  EXPECT_EQ(watched(run), (Numbers{{"diverged", 0}, {"largest_gradient", 8}, {"spikes", 1}}));
  run.diverged = true, run.planned = 130;
  EXPECT_EQ(watched(run), (Numbers{{"diverged", 1}, {"largest_gradient", 8}, {"spikes", 31}}));
  run.losses.resize(10), run.gradient_norms.resize(10);
  EXPECT_EQ(watched(run), (Numbers{{"diverged", 1}, {"spikes", 120}}));
}

}  // namespace
}  // namespace motet
