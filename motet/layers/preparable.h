#pragma once
#include "motet/ops/matrix.h"

namespace motet {

/// What is made for inference: matrices in fewer bits, with which otherwise is computed what evaluation in training
/// computes, to the bit; or also what is laid out for few rows.
enum class Prepared { matrices, all };

/// A module that can hold a form of its parameters made for inference alone (ModelImpl::prepare). Only these calls
/// write that form: prepare() makes it, and whatever trains the module or moves it drops it. In between, forward passes
/// read it, so that threads may share the module. A forward pass with gradients reads the parameters.
class Preparable : public torch::nn::Module {
 public:
  /// What prepare() takes of the arena.
  virtual int64_t prepared_bytes(WeightType) const { return 0; }
  virtual void prepare(Prepared, WeightType, WeightArena&) {}
  /// Back to the parameters alone.
  virtual void drop_prepared() {}

  void train(bool on = true) override;
  void to(at::Device device, at::ScalarType type, bool non_blocking = false) override;
  void to(at::ScalarType type, bool non_blocking = false) override;
  void to(at::Device device, bool non_blocking = false) override;
};

}  // namespace motet
