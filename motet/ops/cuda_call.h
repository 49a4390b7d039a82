#pragma once
#include "motet/cuda/runtime.h"
#include "motet/ops/cuda_library.h"
#include "motet/ops/torch.h"

// What every call of libmotet_cuda.so's kernels does, whichever table of them it takes.
namespace motet {

/// The kernels that a function of the library hands out; null when there is no library or no such function in it.
template <class Api>
const Api* cuda_kernels(const char* function) {
  const auto get = reinterpret_cast<const Api* (*)()>(cuda_library().symbol(function));
  return get ? get() : nullptr;
}

/// One call: x's device is the current one while it lasts, and kernels go on torch's stream there. A tensor of the CPU
/// is for emulated kernels.
class CudaCall {
 public:
  template <class Api>
  CudaCall(const Tensor& x, const Api& api) : options_(x.options()), guard_(x.device()) {
    if (!x.is_cuda()) return;
    api.use_device(static_cast<int>(x.get_device()));
    run_.stream = c10::impl::VirtualGuardImpl(x.device().type()).getStream(x.device()).native_handle();
  }

  /// Memory of torch's allocator, for the length of the call.
  void reserve(int64_t bytes) {
    workspace_ = at::empty({bytes}, options_.dtype(at::kByte));
    run_.workspace = workspace_.mutable_data_ptr();
  }
  const cuda::Runtime& run() const { return run_; }

  /// Throws c10::Error when `error` says what is wrong.
  static void check(const char* function, const char* error) { TORCH_CHECK(!error, function, ": CUDA: ", error); }

 private:
  at::TensorOptions options_;
  c10::DeviceGuard guard_;
  Tensor workspace_;
  cuda::Runtime run_;
};

/// Why no kernel of the library runs where x lies, or else what then(kernels) says while x's device is the current one.
template <class Api, class Then>
std::string why_not_cuda(const Tensor& x, const Api* (*kernels)(), const Then& then) {
  if (!x.is_cuda()) return "only on a GPU";
  if (!cuda_library().missing.empty()) return cuda_library().missing;
  if (!kernels()) return "libmotet_cuda.so is of another version";
  const CudaCall on_its_device(x, *kernels());
  return then(*kernels());
}

}  // namespace motet
