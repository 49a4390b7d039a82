#include "motet/ops/views.h"

#include <vector>

namespace motet {

namespace {

bool without_dispatcher(const Tensor& x) { return c10::InferenceMode::is_enabled() && x.is_cpu(); }

Tensor view(const Tensor& x, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  const Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(x.storage()),
                                                               x.key_set(), x.dtype());
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return view;
}

using Sizes = c10::SmallVector<int64_t, 5>;

}  // namespace

Tensor ops::rows(const Tensor& x, int64_t first, int64_t count) {
  const bool plain = without_dispatcher(x) && x.dim() >= 2;
  if (!plain || first < 0 || count < 0 || first > x.size(1) - count) return x.narrow(1, first, count);
  Sizes sizes(x.sizes());
  sizes[1] = count;
  return view(x, sizes, x.strides(), x.storage_offset() + first * x.stride(1));
}

Tensor ops::columns(const Tensor& x, int64_t count, int64_t column, at::IntArrayRef shape) {
  const int64_t numbers = c10::multiply_integers(shape);
  TORCH_CHECK_VALUE(x.dim() == 3 && count >= 0 && count <= x.size(1) && column >= 0 && column <= x.size(2) - numbers,
                    "columns: ", count, " rows of ", numbers, " numbers from ", column, ", want them inside ",
                    x.sizes());
  Sizes sizes{x.size(0), count}, strides(shape.size() + 2);
  sizes.append(shape.begin(), shape.end());
  for (size_t i = sizes.size(), step = 1; i-- > 2; step *= static_cast<size_t>(sizes[i]))
    strides[i] = static_cast<int64_t>(step) * x.stride(2);
  strides[0] = x.stride(0), strides[1] = x.stride(1);
  const int64_t offset = x.storage_offset() + column * x.stride(2);
  return without_dispatcher(x) ? view(x, sizes, strides, offset) : x.as_strided(sizes, strides, offset);
}

Tensor ops::side_by_side(at::TensorList parts) {
  std::vector<Tensor> flat;
  for (const Tensor& part : parts) flat.push_back(part.flatten(2));
  return flat.size() == 1 ? flat[0] : at::cat(flat, 2);
}

}  // namespace motet
