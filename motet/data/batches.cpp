#include "motet/data/batches.h"

#include <algorithm>
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

void check_tokens(size_t count, int64_t context) {
  if (count < static_cast<size_t>(context) + 1) {
    fail("the text has ", count, count == 1 ? " token" : " tokens", " and a context of ", context, " needs at least ",
         context + 1);
  }
}

void append_window(Batch& batch, std::span<const int32_t> tokens, size_t start) {
  const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(start);
  batch.inputs.insert(batch.inputs.end(), begin, begin + batch.columns);
  batch.targets.insert(batch.targets.end(), begin + 1, begin + batch.columns + 1);
  ++batch.rows;
}

}  // namespace

Batches::Batches(std::span<const int32_t> tokens, BatchOptions options) : tokens_(tokens), options_(options) {
  check_size("batch_size", options.batch_size);
  check_size("context", options.context);
  check_tokens(tokens.size(), options.context);
  shuffle();
}

void Batches::shuffle() {
  std::mt19937_64 random(mixed(options_.seed, pass_));
  const auto context = static_cast<size_t>(options_.context);
  const size_t pairs = tokens_.size() - 1;  // the last token has no target
  // A short text keeps its only window in each pass.
  const size_t start = below(random, std::min(context, pairs - context + 1));
  starts_.clear();
  for (size_t at = start; at + context <= pairs; at += context) starts_.push_back(at);
  for (size_t i = starts_.size(); i > 1; --i) std::swap(starts_[i - 1], starts_[below(random, i)]);
}

Batch Batches::next() {
  Batch batch{.inputs = {}, .targets = {}, .rows = 0, .columns = options_.context};
  while (batch.rows < options_.batch_size) {
    if (window_ == starts_.size()) {
      ++pass_;
      window_ = 0;
      shuffle();
    }
    append_window(batch, tokens_, starts_[window_++]);
  }
  return batch;
}

json Batches::position() const {
  return {{"pass", pass_},
          {"window", window_},
          {"tokens", tokens_.size()},
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
  if (restored.window_ > restored.starts_.size()) {
    fail("position of the batches: window ", restored.window_, " of ", restored.starts_.size(), " in the pass");
  }
  *this = std::move(restored);
}

Batch eval_windows(std::span<const int32_t> tokens, int64_t context, int64_t max_windows) {
  check_size("context", context);
  check_tokens(tokens.size(), context);
  Batch batch{.inputs = {}, .targets = {}, .rows = 0, .columns = context};
  const auto step = static_cast<size_t>(context);
  for (size_t at = 0; at + step + 1 <= tokens.size(); at += step) {
    if (max_windows > 0 && batch.rows == max_windows) break;
    append_window(batch, tokens, at);
  }
  return batch;
}

Batch batch_rows(const Batch& batch, int64_t begin, int64_t count) {
  const int64_t first = std::clamp<int64_t>(begin, 0, batch.rows);
  const int64_t last = std::clamp<int64_t>(begin + count, first, batch.rows);
  const auto cut = [&](const std::vector<int64_t>& values) {
    return std::vector<int64_t>(values.begin() + first * batch.columns, values.begin() + last * batch.columns);
  };
  return {.inputs = cut(batch.inputs), .targets = cut(batch.targets), .rows = last - first, .columns = batch.columns};
}

}  // namespace motet
