#pragma once
#include "motet/models/model.h"

namespace motet {

/// How likely a model finds tokens [K] and whether each is its likeliest, from the hidden states [K,C] before them:
/// float64 nats and bool, [K] each. Logits are made for a few rows at once.
struct TokenScores {
  Tensor log_likelihood, greedy;
};
TokenScores token_scores(ModelImpl&, const Tensor& hidden_KC, const Tensor& tokens_K);

}  // namespace motet
