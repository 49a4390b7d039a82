#include "motet/train/score.h"

#include <cmath>
#include <numbers>

#include "motet/core/interrupt.h"
#include "motet/train/text_data.h"

namespace motet {

double WindowScore::bits_per_byte() const {
  return loss * static_cast<double>(tokens) / std::numbers::ln2 / static_cast<double>(bytes);
}

WindowScore score_windows(ModelImpl& model, const ScoredTokens& scored, std::span<const int64_t> which, int64_t rows,
                          const std::function<void(int64_t)>& progress) {
  at::NoGradGuard no_grad;
  WindowScore score;
  double sum = 0, squares = 0;  // of the windows' losses, less the first: so that no digits are lost
  double first = 0;
  for (size_t row = 0; row < which.size(); row += static_cast<size_t>(rows)) {
    check_interrupt();
    const auto numbers = which.subspan(row, std::min(static_cast<size_t>(rows), which.size() - row));
    const Batch batch = windows_at(scored.tokens, scored.context, numbers, scored.documents_apart);
    const TokenTensors tokens = as_tensors(batch, model.device());
    const Tensor losses = ops::token_loss(model.forward(tokens.inputs, tokens.documents), tokens.targets, Loss::each);
    const Tensor means = losses.to(at::kDouble).mean(1).to(at::kCPU);
    for (int64_t i = 0; i < means.size(0); ++i) {
      const double loss = means[i].item<double>();
      if (score.windows++ == 0) first = loss;
      sum += loss - first, squares += (loss - first) * (loss - first);
    }
    for (const int64_t target : batch.targets)
      if (!scored.token_bytes.empty()) score.bytes += scored.token_bytes[static_cast<size_t>(target)];
    progress(score.windows);
  }
  const double n = static_cast<double>(score.windows);
  score.tokens = score.windows * scored.context;
  score.loss = first + sum / n;
  if (score.windows > 1) score.error = std::sqrt(std::max((squares - sum * sum / n) / (n - 1), 0.0) / n);
  return score;
}

}  // namespace motet
