// Tokens of a batch hidden for masked language modelling (BERT, arXiv:1810.04805).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "motet/data/batches.h"

namespace motet {

// Of the hidden tokens, the mask takes the place of most, another token that of some; the rest stay as they are.
inline constexpr double kHidden = 0.15, kMaskOfHidden = 0.8, kOtherOfHidden = 0.1;

// What can be hidden, and by what.
struct MaskedVocabulary {
  int64_t size = 0;                    // of the tokenizer: other tokens are drawn from 0 .. size - 1
  int64_t mask = 0;                    // id of the mask token, which may lie beyond
  std::vector<bool> special = {};      // by id: never hidden; empty: none is
  std::vector<bool> begins_word = {};  // by id: words are hidden as a whole; empty: each token on its own
};

// Hides kHidden of the tokens, or of the words. What is drawn is a function of the key, the row's number and the place
// in the row alone, so that it does not depend on the cut of a batch or on what was drawn before.
class Masking {
 public:
  Masking(MaskedVocabulary vocabulary, uint64_t key) : vocabulary_(std::move(vocabulary)), key_(key) {}

  // Hides tokens among the inputs; targets become those tokens where they are hidden, kLeftOut elsewhere. rows[i] is
  // the number of the batch's row i. A row of which chance hides nothing gets one token or word hidden, unless all of
  // its tokens are special.
  void hide(Batch& batch, std::span<const uint64_t> rows) const;

 private:
  MaskedVocabulary vocabulary_;
  uint64_t key_;
};

}  // namespace motet
