// Batches of a token sequence in an order that depends on the tokens' count and the options alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "motet/data/mixture.h"
#include "motet/data/tokens.h"

namespace motet {

// Rows of consecutive tokens; targets are the inputs one token later, or kLeftOut. Row major [rows, columns].
struct Batch {
  std::vector<int64_t> inputs;
  std::vector<int64_t> targets;
  std::vector<int64_t> documents = {};  // of each input, counted from 0 in its row; empty: not asked for
  std::vector<int64_t> starts = {};     // position of each row's first token; empty: 0
  int64_t rows = 0;
  int64_t columns = 0;

  // Targets that are not left out; -1: none can be.
  int64_t learned() const;
  bool leaves_out = false;
};

struct BatchOptions {
  int64_t batch_size = 1;
  int64_t context = 1;
  uint64_t seed = 0;
  bool documents = false;  // say of each input to which document it belongs
};

// Where a row of a batch comes from.
struct RowSource {
  uint64_t pass = 0;    // over the text or its part, from 0
  uint64_t window = 0;  // in the order of this pass
  uint64_t token = 0;   // its first
};

// A stretch of the tokens that has passes of its own; of all rows it gets its part of the weights (data/mixture.h).
struct BatchPart {
  uint64_t begin = 0, size = 0;
  double weight = 1;
};

// What a training has read of a part.
struct PartUse {
  uint64_t tokens = 0;
  double passes = 0;
};

// The windows of a stretch of tokens, pass after pass: row -> place. Not thread-safe: it keeps the order of the pass
// that was asked for last.
class Passes {
 public:
  // Throws Error when there are fewer than context + 1 tokens, or 2^32 windows.
  // `aligned`: windows begin at multiples of the context; `endless`: they come in their order, in one pass.
  Passes(uint64_t begin, uint64_t size, int64_t context, uint64_t seed, bool aligned, bool endless = false);

  RowSource source(uint64_t row);
  // Of the pass that was asked for last.
  uint64_t windows() const { return endless_ ? pairs_ / context_ : order_.size(); }

 private:
  uint64_t begin_, pairs_, context_, seed_;
  bool aligned_, endless_;
  uint64_t pass_ = 0, first_row_ = 0, start_ = 0;  // the pass: its number, its first row, its first token
  std::vector<uint32_t> order_;
};

// Endless batches for training. In each pass the text is cut into windows of `context` tokens that do not overlap, from
// a random start below `context`, and every window comes once, in random order; a batch may reach into the next pass.
// Of rows (TokenSequence::row_length) windows begin where they do; endless ones come in their own order.
// With parts, each has its own passes. What a step reads is a function of tokens, options and the step: there is no
// position to keep. The tokens must outlive the object. Not thread-safe.
class Batches {
 public:
  // Without parts there is one, of all tokens. Throws Error when a part has fewer than context + 1 tokens or 2^32
  // windows, UsageError when a size is below 1 or the weights are wrong.
  Batches(const TokenSequence& tokens, BatchOptions options, const std::vector<BatchPart>& parts = {});

  // The batch of a step, counted from 0; or its rows first ... first + count.
  Batch batch(int64_t step) { return rows(step, 0, options_.batch_size); }
  Batch rows(int64_t step, int64_t first, int64_t count);

  // Whether targets may be kLeftOut.
  bool leaves_out() const { return tokens_->row_length() > 0; }

  // Of the rows of a step.
  std::vector<RowSource> sources(int64_t step, int64_t first, int64_t count);

  // What the first `steps` steps read of each part.
  std::vector<PartUse> use(int64_t steps);

 private:
  const TokenSequence* tokens_;
  BatchOptions options_;
  Mixture mixture_;
  std::vector<Passes> parts_;
};

// Consecutive windows for evaluation, from the first token on; a shorter rest is left out. Throws Error when there are
// fewer than context + 1 tokens.
int64_t num_eval_windows(const TokenSequence& tokens, int64_t context);

// `count` numbers of windows below `total`, evenly spread from 0 on; all of them when there are no more.
std::vector<int64_t> spread_windows(int64_t total, int64_t count);

// The windows of these numbers.
Batch windows_at(const TokenSequence& tokens, int64_t context, std::span<const int64_t> which, bool documents = false);

}  // namespace motet
