#include "motet/verify/greedy.h"

#include "motet/generate/cache.h"

namespace motet {
namespace {

void choose(Continuation& made, const Tensor& logits_V) {
  made.logits.push_back(logits_V);
  made.ids.push_back(logits_V.argmax().item<int64_t>());
}

}  // namespace

Continuation recomputed(ModelImpl& model, const Tensor& prompt, int64_t new_tokens) {
  at::NoGradGuard no_grad;
  Continuation made;
  Tensor ids = prompt.unsqueeze(0);
  for (int64_t i = 0; i < new_tokens; ++i) {
    choose(made, model.forward(ids)[0][-1]);
    ids = at::cat({ids, at::full({1, 1}, made.ids.back(), ids.options())}, 1);
  }
  return made;
}

Continuation cached(ModelImpl& model, const Tensor& prompt, int64_t new_tokens) {
  at::NoGradGuard no_grad;
  Continuation made;
  Cache cache(model.config(), prompt.size(0) + new_tokens, {0}, {.stepwise_base = true});
  Tensor ids = prompt.unsqueeze(0);
  for (int64_t i = 0; i < new_tokens; ++i) {
    choose(made, model.logits(cache.step(model, ids, 0))[0][-1]);
    ids = at::full({1, 1}, made.ids.back(), ids.options());
  }
  return made;
}

}  // namespace motet
