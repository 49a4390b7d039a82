#pragma once
#include <span>

#include "motet/eval/multiple_choice/sequences.h"
#include "motet/models/model.h"

namespace motet {

/// What a model makes of the endings of an item.
struct ItemScore {
  std::vector<double> log_likelihood;  // of each ending, in nats
  std::vector<bool> greedy;            // each of its tokens is the likeliest
};

/// Items that run together: those that share as many inputs among their choices, `items` of them at most, long ones
/// first. Indices into `items`. The order depends on the items and `most` alone.
std::vector<std::vector<size_t>> item_batches(std::span<const ScoredItem> items, size_t most);

/// Scores of items of one batch. What their choices share is computed once; the rest of all choices runs as one batch
/// against it. The model must be causal. With dynamic position scaling each sequence runs on its own.
std::vector<ItemScore> score_items(ModelImpl&, std::span<const ScoredItem* const> batch);

}  // namespace motet
