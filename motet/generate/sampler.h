#pragma once
#include <span>

#include "motet/attention/torch.h"

namespace motet {

/// How the next token is drawn, in this order: penalties, top-k, top-p, min-p, typical, temperature.
struct SamplerOptions {
  double temperature = 0.8;     // 0 takes the likeliest token
  int64_t top_k = 40;           // 0: all
  double top_p = 0.95;          // 1: all
  double min_p = 0.0;           // tokens below min_p times the likeliest are left out
  double typical_p = 1.0;       // 1: all; locally typical sampling, arXiv:2202.00666
  double repeat_penalty = 1.0;  // divides positive and multiplies negative logits of recent tokens
  double frequency_penalty = 0.0, presence_penalty = 0.0;  // taken from their logits, each time and once
  uint64_t seed = 0;
};

class Sampler {
 public:
  explicit Sampler(SamplerOptions);
  /// The next token from logits [V]; `recent` are the tokens that the penalty applies to. Throws Error when no logit is
  /// finite.
  int32_t next(const Tensor& logits_V, std::span<const int32_t> recent);

 private:
  void penalise(Tensor& logits_V, std::span<const int32_t> recent) const;

  SamplerOptions options_;
  at::Generator random_;
};

}  // namespace motet
