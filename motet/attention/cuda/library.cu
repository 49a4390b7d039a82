// What libmotet_cuda.so hands out.
#include "motet/attention/cuda/general.h"
#include "motet/attention/cuda/tensor.h"
#include "motet/cuda/device.h"

namespace motet::cuda {
namespace {

#ifdef MOTET_CUDA_TENSOR
bool by_tensor_cores(const plain::Problem& p, Pass pass) { return !*tensor::why_not(p, pass); }

int64_t workspace_bytes(const plain::Problem& p, Pass pass) {
  return by_tensor_cores(p, pass) ? tensor::workspace_bytes(p, pass) : general::workspace_bytes(p, pass);
}
const char* forward(const plain::Problem& p, const Output& to, const Runtime& run) {
  return by_tensor_cores(p, Pass::forward) ? tensor::forward(p, to, run) : general::forward(p, to, run);
}
const char* backward(const plain::Problem& p, const Incoming& from, const Gradients& to, const Runtime& run) {
  return by_tensor_cores(p, Pass::backward) ? tensor::backward(p, from, to, run) : general::backward(p, from, to, run);
}
#endif

const char* general_forward(const plain::Problem& p, const Output& to, const Runtime& run) {
  return general::forward(p, to, run);
}
const char* general_backward(const plain::Problem& p, const Incoming& from, const Gradients& to, const Runtime& run) {
  return general::backward(p, from, to, run);
}

}  // namespace

const Api& general_attention() {
  static const Api api{use_device,       general::why_not, general::workspace_bytes, general_forward,
                       general_backward, general::lse,     general::given_lse};
  return api;
}

#ifdef MOTET_CUDA_TENSOR
const Api& attention() {
  static const Api api{use_device, general::why_not, workspace_bytes,   forward,
                       backward,   general::lse,     general::given_lse};
  return api;
}
const char* tensor_why_not(const plain::Problem& p, Pass pass) { return tensor::why_not(p, pass); }
#else  // built for no GPU that has what they need
const Api& attention() { return general_attention(); }
const char* tensor_why_not(const plain::Problem&, Pass) { return "built without sm_90a"; }
#endif

}  // namespace motet::cuda

extern "C" __attribute__((visibility("default"))) const motet::cuda::Api* motet_cuda_attention() {
  return &motet::cuda::attention();
}
