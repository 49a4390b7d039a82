#include "motet/ops/device.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <charconv>

#include "motet/core/error.h"

namespace motet {
namespace {

int gpus() { return at::hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0; }

template <class Id>
Tensor row_of(std::span<const Id> ids, at::Device device) {
  const Tensor row = at::empty({1, static_cast<int64_t>(ids.size())}, at::kLong);
  std::copy(ids.begin(), ids.end(), row.mutable_data_ptr<int64_t>());
  return row.to(device);
}

}  // namespace

at::Device parse_device(const std::string& name) {
  if (name == "auto") return gpus() > 0 ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  if (name == "cpu") return at::kCPU;
  if (c10::is_privateuse1_backend_registered() && name == c10::get_privateuse1_backend())
    return at::Device(at::kPrivateUse1, 0);
  int number = 0;
  const bool cuda = name == "cuda" || name.starts_with("cuda:");
  if (name.starts_with("cuda:")) {
    const char *begin = name.data() + 5, *end = name.data() + name.size();
    const auto read = std::from_chars(begin, end, number);
    if (read.ec != std::errc() || read.ptr != end || number < 0)
      fail_usage("device: ", quote(name), ", want a number behind cuda:, as in cuda:0");
  }
  if (!cuda) throw UsageError(unknown_name("device", name, {"auto", "cpu", "cuda", "cuda:N"}));
  if (!at::hasCUDA())
    fail_usage("device: ", quote(name), ": this PyTorch has no CUDA or this machine no GPU, want cpu or auto");
  if (number >= gpus())
    fail_usage("device: ", quote(name), ": there are ", gpus(), " GPUs, want ",
               gpus() > 0 ? "a smaller number" : "cpu");
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(number));
}

void synchronize(at::Device device) {
  if (device.is_cpu() || device.is_meta()) return;
  c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice(device.has_index() ? device.index() : guard.getDevice().index());
}

Tensor ids_tensor(std::span<const int32_t> ids, at::Device device) { return row_of(ids, device); }
Tensor ids_tensor(std::span<const int64_t> ids, at::Device device) { return row_of(ids, device); }

}  // namespace motet
