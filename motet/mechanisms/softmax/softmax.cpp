#include "motet/mechanisms/softmax/softmax.h"

namespace motet {
SoftmaxAttention::SoftmaxAttention(const Setting& s) : Projected(s, plain_sizes(s)) {}

MechanismEntry softmax_entry() {
  return {.name = "softmax",
          .summary = "plain multi-head attention (MHA, GQA, MQA)",
          .options = {},
          .presets = {{"mha", true, {{"mechanism", "softmax"}}}},
          .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<SoftmaxAttention>(s); }};
}

}  // namespace motet
