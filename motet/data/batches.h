// Batches of a token sequence in an order that depends on the tokens' count and the options alone.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "motet/data/tokens.h"

namespace motet {

// Rows of consecutive tokens; targets are the inputs one token later. Row major [rows, columns].
struct Batch {
  std::vector<int64_t> inputs;
  std::vector<int64_t> targets;
  std::vector<int64_t> documents = {};  // of each input, counted from 0 in its row; empty: not asked for
  int64_t rows = 0;
  int64_t columns = 0;
};

struct BatchOptions {
  int64_t batch_size = 1;
  int64_t context = 1;
  uint64_t seed = 0;
  bool documents = false;  // say of each input to which document it belongs
};

// Endless batches for training. In each pass the text is cut into windows of `context` tokens that do not overlap, from
// a random start below `context`, and every window comes once, in random order; a batch may reach into the next pass.
// The tokens must outlive the object.
class Batches {
 public:
  // Throws Error when there are fewer than context + 1 tokens or 2^32 windows, UsageError when a size is below 1.
  Batches(const TokenSequence& tokens, BatchOptions options);

  Batch next();

  // Where next() continues: {"pass": 0, "window": 12} with the options and the token count that it belongs to.
  nlohmann::json position() const;

  // Continues exactly where `position` was taken. Throws Error when it belongs to other options or tokens, or is
  // broken.
  void restore(const nlohmann::json& position);

 private:
  void shuffle();

  const TokenSequence* tokens_;
  BatchOptions options_;
  uint64_t pass_ = 0;
  size_t window_ = 0;
  uint64_t start_ = 0;           // of the first window of this pass
  std::vector<uint32_t> order_;  // of the windows of this pass
};

// Consecutive windows for evaluation, from the first token on; a shorter rest is left out. Throws Error when there are
// fewer than context + 1 tokens.
int64_t num_eval_windows(const TokenSequence& tokens, int64_t context);

// `count` numbers of windows below `total`, evenly spread from 0 on; all of them when there are no more.
std::vector<int64_t> spread_windows(int64_t total, int64_t count);

// The windows of these numbers.
Batch windows_at(const TokenSequence& tokens, int64_t context, std::span<const int64_t> which, bool documents = false);

}  // namespace motet
