#pragma once
#include <functional>

#include "motet/models/model.h"

// What the parts of the probe share: the operator's arguments of each layer, and parts of them.
namespace motet {

/// Arguments of the operator in self-attention.
struct Call {
  Queries q;
  Keys k;
  Attention attention;
};

/// Queries [t0,t1) and the keys that they may see; its weights are rows t0 to t1 of those of the whole.
Call block(const Call& whole, int64_t t0, int64_t t1);

/// Queries of a block whose [B,H,t,S] tensors have about a million numbers.
int64_t queries_of_block(const Call&);

/// A layer as it was computed: `own` is Mechanism::diagnostics, output [B,T,C] what the layer made.
struct LayerCall {
  int64_t layer = 0;
  Mechanism& mechanism;
  const Call& call;
  const std::vector<Diagnostic>& own;
  const Tensor& output_BTC;
};

/// Runs the model over ids [B,T] and shows each layer to `look`, behind the layer, for its precision is not that of the
/// definition. Throws UsageError when T exceeds the context.
void each_call(ModelImpl&, const Tensor& ids_BT, const Positions&, const std::function<void(const LayerCall&)>& look);

}  // namespace motet
