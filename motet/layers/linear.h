#pragma once
#include "motet/layers/preparable.h"

namespace motet {

const std::vector<std::string>& weight_type_names();
WeightType parse_weight_type(const std::string& name);  // throws UsageError

/// Whether the small CPU kernels (motet/kernels) take x: float32 on the CPU, without gaps, and nothing asks for a
/// gradient or for autocast.
bool for_kernels(const Tensor& x);

/// torch's threads, for kernels. (at::parallel_for in our own files would be serial: they are compiled without OpenMP.)
const Threads& torch_threads();
/// part(begin, end) on parts of [0, count), of at least `grain` each, on these threads.
void over_parts(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& part);

/// y = x W^T + bias; x [...,K]. W [N,K] is the parameter `weight`; a new layer's numbers are not drawn (see
/// ModelImpl::initialize). Few rows without gradient go through the kernels (motet/kernels/linear.h), others through
/// torch.
class LinearImpl : public Preparable {
 public:
  LinearImpl(int64_t in, int64_t out, bool with_bias, at::Device device = at::kCPU);
  Tensor forward(const Tensor& x);
  /// Rows of W: what an embedding of ids [...] is, [...,K].
  Tensor rows(const Tensor& ids) const;

  /// Keeps W in this type, in memory of the arena; in fewer bits the float32 parameter is empty meanwhile, and what is
  /// kept, widened, becomes the parameter when it is dropped. Throws Error unless W is float32 on the CPU. A forward
  /// pass with gradients throws Error while W is kept in fewer bits.
  void prepare(WeightType, WeightArena&) override;
  int64_t prepared_bytes(WeightType) const override;
  void drop_prepared() override;

  /// Memory of W in fewer bits; 0 when the parameter holds it.
  int64_t kept_bytes() const;

  Tensor weight, bias;  // bias may be undefined

 private:
  friend std::vector<Tensor> linear_together(std::initializer_list<LinearImpl*> layers, const Tensor& x);
  bool takes(const Tensor& x) const;
  Weight kept() const;
  Tensor full() const;            // W as a tensor of numbers
  void refuse_gradients() const;  // while W is kept in fewer bits

  int64_t in_, out_;
  Tensor kept_, scale_;  // prepared in fewer bits: int8 or bfloat16 [N,K]; [N]
};
TORCH_MODULE(Linear);

/// x W^T by the same choice; W [N,K] of x's dtype.
Tensor linear_rows(const Tensor& x, const Tensor& weight_NK);

/// Layers that read the same x, few rows of it in one pass over all weights.
std::vector<Tensor> linear_together(std::initializer_list<LinearImpl*> layers, const Tensor& x);

}  // namespace motet
