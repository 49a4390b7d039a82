#include "motet/train/score.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "motet/core/interrupt.h"
#include "motet/ops/device.h"
#include "motet/train/text_data.h"

namespace motet {
namespace {

std::vector<double> on_the_host(const Tensor& numbers) {
  const Tensor here = numbers.to(at::kCPU).contiguous();
  const std::span<const double> all = host_numbers<double>(here);
  return {all.begin(), all.end()};
}

}  // namespace

Batch scored_batch(const ScoredTokens& scored, std::span<const int64_t> which) {
  Batch batch = windows_at(scored.tokens, scored.context, which, scored.documents_apart);
  if (scored.masks) scored.masks->hide(batch, std::vector<uint64_t>(which.begin(), which.end()));
  return batch;
}

double WindowScore::bits_per_byte() const {
  return loss * static_cast<double>(tokens) / std::numbers::ln2 / static_cast<double>(bytes);
}

WindowLosses window_losses(ModelImpl& model, const ScoredTokens& scored, std::span<const int64_t> which, int64_t rows,
                           const std::function<void(int64_t)>& progress) {
  at::NoGradGuard no_grad;
  WindowLosses all{.masked = scored.masks.has_value()};
  for (size_t row = 0; row < which.size(); row += static_cast<size_t>(rows)) {
    check_interrupt();
    const auto numbers = which.subspan(row, std::min(static_cast<size_t>(rows), which.size() - row));
    const Batch batch = scored_batch(scored, numbers);
    const TokenTensors tokens = as_tensors(batch, model.device());
    const Tensor logits = model.forward(tokens.inputs, tokens.documents),
                 each = ops::token_loss(logits, tokens.targets, Loss::each),
                 counted = (tokens.targets != kLeftOut).sum(1).to(at::kDouble),
                 means = each.to(at::kDouble).sum(1) / counted.clamp_min(1);
    if (all.masked) all.right += (logits.argmax(-1) == tokens.targets).sum().item<int64_t>();
    for (const double loss : on_the_host(means)) all.losses.push_back(loss);
    for (const double count : on_the_host(counted)) all.counts.push_back(count);
    for (const int64_t target : batch.targets)
      if (!all.masked && !scored.token_bytes.empty() && target != kLeftOut)
        all.bytes += scored.token_bytes[static_cast<size_t>(target)];
    progress(static_cast<int64_t>(all.losses.size()));
  }
  return all;
}

void WindowLosses::append(const WindowLosses& more) {
  losses.insert(losses.end(), more.losses.begin(), more.losses.end());
  counts.insert(counts.end(), more.counts.begin(), more.counts.end());
  right += more.right, bytes += more.bytes;
}

WindowScore WindowLosses::score() const {
  WindowScore score{.windows = static_cast<int64_t>(losses.size()), .bytes = bytes, .right = right, .masked = masked};
  // Less the first, so that no digits are lost.
  const double n = static_cast<double>(score.windows), all = std::accumulate(counts.begin(), counts.end(), 0.0);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < losses.size(); ++i) sum += counts[i] * (losses[i] - losses[0]);
  score.tokens = std::llround(all);
  score.loss = losses[0] + sum / all;
  for (size_t i = 0; i < losses.size(); ++i) squares += std::pow(counts[i] * (losses[i] - score.loss), 2);
  if (score.windows > 1) score.error = std::sqrt(n / (n - 1) * squares) / all;
  return score;
}

WindowScore score_windows(ModelImpl& model, const ScoredTokens& scored, std::span<const int64_t> which, int64_t rows,
                          const std::function<void(int64_t)>& progress) {
  return window_losses(model, scored, which, rows, progress).score();
}

}  // namespace motet
