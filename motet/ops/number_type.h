#pragma once
#include "motet/core/number_type.h"
#include "motet/ops/torch.h"

namespace motet {

inline bool has_number_type(const Tensor& t) {
  return t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16 || t.scalar_type() == at::kHalf;
}

/// Of a tensor that has one.
inline NumberType number_type(const Tensor& t) {
  return t.scalar_type() == at::kFloat      ? NumberType::float32
         : t.scalar_type() == at::kBFloat16 ? NumberType::bfloat16
         : t.scalar_type() == at::kChar     ? NumberType::int8
                                            : NumberType::float16;
}
inline at::ScalarType dtype_of(NumberType type) {
  return type == NumberType::float32    ? at::kFloat
         : type == NumberType::bfloat16 ? at::kBFloat16
         : type == NumberType::int8     ? at::kChar
                                        : at::kHalf;
}

}  // namespace motet
