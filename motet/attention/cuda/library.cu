// What libmotet_cuda.so hands out.
#include "motet/attention/cuda/between.h"
#include "motet/attention/cuda/decode.h"
#include "motet/attention/cuda/general.h"
#include "motet/attention/cuda/tensor.h"
#include "motet/cuda/device.h"

namespace motet::cuda {
namespace {

const char* general_forward(const plain::Problem& p, const Output& to, const Runtime& run) {
  return general::forward(p, to, run);
}
const char* general_backward(const plain::Problem& p, const Incoming& from, const Gradients& to, const Runtime& run) {
  return general::backward(p, from, to, run);
}

int64_t general_bytes(const plain::Problem& p, Pass pass) {
  const bool inner = pass == Pass::between || pass == Pass::between_back;
  return inner ? between::workspace_bytes(p, pass) : general::workspace_bytes(p, pass);
}

/// Kernels of a forward or backward pass, and why they leave one to the next row; null: never theirs.
struct Kernels {
  const char* (*why_not)(const plain::Problem&, Pass);
  int64_t (*workspace_bytes)(const plain::Problem&, Pass);
  const char* (*forward)(const plain::Problem&, const Output&, const Runtime&);
  const char* (*backward)(const plain::Problem&, const Incoming&, const Gradients&, const Runtime&);
};
constexpr Kernels kKernels[] = {
#ifdef MOTET_CUDA_TENSOR  // built for a GPU that has what they need
    {tensor::why_not, tensor::workspace_bytes, tensor::forward, tensor::backward},
#endif
    {decode::why_not, decode::workspace_bytes, decode::forward, nullptr},
    {nullptr, general_bytes, general_forward, general_backward},
};

const Kernels& kernels_of(const plain::Problem& p, Pass pass) {
  const Kernels* row = kKernels;
  while (row->why_not && *row->why_not(p, pass)) ++row;
  return *row;
}

bool has_own(const plain::Problem& p, Pass pass) { return kernels_of(p, pass).why_not != nullptr; }
int64_t workspace_bytes(const plain::Problem& p, Pass pass) { return kernels_of(p, pass).workspace_bytes(p, pass); }
const char* forward(const plain::Problem& p, const Output& to, const Runtime& run) {
  return kernels_of(p, Pass::forward).forward(p, to, run);
}
const char* backward(const plain::Problem& p, const Incoming& from, const Gradients& to, const Runtime& run) {
  return kernels_of(p, Pass::backward).backward(p, from, to, run);
}

}  // namespace

const Api& general_attention() {
  static const Api api{
      use_device,       general::why_not, general_bytes,      general_forward,
      general_backward, general::lse,     general::given_lse, [](const plain::Problem&, Pass) { return false; },
      between::forward, between::backward};
  return api;
}

const Api& attention() {
  static const Api api{use_device,   general::why_not,   workspace_bytes, forward,          backward,
                       general::lse, general::given_lse, has_own,         between::forward, between::backward};
  return api;
}

const char* tensor_why_not(const plain::Problem& p, Pass pass) {
  return kKernels[0].forward == decode::forward ? "built without sm_90a" : kKernels[0].why_not(p, pass);
}
const char* decode_why_not(const plain::Problem& p, Pass pass) { return decode::why_not(p, pass); }

}  // namespace motet::cuda

extern "C" __attribute__((visibility("default"))) const motet::cuda::Api* motet_cuda_attention() {
  return &motet::cuda::attention();
}
