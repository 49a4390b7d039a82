#pragma once
#include "motet/ops/torch.h"

namespace motet {

/// max|got - want| / max|want| (absolute when want is 0); infinite where infinities or NaN are not at the same places,
/// or the shapes differ. An undefined `got` stands for zeros.
double output_error(const Tensor& got, const Tensor& want);

/// max|got - want| / max(max|want|, 1e-3 largest), where `largest` is the largest max|gradient| of the file. A gradient
/// that is mathematically 0 is recorded as rounding: max|got| / largest.
double gradient_error(const Tensor& got, const Tensor& want, double largest, bool zero);

/// max|t| over finite entries; 0 of an empty tensor.
double largest_magnitude(const Tensor& t);

}  // namespace motet
