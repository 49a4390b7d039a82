#include "motet/data/batches.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "motet/core/error.h"
#include "motet/core/splitmix.h"

namespace motet {
namespace {

// Uniform below `bound`. The standard fixes mt19937_64 but not its distributions, so this is ours (Lemire 2019).
uint64_t below(std::mt19937_64& random, uint64_t bound) {
  while (true) {
    const auto product = static_cast<unsigned __int128>(random()) * bound;
    if (static_cast<uint64_t>(product) >= (0 - bound) % bound) return static_cast<uint64_t>(product >> 64);
  }
}

void check_size(const char* name, int64_t size) {
  if (size < 1) fail_usage(name, ": ", size, " is below 1");
}

void check_tokens(uint64_t count, int64_t context) {
  if (count < static_cast<uint64_t>(context) + 1) {
    fail("the text has ", count, count == 1 ? " token" : " tokens", " and a context of ", context, " needs at least ",
         context + 1);
  }
}

std::vector<double> weights_of(const std::vector<BatchPart>& parts) {
  std::vector<double> weights;
  for (const BatchPart& part : parts) weights.push_back(part.weight);
  return weights.empty() ? std::vector<double>{1} : weights;
}

void append_window(Batch& batch, const TokenSequence& tokens, uint64_t start, bool documents) {
  const auto columns = static_cast<size_t>(batch.columns);
  const std::vector<int64_t> window = tokens.slice(start, columns + 1);
  batch.inputs.insert(batch.inputs.end(), window.begin(), window.end() - 1);
  batch.targets.insert(batch.targets.end(), window.begin() + 1, window.end());
  tokens.leave_out(start + 1, std::span(batch.targets).last(columns));
  batch.leaves_out = tokens.row_length() > 0;
  ++batch.rows;
  if (!documents) return;
  const size_t row = batch.documents.size();
  batch.documents.resize(row + columns);
  for (const uint64_t place : tokens.document_starts(start, start + columns)) batch.documents[row + place - start] = 1;
  std::partial_sum(batch.documents.begin() + static_cast<std::ptrdiff_t>(row), batch.documents.end(),
                   batch.documents.begin() + static_cast<std::ptrdiff_t>(row));
}

}  // namespace

int64_t Batch::learned() const {
  return leaves_out ? std::ranges::count_if(targets, [](int64_t t) { return t != kLeftOut; }) : -1;
}

Passes::Passes(uint64_t begin, uint64_t size, int64_t context, uint64_t seed, bool aligned, bool endless)
    : begin_(begin),
      pairs_(size - 1),  // the last token has no target
      context_(static_cast<uint64_t>(context)),
      seed_(seed),
      aligned_(aligned),
      endless_(endless) {
  check_tokens(size, context);
  source(0);
}

RowSource Passes::source(uint64_t row) {
  if (endless_) return {0, row, begin_ + row * context_};
  const auto in_pass = [&] { return row - first_row_ < order_.size(); };
  if (row < first_row_) order_.clear(), pass_ = first_row_ = 0;
  while (!in_pass()) {
    if (!order_.empty()) ++pass_, first_row_ += order_.size();
    std::mt19937_64 random(splitmix64(seed_, pass_));
    // A short text keeps its only window in each pass.
    start_ = aligned_ ? 0 : below(random, std::min(context_, pairs_ - context_ + 1));
    const uint64_t windows = (pairs_ - start_) / context_;
    if (windows > UINT32_MAX)
      fail("the text has ", windows, " windows of ", context_, " tokens, want at most ", UINT32_MAX);
    order_.resize(windows);
    if (!in_pass()) continue;  // passed over: how many windows it has is enough
    std::iota(order_.begin(), order_.end(), 0u);
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[below(random, i)]);
  }
  const uint64_t window = row - first_row_;
  return {pass_, window, begin_ + start_ + order_[window] * context_};
}

Batches::Batches(const TokenSequence& tokens, BatchOptions options, const std::vector<BatchPart>& given)
    : tokens_(&tokens), options_(options), mixture_(weights_of(given)) {
  check_size("batch_size", options.batch_size);
  check_size("context", options.context);
  // Parts of one length would have one order if they had one seed; a text that is not mixed has the seed itself.
  uint64_t seed = options.seed;
  for (const BatchPart& part : given.empty() ? std::vector<BatchPart>{{0, tokens.size()}} : given)
    parts_.emplace_back(part.begin, part.size, options.context, seed, tokens.row_length() > 0, tokens.endless()),
        seed = splitmix64(seed, parts_.size());
}

std::vector<RowSource> Batches::sources(int64_t step, int64_t first, int64_t count) {
  std::vector<RowSource> all;
  for (int64_t i = 0; i < count; ++i) {
    const Mixture::Turn turn = mixture_.turn(static_cast<uint64_t>(step * options_.batch_size + first + i));
    all.push_back(parts_[turn.source].source(turn.row));
  }
  return all;
}

std::vector<PartUse> Batches::use(int64_t steps) {
  std::vector<PartUse> all;
  for (const uint64_t rows : mixture_.counts(static_cast<uint64_t>(steps * options_.batch_size))) {
    Passes& part = parts_[all.size()];
    const RowSource next = part.source(rows);
    all.push_back(
        {rows * static_cast<uint64_t>(options_.context),
         static_cast<double>(next.pass) + static_cast<double>(next.window) / static_cast<double>(part.windows())});
  }
  return all;
}

Batch Batches::rows(int64_t step, int64_t first, int64_t count) {
  Batch batch{.inputs = {}, .targets = {}, .rows = 0, .columns = options_.context};
  for (const RowSource& from : sources(step, first, count))
    append_window(batch, *tokens_, from.token, options_.documents);
  return batch;
}

int64_t num_eval_windows(const TokenSequence& tokens, int64_t context) {
  check_size("context", context);
  check_tokens(tokens.size(), context);
  return static_cast<int64_t>((tokens.size() - 1) / static_cast<uint64_t>(context));
}

std::vector<int64_t> spread_windows(int64_t total, int64_t count) {
  std::vector<int64_t> which(static_cast<size_t>(std::min(count, total)));
  const auto n = static_cast<int64_t>(which.size());
  for (int64_t i = 0; i < n; ++i)
    which[static_cast<size_t>(i)] = static_cast<int64_t>(static_cast<__int128>(i) * total / n);
  return which;
}

Batch windows_at(const TokenSequence& tokens, int64_t context, std::span<const int64_t> which, bool documents) {
  Batch batch{.inputs = {}, .targets = {}, .rows = 0, .columns = context};
  for (const int64_t window : which)
    append_window(batch, tokens, static_cast<uint64_t>(window) * static_cast<uint64_t>(context), documents);
  return batch;
}

}  // namespace motet
