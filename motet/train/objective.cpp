#include "motet/train/objective.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/splitmix.h"
#include "motet/core/words.h"
#include "motet/ops/device.h"
#include "motet/text/words.h"
#include "motet/train/freeze.h"
#include "motet/train/run_config.h"

namespace motet {
namespace {

// Streams that neither each other nor the order of batches share.
constexpr uint64_t kTraining = 0x6D61736Bu, kScored = 0x73636F72u;

MaskedVocabulary vocabulary_of(const ModelConfig& config, const Tokenizer* tokenizer) {
  if (!tokenizer) fail_usage("train.objective: masked needs a text with a tokenizer, want next");
  MaskedVocabulary out{.size = tokenizer->vocabulary_size(), .mask = mask_token(*tokenizer)};
  if (out.mask >= config.vocab_size)
    fail_usage("train.objective: masked: the tokenizer has no [MASK] or <mask> and the model's ", config.vocab_size,
               " tokens leave none beyond it, want a model of at least ", out.mask + 1);
  for (int32_t id = 0; id < out.size; ++id) out.special.push_back(tokenizer->special(id));
  return out;
}

}  // namespace

void check_objective(const ModelConfig& config, const TrainOptions& train) {
  if (train.objective == Objective::next && train.mask_whole_words)
    fail_usage("train.mask_whole_words: true with train.objective = next, which hides nothing, want masked");
  if (train.objective == Objective::next && !config.causal())
    fail_usage("train.objective: next with model.causal = false, whose tokens see their targets, want masked");
  if (train.objective == Objective::masked && config.causal())
    fail_usage("train.objective: masked with model.causal = true, which hides what follows, want causal = false");
}

void check_training(const ModelImpl& model, const TextData& data, const TrainOptions& train, int64_t processes) {
  check_objective(model.config(), train);
  check_precision(train.matmul_precision, parse_device(train.device), product_type(train.dtype),
                  "train.matmul_precision");
  if (train.objective == Objective::masked && data.train->row_length() > 0)
    fail_usage("train.objective: masked: ", data.name, " has examples, whose answers alone are learned, want a text");
  if (train.position_offset > 0 && model.config().learned_positions())
    fail_usage("train.position_offset: ", train.position_offset,
               " with a table of positions, want 0 or model.positions = rope");
  if (processes > 1 && train.recompute == Recompute::block && model.config().options.shared_layers)
    fail_usage(
        "train.recompute: block with model.shared_layers and several processes, want none: gradients of a layer "
        "that is computed again several times are summed before they are all there");
  const auto names = model.named_parameters().keys();
  for (const std::string& pattern : train.no_decay.empty() ? std::vector<std::string>() : split(train.no_decay, ','))
    if (std::ranges::none_of(names, [&](const std::string& name) { return matches(pattern, name); }))
      fail_usage("train.no_decay: ", quote(pattern), " names no parameter, want for instance '*.mlp.*'");
}

int64_t mask_token(const Tokenizer& tokenizer) {
  for (const char* name : {"[MASK]", "<mask>"})
    for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
      if (tokenizer.special(id) && tokenizer.piece(id) == name) return id;
  return tokenizer.vocabulary_size();
}

int64_t vocabulary_for(const Tokenizer& tokenizer, const TrainOptions& train) {
  const int64_t own = tokenizer.vocabulary_size();
  return train.objective == Objective::masked ? std::max(own, mask_token(tokenizer) + 1) : own;
}

std::optional<Masking> training_masks(const ModelConfig& config, const Tokenizer* tokenizer,
                                      const TrainOptions& train) {
  if (train.objective != Objective::masked) return std::nullopt;
  MaskedVocabulary vocabulary = vocabulary_of(config, tokenizer);
  if (train.mask_whole_words) vocabulary.begins_word = word_beginnings(*tokenizer);
  return Masking(std::move(vocabulary), splitmix64(static_cast<uint64_t>(train.data_seed), kTraining));
}

Masking scored_masks(const ModelConfig& config, const Tokenizer* tokenizer) {
  return Masking(vocabulary_of(config, tokenizer), splitmix64(kScored));
}

}  // namespace motet
