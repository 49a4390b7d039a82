// What the probe can be told; torch-free, for the tables of options.
#pragma once
#include <cstdint>

#include "motet/core/words.h"

namespace motet {

/// Attention logits in few bits, as in arXiv:2410.05258, figure 8: round(x s) / s with s = (2^(bits-1) - 1) / max |x|,
/// the largest of what is seen in a layer of one text, in one of its heads, or in one query's row of a head.
struct LogitRounding {
  enum class Per { tensor, head, row };
  int64_t bits = 0;  // 2 to 16; 0: as they are
  Per per = Per::tensor;
};
const Words<LogitRounding::Per>& logit_scales();

}  // namespace motet
