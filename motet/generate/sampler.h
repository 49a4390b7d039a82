#pragma once
#include <span>

#include "motet/attention/torch.h"

namespace motet {

/// How the next token is drawn, in this order: repetition penalty, top-k, top-p, min-p, temperature.
struct SamplerOptions {
  double temperature = 0.8;     // 0 takes the likeliest token
  int64_t top_k = 40;           // 0: all
  double top_p = 0.95;          // 1: all
  double min_p = 0.0;           // tokens below min_p times the likeliest are left out
  double repeat_penalty = 1.0;  // divides positive and multiplies negative logits of recent tokens
  uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions);
  /// The next token from logits [V]; `recent` are the tokens that the penalty applies to. Throws Error when no logit is
  /// finite.
  int32_t next(const Tensor& logits_V, std::span<const int32_t> recent);

 private:
  SamplerOptions options_;
  at::Generator random_;
};

}  // namespace motet
