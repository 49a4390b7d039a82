#include "motet/checkpoints/tensors.h"

#include "motet/core/error.h"
#include "motet/formats/shards.h"

namespace motet {
namespace {

const std::vector<std::pair<const char*, at::ScalarType>>& dtypes() {
  static const std::vector<std::pair<const char*, at::ScalarType>> all{{"F64", at::kDouble},
                                                                       {"F32", at::kFloat},
                                                                       {"F16", at::kHalf},
                                                                       {"BF16", at::kBFloat16},
                                                                       {"I64", at::kLong},
                                                                       {"I32", at::kInt},
                                                                       {"I16", at::kShort},
                                                                       {"I8", at::kChar},
                                                                       {"U8", at::kByte},
                                                                       {"BOOL", at::kBool},
                                                                       {"F8_E4M3", at::kFloat8_e4m3fn},
                                                                       {"F8_E5M2", at::kFloat8_e5m2}};
  return all;
}

bool is_aligned(std::span<const std::byte> bytes, at::ScalarType dtype) {
  return reinterpret_cast<uintptr_t>(bytes.data()) % c10::elementSize(dtype) == 0;
}

Tensor from_bytes(const std::shared_ptr<const void>& file, std::span<const std::byte> bytes,
                  const std::vector<int64_t>& shape, at::ScalarType dtype) {
  if (bytes.empty()) return at::empty(shape, dtype);
  auto* data = const_cast<std::byte*>(bytes.data());
  const Tensor raw = at::from_blob(data, {static_cast<int64_t>(bytes.size())}, at::TensorOptions(at::kByte));
  if (!is_aligned(bytes, dtype)) return raw.clone().view(dtype).view(shape);
  return at::from_blob(data, shape, [file](void*) {}, at::TensorOptions(dtype));
}

template <class File>
Tensors tensors_of(const std::string& path) {
  const auto file = std::make_shared<const File>(path);
  Tensors out{.where = path, .all = {}, .files = file};
  for (const TensorView& view : file->tensors())
    out.all[view.name] = tensor_in(file, view.bytes, view.shape, view.dtype, path + ": tensor " + quote(view.name));
  return out;
}

}  // namespace

StoredTensor tensor_in(const std::shared_ptr<const void>& file, std::span<const std::byte> bytes,
                       std::vector<int64_t> shape, const std::string& stored_as, const std::string& what) {
  const at::ScalarType dtype = torch_dtype_of(stored_as, what);
  const auto load = [=] { return from_bytes(file, bytes, shape, dtype); };
  return {shape, dtype, load, stored_as, {}, is_aligned(bytes, dtype)};
}

int64_t count_non_finite(const Tensor& t) {
  if (!at::isFloatingType(t.scalar_type())) return 0;
  const bool narrow = t.element_size() < 2;  // torch looks at no numbers of 8 bits
  return t.numel() - at::isfinite(narrow ? t.to(at::kFloat) : t).sum().item<int64_t>();
}

at::ScalarType torch_dtype_of(const std::string& name, const std::string& what) {
  for (const auto& [known, dtype] : dtypes())
    if (name == known) return dtype;
  fail(what, " has the dtype ", name, ", which is not read");
}

std::string stored_dtype_of(at::ScalarType dtype) {
  for (const auto& [name, known] : dtypes())
    if (dtype == known) return name;
  fail("a tensor of ", c10::toString(dtype), " cannot be stored");
}

Tensors safetensors_tensors(const std::string& path) {
  if (path.ends_with(".safetensors.index.json")) return tensors_of<SafetensorsShards>(path);
  return tensors_of<SafetensorsFile>(path);
}

}  // namespace motet
