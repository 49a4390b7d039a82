#include "motet/data/batches.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "motet/core/error.h"

namespace motet {
namespace {

using nlohmann::json;

// Uniform below `bound`. The standard fixes mt19937_64 but not its distributions, so this is ours (Lemire 2019).
uint64_t below(std::mt19937_64& random, uint64_t bound) {
  while (true) {
    const auto product = static_cast<unsigned __int128>(random()) * bound;
    if (static_cast<uint64_t>(product) >= (0 - bound) % bound) return static_cast<uint64_t>(product >> 64);
  }
}

// A seed for each pass that neighbours do not share (splitmix64).
uint64_t mixed(uint64_t seed, uint64_t pass) {
  uint64_t z = seed + (pass + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
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

void append_window(Batch& batch, const TokenSequence& tokens, uint64_t start, bool documents) {
  const auto columns = static_cast<size_t>(batch.columns);
  const std::vector<int64_t> window = tokens.slice(start, columns + 1);
  batch.inputs.insert(batch.inputs.end(), window.begin(), window.end() - 1);
  batch.targets.insert(batch.targets.end(), window.begin() + 1, window.end());
  ++batch.rows;
  if (!documents) return;
  const size_t row = batch.documents.size();
  batch.documents.resize(row + columns);
  for (const uint64_t place : tokens.document_starts(start, start + columns)) batch.documents[row + place - start] = 1;
  std::partial_sum(batch.documents.begin() + static_cast<std::ptrdiff_t>(row), batch.documents.end(),
                   batch.documents.begin() + static_cast<std::ptrdiff_t>(row));
}

}  // namespace

Batches::Batches(const TokenSequence& tokens, BatchOptions options) : tokens_(&tokens), options_(options) {
  check_size("batch_size", options.batch_size);
  check_size("context", options.context);
  check_tokens(tokens.size(), options.context);
  shuffle();
}

void Batches::shuffle() {
  std::mt19937_64 random(mixed(options_.seed, pass_));
  const auto context = static_cast<uint64_t>(options_.context);
  const uint64_t pairs = tokens_->size() - 1;  // the last token has no target
  // A short text keeps its only window in each pass.
  start_ = below(random, std::min(context, pairs - context + 1));
  const uint64_t windows = (pairs - start_) / context;
  if (windows > UINT32_MAX)
    fail("the text has ", windows, " windows of ", context, " tokens, want at most ", UINT32_MAX);
  order_.resize(windows);
  std::iota(order_.begin(), order_.end(), 0u);
  for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[below(random, i)]);
}

Batch Batches::next() {
  Batch batch{.inputs = {}, .targets = {}, .rows = 0, .columns = options_.context};
  while (batch.rows < options_.batch_size) {
    if (window_ == order_.size()) {
      ++pass_;
      window_ = 0;
      shuffle();
    }
    const uint64_t start = start_ + order_[window_++] * static_cast<uint64_t>(options_.context);
    append_window(batch, *tokens_, start, options_.documents);
  }
  return batch;
}

json Batches::position() const {
  return {{"pass", pass_},
          {"window", window_},
          {"tokens", tokens_->size()},
          {"batch_size", options_.batch_size},
          {"context", options_.context},
          {"seed", options_.seed}};
}

void Batches::restore(const json& position) {
  const json here = this->position();
  for (const auto& [name, value] : here.items()) {
    const json* given = position.is_object() && position.contains(name) ? &position[name] : nullptr;
    if (!given || !given->is_number_unsigned()) {
      // nlohmann stores a non-negative literal of a signed type as a signed number.
      if (!given || !given->is_number_integer() || given->get<int64_t>() < 0) {
        fail("position of the batches: ", name, " is missing or no size");
      }
    }
    if (name != "pass" && name != "window" && *given != value) {
      fail("position of the batches: ", name, " was ", given->dump(), " and is ", value.dump());
    }
  }
  Batches restored = *this;
  restored.pass_ = position["pass"].get<uint64_t>();
  restored.window_ = position["window"].get<size_t>();
  restored.shuffle();
  if (restored.window_ > restored.order_.size()) {
    fail("position of the batches: window ", restored.window_, " of ", restored.order_.size(), " in the pass");
  }
  *this = std::move(restored);
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
