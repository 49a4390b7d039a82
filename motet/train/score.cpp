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

// The loss of each target [B,T], and of how many its token is the likeliest, where that `is_asked`.
std::pair<Tensor, int64_t> token_losses(ModelImpl& model, const TokenTensors& tokens, int64_t at_once, bool is_asked) {
  const Tensor& targets_BT = tokens.targets;
  const auto right = [&](const Tensor& logits, const Tensor& targets) {
    return is_asked ? (logits.argmax(-1) == targets).sum().item<int64_t>() : 0;
  };
  if (at_once == 0) {
    const Tensor logits_BTV = model.forward(tokens.inputs, tokens.documents);
    return {ops::token_loss(logits_BTV, targets_BT, Loss::each), right(logits_BTV, targets_BT)};
  }
  const Tensor hidden_BTC = model.hidden(tokens.inputs, ModelImpl::positions(tokens.inputs, tokens.documents)),
               decodable_1NE = model.before_decoding(hidden_BTC).flatten(0, 1).unsqueeze(0),
               targets_1N = targets_BT.flatten().unsqueeze(0);
  std::vector<Tensor> losses;
  int64_t all_right = 0;
  for (int64_t at = 0; at < targets_1N.size(1); at += at_once) {
    const int64_t end = std::min(at + at_once, targets_1N.size(1));
    const Tensor logits_1NV = model.decoded(decodable_1NE.slice(1, at, end)), own_1N = targets_1N.slice(1, at, end);
    losses.push_back(ops::token_loss(logits_1NV, own_1N, Loss::each));
    all_right += right(logits_1NV, own_1N);
  }
  return {at::cat(losses, 1).view_as(targets_BT), all_right};
}

}  // namespace

int64_t windows_at_once(int64_t context) {
  constexpr int64_t kTokens = 8192;
  return std::max<int64_t>(1, kTokens / context);
}

Batch scored_batch(const ScoredTokens& scored, std::span<const int64_t> which) {
  Batch batch = windows_at(scored.tokens, scored.context, which, scored.documents_apart);
  if (scored.masks) scored.masks->hide(batch, std::vector<uint64_t>(which.begin(), which.end()));
  return batch;
}

double WindowScore::bits_per_byte() const {
  return loss * static_cast<double>(tokens) / std::numbers::ln2 / static_cast<double>(bytes);
}

WindowLosses window_losses(ModelImpl& model, const ScoredTokens& scored, std::span<const int64_t> which,
                           const AtOnce& at_once, const std::function<void(int64_t)>& progress) {
  at::NoGradGuard no_grad;
  WindowLosses all{.masked = scored.masks.has_value()};
  const auto rows = static_cast<size_t>(at_once.windows);
  for (size_t row = 0; row < which.size(); row += rows) {
    check_interrupt();
    const auto numbers = which.subspan(row, std::min(rows, which.size() - row));
    const Batch batch = scored_batch(scored, numbers);
    const TokenTensors tokens = as_tensors(batch, model.device());
    const auto [each, right] = token_losses(model, tokens, at_once.logits, all.masked);
    const Tensor counted = (tokens.targets != kLeftOut).sum(1).to(at::kDouble),
                 means = each.to(at::kDouble).sum(1) / counted.clamp_min(1);
    all.right += right;
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

WindowScore score_windows(ModelImpl& model, const ScoredTokens& scored, std::span<const int64_t> which,
                          const AtOnce& at_once, const std::function<void(int64_t)>& progress) {
  return window_losses(model, scored, which, at_once, progress).score();
}

}  // namespace motet
