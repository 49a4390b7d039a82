#include "motet/generate/decoder.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"

namespace motet {
namespace {

constexpr int64_t kPromptTokens = 512;  // of a prompt at once: what bounds the memory of its activations

}  // namespace

Decoder::Decoder(ModelImpl& model, std::vector<int32_t> prompt, int64_t planned, CacheOptions options)
    : model_(model),
      ids_(std::move(prompt)),
      options_(options),
      length_(std::min(static_cast<int64_t>(ids_.size()) + planned, model.config().context)),
      cache_(fresh()) {}

Cache Decoder::fresh() const { return Cache(model_.config(), model_.config().context, {0}, options_); }

void Decoder::replace(std::vector<int32_t> ids) {
  const auto shared = std::mismatch(ids.begin(), ids.end(), ids_.begin(), ids_.end()).first - ids.begin();
  const int64_t known = std::min({static_cast<int64_t>(shared), cache_.size(), static_cast<int64_t>(ids.size()) - 1});
  if (begin_ > 0 || known < 0 || !cache_.truncate(known)) begin_ = 0, cache_ = fresh();
  ids_ = std::move(ids);
}

Tensor Decoder::logits() {
  at::NoGradGuard no_grad;
  const int64_t context = model_.config().context, end = static_cast<int64_t>(ids_.size());
  if (end - begin_ > context) {
    begin_ = end - std::max<int64_t>(context / 2, 1);
    cache_ = fresh();
  }
  Tensor hidden;
  while (begin_ + cache_.size() < end) {
    check_interrupt();
    const int64_t first = begin_ + cache_.size(), count = std::min(end - first, kPromptTokens);
    const std::vector<int64_t> next(ids_.begin() + first, ids_.begin() + first + count);
    hidden = cache_.step(model_, at::tensor(next, at::kLong).unsqueeze(0), length_);
  }
  if (!hidden.defined()) fail("generate: there is no new token to compute, want a prompt or a token between");
  return model_.logits(hidden.select(1, -1)).squeeze(0);
}

}  // namespace motet
