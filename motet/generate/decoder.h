#pragma once
#include <span>
#include <vector>

#include "motet/generate/recorded_steps.h"
#include "motet/sampling/sampler.h"

namespace motet {

/// Tokens of a sequence in, the logits of the next token out, through a cache; after branch() several sequences that
/// began as one. Past the model's context it begins anew with the last half of the context. Dynamic position scaling is
/// based on the planned total in all steps: prompt and planned tokens, at most the context.
class Decoder {
 public:
  /// Throws UsageError for a model that is not causal, Error when the cache of the planned total does not fit into the
  /// memory that is free.
  Decoder(ModelImpl&, std::vector<int32_t> prompt, int64_t planned, CacheOptions = {});

  /// [sequences,V] float32 of the token after the last; once a token. Throws Error when no token is new and when a
  /// logit is NaN (naming the layer where that began), Interrupted on Ctrl-C.
  Tensor logits();
  /// What samplers look at of it, once a token: the `count` likeliest of the first `vocabulary` tokens, found by the
  /// device, so that few numbers come to the host; or all logits, where the model is on the CPU, the count is 0 or
  /// large, or equal logits leave open which they are. Throws as logits().
  struct Next {
    Tensor logits_BV;                               // on the CPU, float32; or undefined and
    std::vector<std::vector<Candidate>> likeliest;  // of each sequence, as Sampler::next takes them
  };
  Next next(int64_t count, int64_t vocabulary);
  /// The next token of each sequence.
  void push(std::span<const int32_t> tokens);

  /// The one sequence becomes `times` of it; throws as the constructor.
  void branch(int64_t times);
  /// Other tokens in place of all, in one sequence; what they share with the first of the former at the beginning is
  /// not computed again.
  void replace(std::vector<int32_t> ids);

  int64_t sequences() const { return static_cast<int64_t>(ids_.size()); }
  const std::vector<int32_t>& ids(int64_t sequence = 0) const { return ids_[static_cast<size_t>(sequence)]; }
  int64_t pending() const { return static_cast<int64_t>(ids().size()) - begin_ - cache_.size(); }  // not computed yet
  const Cache& cache() const { return cache_; }

 private:
  Cache fresh() const;
  std::vector<int64_t> next_ids(int64_t first, int64_t count) const;
  Tensor computed();
  Tensor checked(const Tensor& logits_BV) const;
  [[noreturn]] void fail_not_finite() const;

  ModelImpl& model_;
  std::vector<std::vector<int32_t>> ids_;  // of equal length
  int64_t prompt_;                         // tokens that were not drawn; the others are computed one at a time
  CacheOptions options_;
  int64_t begin_ = 0;  // token that stands at the cache's first place
  int64_t length_;
  Cache cache_;
  RecordedSteps recorded_;
};

}  // namespace motet
