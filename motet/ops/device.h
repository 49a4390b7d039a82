#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "motet/ops/torch.h"

namespace motet {

/// "auto" (the first GPU if there is one, else the CPU), "cpu", "cuda" or "cuda:N"; or a backend that somebody added to
/// this process, by its name. Throws UsageError for other names, for CUDA in a PyTorch that was built without it, and
/// for a GPU that is not there.
at::Device parse_device(const std::string&);

/// Of a GPU, 10 major + minor, as its driver tells; 0 where nobody does.
int compute_capability(at::Device);

/// Waits until the device has done all that it was asked for; the CPU always has.
void synchronize(at::Device);

/// Bytes in use: on the CPU those of this process that are resident, elsewhere what torch's allocator of the device has
/// given to tensors. 0 where nobody tells.
int64_t used_memory(at::Device);
/// The most that were in use since the last reset; 0 where nobody tells.
int64_t peak_memory(at::Device);
/// What is in use now becomes the peak; false where the system or the allocator refuses.
bool reset_peak_memory(at::Device);
/// Bytes that tensors can still take; nothing where nobody tells.
std::optional<int64_t> free_memory(at::Device);

/// Token ids as a row [1,T], int64.
Tensor ids_tensor(std::span<const int32_t> ids, at::Device = at::kCPU);
Tensor ids_tensor(std::span<const int64_t> ids, at::Device = at::kCPU);

/// A copy of `values` in the shape on the device, int64. On its way to a device it lies in pinned memory, so that
/// nobody waits for it: what the device does next waits by itself.
Tensor moved(std::span<const int64_t> values, at::IntArrayRef shape, at::Device);
/// Likewise into a tensor that is there, int64, of as many numbers.
void move_to(const Tensor& to, std::span<const int64_t> values);

/// The bytes of a tensor that lies on the CPU without gaps, while it lives. Throws c10::ValueError for another: a
/// pointer into a device would be read as one of the host.
std::span<const std::byte> host_bytes(const Tensor&);
/// Likewise its numbers; throws c10::Error for another dtype.
template <class T>
std::span<const T> host_numbers(const Tensor& t) {
  host_bytes(t);
  return {t.const_data_ptr<T>(), static_cast<size_t>(t.numel())};
}

}  // namespace motet
