#include "motet/ops/views.h"

namespace motet {

Tensor ops::rows(const Tensor& x, int64_t first, int64_t count) {
  const bool plain = c10::InferenceMode::is_enabled() && x.is_cpu() && x.dim() >= 2;
  if (!plain || first < 0 || count < 0 || first > x.size(1) - count) return x.narrow(1, first, count);
  c10::SmallVector<int64_t, 5> sizes(x.sizes());
  sizes[1] = count;
  const Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(x.storage()),
                                                               x.key_set(), x.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, x.strides(), x.storage_offset() + first * x.stride(1));
  return view;
}

}  // namespace motet
