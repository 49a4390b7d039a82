#pragma once
#include "motet/models/model.h"

// What the attention of a model does with a text: numbers for curves, in one pass that never holds T x S weights.
namespace motet {

/// A number of each head of a layer; or one, where the layer has one.
struct HeadNumbers {
  std::string name;
  std::vector<double> by_head;
  double mean() const;
};

/// Of one layer. With L the logits of the operator, P its softmax weights and U what its mix after the softmax makes of
/// them (attention.h), `numbers` has
///   entropy            of P, of each softmax head: the mean over queries of -sum_s P log P, in nats
///   first_token        of each softmax head: the mean of P[t,0] over the queries t > 0 that see key 0
///   mixed_entropy      the same two of |U| / sum_s |U|, of each output head, for U may be negative and need not sum to
///   mixed_first_token  1; only where there is a mix after the softmax
///   output_gate, lambda, ...  what the mechanism tells of itself (Mechanism::diagnostics)
/// Means are over the rows too, and leave out queries that see no key; NaN where no query counts.
struct LayerProbe {
  double largest_logit = 0;  // of L, over what is seen; it counts every mix before the softmax and every bias
  std::vector<HeadNumbers> numbers;
};

/// Probes every layer in one pass over ids [B,T] (documents [B,T] as ModelImpl::forward has them), without gradients.
/// Weights are made anew by the operator's definition, in float32 or float64, for a block of queries at a time:
/// `queries_at_once` of them, or (0) so many that a block has about a million weights; results do not depend on it but
/// for rounding. Throws UsageError when T exceeds the context.
std::vector<LayerProbe> probe(ModelImpl&, const Tensor& ids_BT, const Tensor& documents_BT = {},
                              int64_t queries_at_once = 0);

/// The part of the last query's attention that falls on keys of each kind: of |U| / sum_s |U|, the mean over rows and
/// output heads; [layer][kind]. Of ids [B,T] whose keys are of the kinds kinds_BT [B,T] int64, 0 to count - 1.
std::vector<std::vector<double>> attention_shares(ModelImpl&, const Tensor& ids_BT, const Tensor& kinds_BT,
                                                  int64_t count);

}  // namespace motet
