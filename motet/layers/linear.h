#pragma once
#include "motet/layers/preparable.h"
#include "motet/ops/ops.h"

namespace motet {

/// y = x W^T + bias; x [...,K]. W [N,K] is the parameter `weight`; a new layer's numbers are not drawn (see
/// ModelImpl::initialize).
class LinearImpl : public Preparable {
 public:
  LinearImpl(int64_t in, int64_t out, bool with_bias, at::Device device = at::kCPU);
  Tensor forward(const Tensor& x);
  /// Rows of W: what an embedding of ids [...] is, [...,K].
  Tensor rows(const Tensor& ids) const;

  /// Keeps W in this type where it lies, on the CPU in memory of the arena; in fewer bits the float32 parameter is
  /// empty meanwhile, and what is kept, widened, becomes the parameter when it is dropped. What is kept in this type
  /// already stays. Throws Error unless W is float32. A forward pass with gradients throws Error while W is kept in
  /// fewer bits.
  void prepare(Prepared, WeightType, WeightArena&) override;
  int64_t prepared_bytes(WeightType) const override;
  void drop_prepared() override;

  /// Takes W as prepare() would keep it, of W's shape, on W's device: on the CPU wherever its numbers lie, a mapped
  /// file for instance.
  void keep(Matrix kept);

  /// Memory of W in fewer bits; 0 when the parameter holds it.
  int64_t kept_bytes() const;
  int64_t mapped_bytes() const { return kept_.mapped ? kept_bytes() : 0; }  // of it in files
  /// What linear() of motet/ops takes.
  LinearLayer operands() const { return {kept_.kept ? kept_ : Matrix{weight}, bias, precision}; }

  Tensor weight, bias;  // bias may be undefined
  Precision precision = Precision::highest;

 private:
  bool is_kept_in(WeightType) const;

  Matrix kept_;  // prepared in fewer bits
};
TORCH_MODULE(Linear);

/// Layers that read the same x, few rows of it in one pass over all weights.
std::vector<Tensor> linear_together(std::initializer_list<const LinearImpl*> layers, const Tensor& x);

}  // namespace motet
