#pragma once
#include <string>
#include <vector>

#include "motet/train/run_config.h"

namespace motet {

/// A size of --sizes: what it says of [model].
struct ModelSize {
  std::string name;  // "64x2x8"
  int64_t hidden_size = 0;
  int64_t num_layers = 0, num_heads = 0;  // 0: as configured
};

/// "32,64x2,128x4x16": each WIDTH, WIDTHxLAYERS or WIDTHxLAYERSxHEADS. Throws UsageError for anything else, for a size
/// that stands there twice, and for fewer than two.
std::vector<ModelSize> parse_sizes(const std::string&);

/// The run at a size. Throws UsageError where model.intermediate_size is set: it would not grow with the width.
RunConfig sized(RunConfig, const ModelSize&);

}  // namespace motet
