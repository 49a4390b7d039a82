#pragma once
#include <functional>
#include <optional>

#include "motet/data/masking.h"
#include "motet/models/model.h"

namespace motet {

/// What a model makes of windows of tokens.
struct WindowScore {
  double loss = 0;   // nats per token: the mean negative log-likelihood of the windows' targets that are not left out
  double error = 0;  // its standard error, over the windows (of a ratio, where they count unlike); 0 of a single one
  int64_t windows = 0, tokens = 0;
  int64_t bytes = 0;    // of text that the scored tokens stand for; 0: not known, or they are hidden tokens
  int64_t right = 0;    // hidden tokens that the model finds most likely
  bool masked = false;  // hidden tokens are scored
  double bits_per_byte() const;
  double accuracy() const { return static_cast<double>(right) / static_cast<double>(tokens); }  // of hidden tokens
};

/// Of which a score is made: what single windows give, so that parts of them can be put together.
struct WindowLosses {
  std::vector<double> losses, counts;  // of each: the mean of its learned targets, and how many they are
  int64_t right = 0, bytes = 0;
  bool masked = false;

  void append(const WindowLosses&);
  WindowScore score() const;
};

/// Tokens that are scored window by window.
struct ScoredTokens {
  const TokenSequence& tokens;
  std::span<const int32_t> token_bytes;  // by id (text/token_bytes.h); empty: not known
  int64_t context = 0;                   // tokens of a window
  bool documents_apart = false;          // none sees another
  std::optional<Masking> masks = {};     // hidden tokens are scored; none: each from those before it
};

/// The windows of these numbers as a model sees them.
Batch scored_batch(const ScoredTokens&, std::span<const int64_t> which);

/// What is computed together, which bounds the memory of a score and changes nothing but last bits.
struct AtOnce {
  int64_t windows = 1;
  int64_t logits = 0;  // of how many tokens; 0: of all of these windows
};
/// Of some 8192 tokens, at least one.
int64_t windows_at_once(int64_t context);

/// The windows of these numbers (data/batches.h), without gradients. The one way in which training, comparison and
/// `motet eval` score tokens. `progress` is told how many windows are done. Throws Interrupted.
WindowLosses window_losses(
    ModelImpl&, const ScoredTokens&, std::span<const int64_t> which, const AtOnce&,
    const std::function<void(int64_t)>& progress = [](int64_t) {});
WindowScore score_windows(
    ModelImpl&, const ScoredTokens&, std::span<const int64_t> which, const AtOnce&,
    const std::function<void(int64_t)>& progress = [](int64_t) {});

}  // namespace motet
