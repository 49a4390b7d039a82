#include "motet/mechanisms/softmax/softmax.h"

namespace motet {
namespace {

HeadSizes sizes(const Setting& s) {
  const int64_t heads = s.integer("num_heads"), kv = num_kv_heads(s), dim = head_dim(s);
  return {.query_heads = heads,
          .key_heads = kv,
          .value_heads = kv,
          .output_heads = heads,
          .key_dim = dim,
          .value_dim = dim};
}

}  // namespace

SoftmaxAttention::SoftmaxAttention(const Setting& s) : Projected(s, sizes(s)) {}

MechanismEntry softmax_entry() {
  return {.name = "softmax",
          .summary = "plain multi-head attention (MHA, GQA, MQA)",
          .options = {},
          .presets = {{"mha", true, {{"mechanism", "softmax"}}}},
          .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<SoftmaxAttention>(s); }};
}

}  // namespace motet
