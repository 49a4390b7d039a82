#pragma once
#include "motet/core/words.h"
#include "motet/kernels/linear.h"

namespace motet {

/// How the matrices of a model that is only run are kept.
inline const Words<WeightType>& weight_types() {
  static const Words<WeightType> all{{"float32", WeightType::float32},
                                     {"bfloat16", WeightType::bfloat16},
                                     {"float16", WeightType::float16},
                                     {"int8", WeightType::int8}};
  return all;
}

}  // namespace motet
