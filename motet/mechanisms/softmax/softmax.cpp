#include "motet/mechanisms/softmax/softmax.h"

namespace motet {
namespace {

const Fields<SoftmaxOptions>& options() {
  static const Fields<SoftmaxOptions> table{{"head_norm", &SoftmaxOptions::head_norm, head_norms(),
                                             "RMS norm of each head's output with a weight, without, or none"},
                                            {"head_norm_eps",
                                             &SoftmaxOptions::head_norm_eps,
                                             {0, 1},
                                             "epsilon of the head norm",
                                             unless("head_norm", {"none"})}};
  return table;
}

}  // namespace

SoftmaxAttention::SoftmaxAttention(const Setting& s) : Projected(s, plain_sizes(s)) {
  const SoftmaxOptions o = options().read(s.options.all);
  if (o.head_norm)
    head_norm = register_module("subln", Norm(sizes_.value_dim, *o.head_norm, o.head_norm_eps, s.device));
}

Tensor SoftmaxAttention::finish(const Tensor& out_BTHE, const Tensor& x) {
  return Projected::finish(head_norm ? head_norm(out_BTHE) : out_BTHE, x);
}

MechanismEntry softmax_entry() {
  return {.name = "softmax",
          .summary = "plain multi-head attention (MHA, GQA, MQA)",
          .options = options().table(),
          .presets = {{"mha", true, {{"mechanism", "softmax"}}}},
          .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<SoftmaxAttention>(s); }};
}

}  // namespace motet
