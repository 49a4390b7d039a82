// Which row of a training comes from which source: a fixed schedule, nothing is drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace motet {

// The schedule repeats every 10,000 rows. Of these a source gets 10,000 times its weight, rounded (largest remainder);
// of any first n of them it gets less than one row more or fewer than its part of n (quota method, Balinski and Young
// 1975).
class Mixture {
 public:
  static constexpr uint64_t kPeriod = 10'000;

  // Weights sum to 1 after scaling. Throws UsageError for one that is not finite and above 0, or so small that its
  // source would get no row, and for more than 1000 sources.
  explicit Mixture(std::span<const double> weights);

  struct Turn {
    size_t source = 0;
    uint64_t row = 0;  // how many rows of the source came before
  };
  Turn turn(uint64_t row) const;
  // How many of the first `rows` are of each source.
  std::vector<uint64_t> counts(uint64_t rows) const;

 private:
  std::vector<uint64_t> per_period_;  // rows of each source
  std::vector<Turn> turns_;           // of one period
};

}  // namespace motet
