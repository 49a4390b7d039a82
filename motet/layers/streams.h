#pragma once
#include "motet/ops/torch.h"

namespace motet {

/// The random numbers that a model starts with. Every tensor has a stream of its own, named by the seed and the
/// tensor's full name: what one tensor draws changes no other, and two models share the start of each tensor that has
/// one name and one shape in both. Numbers are drawn on the CPU in float32 and then copied, so that they are the same
/// for every device and dtype.
class Streams {
 public:
  explicit Streams(uint64_t seed, std::string prefix = "") : seed_(seed), prefix_(std::move(prefix)) {}
  /// Those of a part of the model: names begin with `prefix` and the dot behind it.
  Streams of(const std::string& part) const { return Streams(seed_, prefix_ + part + "."); }

  void normal(const std::string& name, Tensor to, double deviation) const;
  void uniform(const std::string& name, Tensor to, double bound) const;  // in -bound .. bound

 private:
  at::Generator stream(const std::string& name) const;

  uint64_t seed_;
  std::string prefix_;
};

}  // namespace motet
