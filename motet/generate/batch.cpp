#include "motet/generate/batch.h"

#include <algorithm>
#include <atomic>

#include "motet/core/error.h"
#include "motet/kernels/linear.h"
#include "motet/ops/device.h"
#include "motet/ops/threads.h"
#include "motet/ops/views.h"

namespace motet {
namespace {

using Pieces = std::span<const Piece* const>;

int64_t size(const Piece& piece) { return static_cast<int64_t>(piece.ids.size()); }

// Rows [first, first + count) of every tensor that has rows of tokens.
Queries rows(Queries queries, int64_t first, int64_t count) {
  const auto cut = [&](Tensor& t) {
    if (t.defined()) t = ops::rows(t, first, count);
  };
  cut(queries.q_BTHD);
  for (QueryMix* mix : {&queries.pre, &queries.post})
    cut(mix->down_BTRH), cut(mix->up_BTRH), cut(mix->gate_BTH), cut(mix->full_BTHH);
  if (queries.lambda.defined() && queries.lambda.dim() == 3) cut(queries.lambda);
  return queries;
}

Keys rows(Keys keys, int64_t first, int64_t count) {
  for_each_tensor(keys, [&](Tensor& t) {
    if (t.defined()) t = ops::rows(t, first, count);
  });
  return keys;
}

// task(0 .. n-1): side by side where each of them is small and there are enough of them for all threads.
void for_each_piece(const ModelImpl& model, int64_t n, const std::function<void(int64_t)>& task) {
  const Threads threads = torch_threads();
  const bool together = model.device().is_cpu() && !model.config().autocast && n >= threads.count;
  if (!together) return Threads{}.run(n, task);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(n));  // torch's pool would lose their messages
  std::atomic<int64_t> next{0};
  threads.run(threads.count, [&](int64_t) {  // who is done takes the next: sequences differ in length
    c10::InferenceMode inference;            // each thread has its own
    for (int64_t i = next++; i < n; i = next++) {
      try {
        task(i);
      } catch (...) {
        failures[static_cast<size_t>(i)] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// All pieces behind each other as one row [1,N] through the model: [1,N,C].
Tensor walk(ModelImpl& model, Pieces pieces) {
  std::vector<int64_t> ids;
  std::vector<Cache::Entering> entering;
  std::vector<Positions> parts;
  for (const Piece* piece : pieces) {
    ids.insert(ids.end(), piece->ids.begin(), piece->ids.end());
    entering.push_back(piece->cache->enter(size(*piece), piece->length, model.device(), piece->prompt));
    parts.push_back(entering.back().at);
  }
  const Positions at = Positions::joined(std::move(parts));
  const int64_t number = static_cast<int64_t>(pieces.size()), tokens = static_cast<int64_t>(ids.size());
  const auto attend = [&](int64_t layer, BlockImpl& block, const Tensor& normed) {
    Mechanism& mechanism = *block.self_attn;
    const Queries queries = mechanism.queries(normed, at);
    const Keys added = pieces[0]->cache->keys(mechanism, normed, at);
    std::vector<Tensor> out(pieces.size());
    for_each_piece(model, number, [&](int64_t i) {
      const auto n = static_cast<size_t>(i);
      const int64_t count = size(*pieces[n]), first = number == 1 ? 0 : i;  // several are of one token each
      out[n] = pieces[n]->cache->attend(entering[n], layer, mechanism, rows(queries, first, count),
                                        rows(added, first, count));
    });
    return mechanism.finish(number == 1 ? out[0] : at::cat(out, 1), normed);
  };
  const Tensor x = model.walk(model.embedded(moved(ids, {1, tokens}, model.device()), at), attend);
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i]->cache->entered(entering[i]);
  return model.normed(x);
}

}  // namespace

std::vector<Tensor> ragged_step(ModelImpl& model, std::span<const Piece> pieces) {
  c10::InferenceMode inference;
  std::vector<Tensor> hidden(pieces.size());
  std::vector<const Piece*> singles;
  std::vector<size_t> places;
  const auto walk_singles = [&] {
    const Tensor made = walk(model, singles);
    for (size_t i = 0; i < singles.size(); ++i) hidden[places[i]] = made[0].narrow(0, static_cast<int64_t>(i), 1);
    singles.clear(), places.clear();
  };
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece* piece = &pieces[i];
    if (piece->ids.empty()) fail("ragged_step: piece ", i, " has no tokens, want at least one");
    if (size(*piece) > 1) {
      hidden[i] = walk(model, {&piece, 1})[0];
      continue;
    }
    singles.push_back(piece), places.push_back(i);
    if (static_cast<int64_t>(singles.size()) == kMaxLinearRows) walk_singles();
  }
  if (!singles.empty()) walk_singles();
  return hidden;
}

}  // namespace motet
