#include "motet/train/objective.h"

#include "motet/core/error.h"
#include "motet/core/splitmix.h"
#include "motet/text/words.h"

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
