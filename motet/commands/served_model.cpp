#include "motet/commands/served_model.h"

#include <algorithm>
#include <unordered_map>

#include "motet/core/error.h"
#include "motet/kernels/linear.h"
#include "motet/ops/device.h"
#include "motet/ops/threads.h"

namespace motet {

struct BatchModel::Sequence : ServedSequence {
  Sequence(Cache held, int64_t planned) : cache(std::move(held)), length(planned) {}
  int64_t size() const override { return cache.size(); }
  int64_t bytes() const override { return cache.bytes(); }

  Cache cache;
  int64_t length;  // planned
};

BatchModel::BatchModel(Model model, CacheOptions options, int64_t threads)
    : model_(std::move(model)),
      options_(options),
      threads_(static_cast<int>(threads)),
      costs_(cache_costs(*model_, options)),
      scales_by_length_(std::ranges::any_of(model_->blocks(), [](const Block& block) {
        const Rotary* rotary = block->self_attn->rotary();
        return rotary && rotary->options().scaling == RotaryOptions::Scaling::dynamic;
      })) {}

int64_t BatchModel::cache_bytes(int64_t tokens) const {
  constexpr int64_t kBeyondAWindow = 64;  // a piece of a prompt, until what it pushed out is dropped
  int64_t bytes = motet::cache_bytes(costs_, tokens);
  for (const auto& [token_bytes, window] : costs_)
    if (window > 0 && tokens > 2 * window) bytes += token_bytes * std::min(kBeyondAWindow, tokens - 2 * window);
  return bytes;
}

std::unique_ptr<ServedSequence> BatchModel::begin(int64_t planned) {
  return std::make_unique<Sequence>(Cache(model_->config(), planned, {0}, options_), planned);
}

// What positions are scaled by: rotated keys of two sequences are the same numbers where this is.
int64_t BatchModel::scaling_length(int64_t planned) const {
  int64_t longest = 0;
  if (!scales_by_length_) return longest;
  for (const Block& block : model_->blocks())
    if (const Rotary* rotary = block->self_attn->rotary())
      longest = std::max(longest, std::max(planned, rotary->options().max_position));
  return longest;
}

bool BatchModel::can_end_at(const ServedSequence& sequence, int64_t tokens) const {
  return static_cast<const Sequence&>(sequence).cache.can_end_at(tokens);
}

std::unique_ptr<ServedSequence> BatchModel::copy(const ServedSequence& other, int64_t tokens, int64_t planned) {
  const auto& from = static_cast<const Sequence&>(other);
  if (!from.cache.can_end_at(tokens) || scaling_length(from.length) != scaling_length(planned)) return nullptr;
  c10::InferenceMode inference;
  return std::make_unique<Sequence>(from.cache.beginning(tokens, planned), planned);
}

void BatchModel::step(std::span<const ServedPiece> given, const OnLogits& on_logits) {
  if (at::get_num_threads() != threads_) at::set_num_threads(threads_);  // OpenMP's number is each thread's own
  c10::InferenceMode inference;
  std::vector<Piece> pieces;
  std::vector<int64_t> first;
  std::unordered_map<const ServedSequence*, int64_t> end;
  for (const ServedPiece& piece : given) {
    auto& sequence = static_cast<Sequence&>(*piece.sequence);
    pieces.push_back({&sequence.cache, piece.ids, sequence.length, piece.prompt});
    const auto [at, fresh] = end.try_emplace(&sequence, sequence.size());
    first.push_back(at->second);
    at->second += static_cast<int64_t>(piece.ids.size());
  }
  const std::vector<Tensor> hidden = ragged_step(*model_, pieces);
  // 16 rows at a time, as their kernel takes them: a row's bits do not depend on the others.
  struct Row {
    size_t piece;
    int64_t place;  // in its sequence
  };
  std::vector<Tensor> rows;
  std::vector<Row> places;
  const auto tell = [&] {
    const Tensor logits = model_->logits(at::stack(rows).unsqueeze(0))[0].to(at::kCPU, at::kFloat).contiguous();
    const auto numbers = host_numbers<float>(logits);
    const auto width = static_cast<size_t>(logits.size(1));
    for (size_t i = 0; i < places.size(); ++i)
      on_logits(places[i].piece, places[i].place, numbers.subspan(i * width, width), 1);
    rows.clear(), places.clear();
  };
  for (size_t i = 0; i < given.size(); ++i) {
    const auto count = static_cast<int64_t>(given[i].ids.size());
    const int64_t from = given[i].logits == ServedPiece::Logits::all    ? 0
                         : given[i].logits == ServedPiece::Logits::last ? count - 1
                                                                        : count;
    for (int64_t row = from; row < count; ++row) {
      rows.push_back(hidden[i][row]), places.push_back({i, first[i] + row});
      if (static_cast<int64_t>(rows.size()) == kMaxLinearRows) tell();
    }
  }
  if (!rows.empty()) tell();
}

std::string BatchModel::first_non_finite(std::span<const int32_t> ids) {
  const auto count = std::min(ids.size(), static_cast<size_t>(context()));
  return model_->first_non_finite(ids_tensor(ids.first(count), model_->device()));
}

void BatchModel::rest() { end_idle_threads(); }

}  // namespace motet
