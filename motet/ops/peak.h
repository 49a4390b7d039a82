#pragma once
#include "motet/ops/torch.h"

namespace motet {

/// Floating-point operations a second of the fastest square matrix product that torch makes of numbers of this type on
/// this device, with torch's present number of threads: what utilisation is a part of. A multiply-add is 2. Measured
/// anew by each call, in about a tenth of a second; nothing else should run.
double peak_flops_per_second(at::ScalarType, at::Device);

}  // namespace motet
