#pragma once
#include "motet/probe/calls.h"
#include "motet/probe/order.h"
#include "motet/probe/probe.h"

// What it takes a longer look at a model to say: how large numbers get, how many dimensions scores have, where
// attention goes, how heads are composed, which way rotary pairs turn.
namespace motet {

/// With the letters of attention.h, and U in the place of P where heads are mixed behind the softmax, `numbers` has of
/// each head
///   self, near, middle, far   the part of |U| on the key itself, and at a distance of 1-15, 16-127, 128 or more: the
///                             mean over queries
///   logit_rank                effective rank exp(-sum p log p) of L, unmasked, p being its singular values over their
///                             sum (Roy and Vetterli 2007), 0 where all are 0; of the first 256 tokens of a batch's
///                             first row
///   pre_fixed, pre_by_query,  of a mix before the softmax, W[t,s] = fixed + of the query + of the key: squares of what
///   pre_by_key                differs from passing heads through, summed over the heads n that head m hears. fixed: of
///                             the mean over t and s; by_query, by_key: the variance over t, over s. They sum to the
///                             mean of |W[:,m] - I[:,m]|^2 over all t and s
///   pre_dynamic               the part of that sum that is not fixed
///   post_fixed ...            the same of a mix behind the softmax
///   rotary_rises              of rotary pairs, the first 256 tokens and the keys that they see: the part whose
///                             contribution to the score first rises with the distance (CoCA, arXiv:2309.08646: an
///                             angle of query to key above pi, of key to query where the key is ahead); 1/2 when angles
///                             are random, 0 when they are collinear
///   rotary_rises_near         the same of keys at a distance below 16
///   rotary_rises_weighted     the same, each pair by its size |q_j| |k_j|
///   rotary_rise               by how much scores rise so, summed over pairs: the mean over queries and keys
///   rotary_rise_tokens        after how many tokens such a contribution is largest, at most the tokens there are
struct CloseLook {
  OrderStatistics logits;  // of L where it is seen
  OrderStatistics states;  // of the layer's output
  std::vector<HeadNumbers> numbers;
};

/// Looks at a model batch by batch; T x S weights never exist at once.
class CloseProbe {
 public:
  explicit CloseProbe(ModelImpl& model) : model_(model) {}
  /// Adds ids [B,T] (documents as ModelImpl::forward has them). Throws UsageError when T exceeds the context.
  void add(const Tensor& ids_BT, const Tensor& documents_BT = {});

  std::vector<CloseLook> layers() const;
  CloseLook together() const;  // logits and states of all layers pooled, and of each number the mean of every layer

 private:
  struct Layer {
    OrderStream logits, states;
    std::vector<Diagnostic> numbers;  // summed over batches, each times its rows
  };

  ModelImpl& model_;
  std::vector<Layer> layers_;
  OrderStream logits_, states_;
  double rows_ = 0;
};

}  // namespace motet
