#pragma once
#include "motet/models/model.h"

// How the tensors of a published layout hold ours: the same numbers in another order, so values, gradients and the
// states of an optimiser go through the same rows.
namespace motet {

enum class Order {
  same,         // one of ours as it is
  shape,        // one of ours in another shape
  blocks,       // several of ours behind each other along axis 0
  per_head,     // several of ours, head by head: q0 k0 v0 q1 k1 v1 ... (GPT-NeoX)
  halves,       // heads 0, H/2, 1, H/2 + 1 ... are stored as 0, 1, 2 ... (differential heads of transformers)
  interleaved,  // rotary pairs (2j, 2j + 1) of each head are stored where ours are (j, j + D/2)
};

/// One stored tensor. Names may hold "{i}", the layer.
struct Row {
  std::string stored;
  std::vector<std::string> ours;
  Order order = Order::same;
  int64_t heads = 0;                                   // of per_head, halves, interleaved
  std::vector<int64_t> stored_shape = {}, shape = {};  // of Order::shape

  /// Ours from the stored tensor. Throws c10::Error unless the shapes fit.
  std::vector<Tensor> taken(const Tensor& stored) const;
  /// The reverse.
  Tensor given(const std::vector<Tensor>& ours) const;
};

/// The rows of every layer for those that hold "{i}"; the others once.
std::vector<Row> expanded(const std::vector<Row>&, int64_t num_layers);

/// Ours by name -> the stored tensors by name. Throws Error naming a tensor of a row that `ours` lacks.
std::map<std::string, Tensor> given_all(const std::vector<Row>& expanded, const std::map<std::string, Tensor>& ours);

}  // namespace motet
