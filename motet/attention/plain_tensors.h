#pragma once
#include "motet/attention/kernels.h"
#include "motet/attention/plain.h"

// Between tensors and plain numbers: what every kernel without torch is handed, on the CPU and on a GPU alike.
namespace motet {

/// Sizes, heads and types of a problem: everything but the pointers.
plain::Problem plain_sizes(const Problem&);

/// A problem in plain numbers, with the tensors that they lie in. Mixes are as they were given, those in 8 bits in
/// float32; or the key side alone is, in 8 bits too, and the others are in float32.
class PlainProblem {
 public:
  enum class Mixes : uint8_t { as_given, key_side_as_given };
  PlainProblem(const Problem&, Mixes);

  const plain::Problem& get() const { return p_; }
  plain::Operand operand(const Tensor& x_BTHE);
  /// float32 numbers in one piece.
  const float* floats(const Tensor&);

 private:
  const Tensor& hold(Tensor t) { return keep_.emplace_back(std::move(t)); }
  plain::MixTensor mix_tensor(const Tensor& given, bool as_given);
  plain::HeadMix mix(const HeadMix&, std::span<const Tensor, kNumMixParts> scales, Mixes);
  plain::Pairs pairs(const Tensor& lambda);
  template <class Plain>
  void add_scales(Plain&, const Tensor& scale);

  plain::Problem p_;
  std::vector<Tensor> keep_;
};

/// Memory for the wanted gradients, contiguous, in the shapes of the inputs; lambda's is [B,T,Ho]. All are float32,
/// or those of q, k and v in their own dtypes.
class PlainGradients {
 public:
  enum class Types : uint8_t { float32, inputs };
  PlainGradients(const Problem&, const Wanted&, Types);

  /// undefined: not wanted
  const Tensor& tensor(int input) const { return g_[input]; }
  /// null: not wanted
  void* pointer(int input) const { return g_[input].defined() ? g_[input].mutable_data_ptr() : nullptr; }
  float* floats(int input) const { return static_cast<float*>(pointer(input)); }
  /// In the inputs' dtypes, lambda's in its shape.
  Gradients finish() &&;

 private:
  const Problem& p_;
  Gradients g_;
};

/// out [B,T,Ho,E] in q's dtype and lse [B,Ha,T] in float32, to be filled.
Tensor empty_out(const Problem&);
Tensor empty_lse(const Problem&);

}  // namespace motet
