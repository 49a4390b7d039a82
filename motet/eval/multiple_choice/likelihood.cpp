#include "motet/eval/multiple_choice/likelihood.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "motet/eval/token_scores.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

// One sequence of the batch, without its first `shared` inputs.
struct Tail {
  const ScoredSequence* sequence;
  int64_t item;  // row of what is shared
};

Tensor padded(const std::vector<Tail>& tails, int64_t begin, int64_t length, at::Device device) {
  Tensor ids = at::zeros({static_cast<int64_t>(tails.size()), length}, at::kLong);
  auto rows = ids.accessor<int64_t, 2>();
  for (size_t r = 0; r < tails.size(); ++r)
    for (int64_t t = begin; t < tails[r].sequence->inputs(); ++t)
      rows[static_cast<int64_t>(r)][t - begin] = tails[r].sequence->tokens[static_cast<size_t>(t)];
  return ids.to(device);
}

// Hidden states [R,T,C] of the tails from input `shared` on; `contexts` [I,shared] is what comes before them.
Tensor hidden_after(ModelImpl& model, const Tensor& contexts, const Tensor& ids, const Tensor& item_of_row) {
  const int64_t shared = contexts.size(1), total = shared + ids.size(1);
  const at::Device device = model.device();
  const Positions before = Positions::range(0, shared, total, device),
                  own = Positions::range(shared, total, total, device), all = Positions::range(0, total, total, device);
  Tensor context = model.embedded(contexts, before);
  const auto attend = [&](int64_t, BlockImpl& block, const Tensor& normed) {  // the contexts walk along
    Mechanism& mechanism = *block.self_attn;
    const Tensor normed_context = block.normed(context);
    const Tensor memory = at::cat({normed_context.index_select(0, item_of_row), normed}, 1);
    context = block.after(context, mechanism.forward(normed_context, before));
    return mechanism.forward(normed, own, memory, all);
  };
  return model.normed(model.walk(model.embedded(ids, own), attend));
}

// The scores of sequences from the hidden states [R,T,C] of their inputs from `begin` on.
std::vector<std::pair<double, bool>> sequence_scores(ModelImpl& model, const Tensor& hidden,
                                                     const std::vector<Tail>& tails, int64_t begin) {
  std::vector<int64_t> rows, targets;
  for (size_t r = 0; r < tails.size(); ++r) {
    const ScoredSequence& s = *tails[r].sequence;
    for (int64_t t = s.inputs() - s.scored; t < s.inputs(); ++t) {
      rows.push_back(static_cast<int64_t>(r) * hidden.size(1) + t - begin);
      targets.push_back(s.tokens[static_cast<size_t>(t + 1)]);
    }
  }
  const auto ids = [&](const std::vector<int64_t>& values) {
    return ids_tensor(std::span<const int64_t>(values), model.device()).squeeze(0);
  };
  const TokenScores tokens = token_scores(model, hidden.flatten(0, 1).index_select(0, ids(rows)), ids(targets));
  const Tensor likelihood = tokens.log_likelihood.to(at::kCPU), greedy = tokens.greedy.to(at::kCPU);
  std::vector<std::pair<double, bool>> out;
  int64_t at = 0;
  for (const Tail& tail : tails) {
    const int64_t end = at + tail.sequence->scored;
    out.emplace_back(likelihood.slice(0, at, end).sum().item<double>(), greedy.slice(0, at, end).all().item<bool>());
    at = end;
  }
  return out;
}

int64_t longest_tail(const std::vector<Tail>& tails, int64_t begin) {
  int64_t longest = 0;
  for (const Tail& tail : tails) longest = std::max(longest, tail.sequence->inputs() - begin);
  return longest;
}

std::vector<std::pair<double, bool>> scored_together(ModelImpl& model, std::span<const ScoredItem* const> batch,
                                                     const std::vector<Tail>& tails) {
  const int64_t shared = shared_inputs(*batch.front());
  const Tensor ids = padded(tails, shared, longest_tail(tails, shared), model.device());
  if (shared == 0) return sequence_scores(model, model.hidden(ids), tails, 0);
  std::vector<int64_t> contexts, item_of_row;
  for (const ScoredItem* item : batch)
    contexts.insert(contexts.end(), item->choices[0].tokens.begin(), item->choices[0].tokens.begin() + shared);
  for (const Tail& tail : tails) item_of_row.push_back(tail.item);
  const Tensor before = ids_tensor(std::span<const int64_t>(contexts), model.device()).view({-1, shared});
  const Tensor rows = ids_tensor(std::span<const int64_t>(item_of_row), model.device()).squeeze(0);
  const Tensor hidden = hidden_after(model, before, ids, rows);
  return sequence_scores(model, hidden, tails, shared);
}

}  // namespace

std::vector<std::vector<size_t>> item_batches(std::span<const ScoredItem> items, size_t most) {
  struct Size {
    int64_t shared, longest;
  };
  std::vector<Size> sizes;
  for (const ScoredItem& item : items) {
    sizes.push_back({shared_inputs(item), 0});
    for (const ScoredSequence& s : item.choices) sizes.back().longest = std::max(sizes.back().longest, s.inputs());
  }
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(sizes[b].shared, sizes[b].longest) < std::tie(sizes[a].shared, sizes[a].longest);
  });
  std::vector<std::vector<size_t>> out;
  for (const size_t index : order) {
    if (out.empty() || out.back().size() == most || sizes[out.back().front()].shared != sizes[index].shared)
      out.emplace_back();
    out.back().push_back(index);
  }
  return out;
}

std::vector<ItemScore> score_items(ModelImpl& model, std::span<const ScoredItem* const> batch) {
  at::NoGradGuard no_grad;
  std::vector<Tail> tails;
  for (size_t i = 0; i < batch.size(); ++i)
    for (const ScoredSequence& s : batch[i]->choices) tails.push_back({&s, static_cast<int64_t>(i)});
  std::vector<std::pair<double, bool>> scores;
  const AttentionSection attention(model.config().attention);
  if (attention.common.rope_scaling == RotaryOptions::Scaling::dynamic) {  // a base of its own for each length
    for (const Tail& tail : tails) {
      const std::vector<Tail> alone{tail};
      scores.push_back(
          sequence_scores(model, model.hidden(padded(alone, 0, tail.sequence->inputs(), model.device())), alone, 0)
              .front());
    }
  } else {
    scores = scored_together(model, batch, tails);
  }
  std::vector<ItemScore> out(batch.size());
  for (size_t r = 0; r < tails.size(); ++r) {
    ItemScore& item = out[static_cast<size_t>(tails[r].item)];
    item.log_likelihood.push_back(scores[r].first);
    item.greedy.push_back(scores[r].second);
  }
  return out;
}

}  // namespace motet
