#include "motet/ops/device.h"

#include <dlfcn.h>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <charconv>

#include "motet/core/error.h"
#include "motet/core/process.h"

namespace motet {
namespace {

int gpus() { return at::hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0; }

// The allocator of a device that counts what it gives out; null where there is none.
c10::DeviceAllocator* counting_allocator(at::Device device) {
  if (device.is_cpu() || device.is_meta()) return nullptr;
  return dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
}

c10::DeviceIndex index_of(at::Device device) {
  return device.has_index() ? device.index() : c10::impl::VirtualGuardImpl(device.type()).getDevice().index();
}

// Those of all pools together.
const c10::CachingAllocator::Stat& whole(const c10::CachingAllocator::StatArray& pools) {
  return pools[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

// Before the first tensor there are no figures.
c10::CachingDeviceAllocator::DeviceStats figures(at::Device device) {
  c10::DeviceAllocator* const allocator = counting_allocator(device);
  if (!allocator || !allocator->initialized()) return {};
  return allocator->getDeviceStats(index_of(device));
}

c10::CachingAllocator::Stat given_out(at::Device device) { return whole(figures(device).allocated_bytes); }

// The first PyTorch with device allocators did not ask them for free memory.
template <class Allocator>
std::optional<int64_t> free_bytes(Allocator& allocator, c10::DeviceIndex index) {
  if constexpr (requires { allocator.getMemoryInfo(index); }) {
    try {
      return static_cast<int64_t>(allocator.getMemoryInfo(index).first);
    } catch (const c10::NotImplementedError&) {  // this allocator does not know
    }
  }
  return std::nullopt;
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

int compute_capability(at::Device device) {
  if (!device.is_cuda()) return 0;
  using DeviceGet = int(int*, int);
  using Attribute = int(int*, int, int);
  static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!driver) return 0;
  static auto* const get = reinterpret_cast<DeviceGet*>(dlsym(driver, "cuDeviceGet"));
  static auto* const attribute = reinterpret_cast<Attribute*>(dlsym(driver, "cuDeviceGetAttribute"));
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
  int handle = 0, major = 0, minor = 0;
  if (!get || !attribute || get(&handle, index_of(device)) != 0 || attribute(&major, kMajor, handle) != 0 ||
      attribute(&minor, kMinor, handle) != 0)
    return 0;
  return 10 * major + minor;
}

void synchronize(at::Device device) {
  if (device.is_cpu() || device.is_meta()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(index_of(device));
}

int64_t used_memory(at::Device device) { return device.is_cpu() ? resident_bytes() : given_out(device).current; }

int64_t peak_memory(at::Device device) { return device.is_cpu() ? peak_resident_bytes() : given_out(device).peak; }

bool reset_peak_memory(at::Device device) {
  if (device.is_cpu()) return reset_peak_resident();
  c10::DeviceAllocator* const allocator = counting_allocator(device);
  if (!allocator || !allocator->initialized()) return false;
  allocator->resetPeakStats(index_of(device));
  return true;
}

std::optional<int64_t> free_memory(at::Device device) {
  if (device.is_cpu()) {
    const int64_t bytes = available_bytes();
    return bytes > 0 ? std::optional(bytes) : std::nullopt;
  }
  c10::DeviceAllocator* const allocator = counting_allocator(device);
  if (!allocator) return std::nullopt;
  const std::optional<int64_t> bytes = free_bytes(*allocator, index_of(device));
  if (!bytes) return std::nullopt;
  const auto stats = figures(device);
  return *bytes + whole(stats.reserved_bytes).current - whole(stats.allocated_bytes).current;
}

namespace {

bool copies_by_itself(at::Device device) { return device.is_cuda() || device.is_privateuseone(); }

Tensor on_its_way(std::span<const int64_t> values, at::IntArrayRef shape, at::Device to) {
  const Tensor here = at::empty(shape, at::TensorOptions(at::kLong).pinned_memory(copies_by_itself(to)));
  TORCH_CHECK_VALUE(here.numel() == static_cast<int64_t>(values.size()), "moved: ", values.size(),
                    " values, want those of the shape ", shape);
  std::copy(values.begin(), values.end(), here.mutable_data_ptr<int64_t>());
  return here;
}

}  // namespace

Tensor moved(std::span<const int64_t> values, at::IntArrayRef shape, at::Device device) {
  return on_its_way(values, shape, device).to(device, /*non_blocking=*/copies_by_itself(device));
}

void move_to(const Tensor& to, std::span<const int64_t> values) {
  to.copy_(on_its_way(values, to.sizes(), to.device()), /*non_blocking=*/copies_by_itself(to.device()));
}

Tensor ids_tensor(std::span<const int32_t> ids, at::Device device) {
  return ids_tensor(std::span<const int64_t>(std::vector<int64_t>(ids.begin(), ids.end())), device);
}
Tensor ids_tensor(std::span<const int64_t> ids, at::Device device) {
  return moved(ids, {1, static_cast<int64_t>(ids.size())}, device);
}

std::span<const std::byte> host_bytes(const Tensor& t) {
  TORCH_CHECK_VALUE(t.is_cpu() && t.is_contiguous(), "host_bytes: a tensor on ", t.device(), " of shape ", t.sizes(),
                    " and strides ", t.strides(), ", want one on the CPU without gaps");
  return {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()};
}

}  // namespace motet
