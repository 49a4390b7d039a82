#pragma once
#include "motet/models/model.h"

namespace motet {

/// What a model costs, before anything runs.
struct ModelCost {
  int64_t parameters = 0;
  std::map<std::string, int64_t> parts;  // "embedding", "attention", "feed-forward", "norms", "output" -> parameters
  double flops_per_token = 0;         // forward, a multiply-add is 2, averaged over the context; training is 3 times it
  double output_flops_per_token = 0;  // of them: for its logits, which training computes of learned tokens alone
  int64_t cache_bytes_per_token = 0;  // what a cache stores of one token over all layers, in float32
};
ModelCost model_cost(ModelImpl&);

/// The part of ModelCost::parts to which a parameter of this name belongs.
std::string model_part(const std::string& parameter);

}  // namespace motet
