#pragma once
#include <vector>

#include "motet/generate/cache.h"

namespace motet {

/// Tokens of one sequence in, the logits of the next token out, through a cache. Past the model's context it begins
/// anew with the last half of the context. Dynamic position scaling is based on the planned total in all steps: prompt
/// and planned tokens, at most the context.
class Decoder {
 public:
  Decoder(ModelImpl&, std::vector<int32_t> prompt, int64_t planned, CacheOptions = {});

  /// [V] of the token after the last; once a token. Throws Error when no token is new, Interrupted on Ctrl-C.
  Tensor logits();
  void push(int32_t token) { ids_.push_back(token); }

  /// Other tokens in place of all; what they share with the former at the beginning is not computed again.
  void replace(std::vector<int32_t> ids);

  const std::vector<int32_t>& ids() const { return ids_; }
  int64_t pending() const { return static_cast<int64_t>(ids_.size()) - begin_ - cache_.size(); }  // not computed yet
  const Cache& cache() const { return cache_; }

 private:
  Cache fresh() const;

  ModelImpl& model_;
  std::vector<int32_t> ids_;
  CacheOptions options_;
  int64_t begin_ = 0;  // token that stands at the cache's first place
  int64_t length_;
  Cache cache_;
};

}  // namespace motet
