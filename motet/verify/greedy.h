#pragma once
#include "motet/models/model.h"

namespace motet {

/// A greedy continuation: the chosen ids, and the logits [V] that chose each.
struct Continuation {
  std::vector<int64_t> ids;
  std::vector<Tensor> logits;
};

/// Everything is computed anew for each token; dynamic scaling has the base of the length reached.
Continuation recomputed(ModelImpl&, const Tensor& prompt_T, int64_t new_tokens);

/// Keys are kept. What the references do: after the prompt a local layer sees `window` keys whatever mask the prompt
/// had, and keys stay rotated with the base of the length at which they were made.
Continuation cached(ModelImpl&, const Tensor& prompt_T, int64_t new_tokens);

}  // namespace motet
