#include "motet/eval/token_scores.h"

#include <algorithm>

namespace motet {
namespace {

constexpr int64_t kLogitRows = 256;  // 50 MB of float32 for a vocabulary of 49152

}  // namespace

TokenScores token_scores(ModelImpl& model, const Tensor& hidden, const Tensor& tokens) {
  std::vector<Tensor> likelihoods, greedy;
  for (int64_t row = 0; row < hidden.size(0); row += kLogitRows) {
    const int64_t end = std::min(row + kLogitRows, hidden.size(0));
    Tensor logits = model.logits(hidden.slice(0, row, end));
    logits = logits.to(at::promote_types(logits.scalar_type(), at::kFloat));
    const Tensor wanted = tokens.slice(0, row, end);
    const Tensor own = logits.gather(1, wanted.unsqueeze(1)).squeeze(1);
    likelihoods.push_back(own.to(at::kDouble) - logits.logsumexp(1).to(at::kDouble));
    greedy.push_back(logits.argmax(1).eq(wanted));
  }
  return {at::cat(likelihoods), at::cat(greedy)};
}

}  // namespace motet
