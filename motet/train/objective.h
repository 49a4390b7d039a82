#pragma once
#include <optional>

#include "motet/data/masking.h"
#include "motet/models/model.h"
#include "motet/text/tokenizer.h"
#include "motet/train/options.h"
#include "motet/train/text_data.h"

// What a training asks of the model: the next token, or those that are hidden in the text.
namespace motet {

/// Throws UsageError unless the objective suits the model: `next` one whose tokens do not see their targets, `masked`
/// one whose tokens see both sides.
void check_objective(const ModelConfig&, const TrainOptions&);

/// Throws UsageError, which names the option, where these options suit the model (in any place, without numbers too),
/// the data or so many processes not.
void check_training(const ModelImpl&, const TextData&, const TrainOptions&, int64_t processes);

/// The tokenizer's own mask token, "[MASK]" or "<mask>"; else the first id beyond its vocabulary.
int64_t mask_token(const Tokenizer&);
/// How many tokens a new model needs: those of the tokenizer, and the mask token where the objective has one.
int64_t vocabulary_for(const Tokenizer&, const TrainOptions&);

/// Hides tokens of training rows, which are numbered from the first step on. None unless the objective is masked.
/// Throws UsageError when the model has no row for the mask token, or `tokenizer` is null.
std::optional<Masking> training_masks(const ModelConfig&, const Tokenizer*, const TrainOptions&);
/// Hides tokens of the windows of a text that is scored: token by token and for each number of a window the same,
/// whatever the training, so that losses can be compared. Throws as training_masks.
Masking scored_masks(const ModelConfig&, const Tokenizer*);

}  // namespace motet
