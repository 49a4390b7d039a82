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

/// Through the cache of generate/, with the base of the length reached and keys that stay rotated with that of the
/// length at which they were made, as the references do.
Continuation cached(ModelImpl&, const Tensor& prompt_T, int64_t new_tokens);

}  // namespace motet
