#pragma once
#include "motet/attention/torch.h"
#include "motet/kernels/linear.h"
#include "motet/layers/arena.h"

namespace motet {

const std::vector<std::string>& weight_type_names();
WeightType parse_weight_type(const std::string& name);  // throws UsageError

/// Whether the small CPU kernels (motet/kernels) take x: float32 on the CPU, without gaps, and nothing asks for a
/// gradient.
bool for_kernels(const Tensor& x);

/// torch's threads, for kernels. (at::parallel_for in our own files would be serial: they are compiled without OpenMP.)
const Threads& torch_threads();
/// part(begin, end) on parts of [0, count), of at least `grain` each, on these threads.
void over_parts(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& part);

/// y = x W^T + bias; x [...,K]. W [N,K] is the parameter `weight`; a new layer's numbers are not drawn (see
/// ModelImpl::initialize). Few rows without gradient go through the kernels (motet/kernels/linear.h), others through
/// torch.
class LinearImpl : public torch::nn::Module {
 public:
  LinearImpl(int64_t in, int64_t out, bool with_bias);
  Tensor forward(const Tensor& x);
  /// Rows of W: what an embedding of ids [...] is, [...,K].
  Tensor rows(const Tensor& ids) const;

  /// For inference alone: keeps W in this type from now on, in memory of the arena; in fewer bits the float32 parameter
  /// is empty afterwards. Throws Error unless W is float32 on the CPU.
  void keep_as(WeightType, WeightArena&);
  /// What that takes of the arena.
  int64_t bytes_as(WeightType) const;

  /// Memory of W in that type; 0 when the parameter holds it.
  int64_t kept_bytes() const;

  Tensor weight, bias;  // bias may be undefined

 private:
  friend std::vector<Tensor> linear_together(std::initializer_list<LinearImpl*> layers, const Tensor& x);
  bool takes(const Tensor& x) const;
  Weight kept() const;
  Tensor full() const;  // W as a tensor of numbers

  int64_t in_, out_;
  Tensor kept_, scale_;  // int8 or bfloat16 [N,K]; [N]
};
TORCH_MODULE(Linear);

/// x W^T by the same choice; W [N,K] of x's dtype.
Tensor linear_rows(const Tensor& x, const Tensor& weight_NK);

/// Layers that read the same x, few rows of it in one pass over all weights.
std::vector<Tensor> linear_together(std::initializer_list<LinearImpl*> layers, const Tensor& x);

}  // namespace motet
