#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "motet/ops/torch.h"

namespace motet {

/// Where a tensor's numbers lie, and its shape: while it stays, a record that touches the tensor stands.
class MemoryOf {
 public:
  explicit MemoryOf(const Tensor& t) : data_(t.const_data_ptr()), sizes_(t.sizes().vec()) {}
  bool operator==(const MemoryOf&) const = default;

 private:
  const void* data_;
  std::vector<int64_t> sizes_;
};

/// Work of a device that was asked for once and is done again without the host's asking for each part of it: a CUDA
/// graph. What it reads and writes lies where it lay when it was recorded; numbers of the host stay those of that time.
class Graph {
 public:
  /// Why the work of this device cannot be recorded; "" where it can.
  static std::string why_not(at::Device);

  /// Does `work` once, for what libraries prepare at a first call cannot be recorded, and then records, without doing
  /// it, what it asks of the device. Tensors that it makes and that are kept hold what each replay makes of them. Waits
  /// for the device before. Throws what `work` throws, and c10::Error for work that waits for the device: it cannot be
  /// recorded.
  Graph(at::Device, const std::function<void()>& work);
  ~Graph();
  Graph(Graph&&) noexcept;

  /// On the current stream; nobody waits.
  void replay();

  struct Recording;

 private:
  std::unique_ptr<Recording> recording_;
};

}  // namespace motet
