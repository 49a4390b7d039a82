#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "motet/ops/matrix.h"

namespace motet {

/// A tensor of a model's files: what is known of it without reading it, and how it is read.
struct StoredTensor {
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;  // of what `load` gives; quantised numbers become float32
  std::function<Tensor()> load;       // on the CPU; may be a view of the mapped file, which must not be written to
  std::string stored_as;              // the file's own name of its type: "BF16", "Q4_K"
  std::function<Matrix()> kept = {};  // of a matrix in 8 bits (eight_bits.h): as it lies in the mapped file
  bool in_file = false;               // `load` gives a view of the mapped file, not a copy
};

/// Bytes of a mapped file that are a tensor of one of torch's types. What is not aligned for it is copied: torch reads
/// numbers. The tensor and what it gives hold the file. Throws Error that begins with `what` as torch_dtype_of() does.
StoredTensor tensor_in(const std::shared_ptr<const void>& file, std::span<const std::byte> bytes,
                       std::vector<int64_t> shape, const std::string& stored_as, const std::string& what);

/// All tensors of a model by name. Copies share the mapped files.
struct Tensors {
  std::string where;  // begins every message about them: the file or the index
  std::map<std::string, StoredTensor> all;
  std::shared_ptr<const void> files;
};

/// The tensors of a safetensors file or of an index with its shards. Nothing of them is read. Throws Error as the
/// readers do.
Tensors safetensors_tensors(const std::string& path);

/// Numbers of a tensor that are infinite or NaN.
int64_t count_non_finite(const Tensor&);

/// The dtype of a name of safetensors, "BF16" for instance; throws Error that begins with `what` for one that is none
/// of torch's.
at::ScalarType torch_dtype_of(const std::string& name, const std::string& what);
/// The reverse for F64, F32, F16, BF16 and the integers.
std::string stored_dtype_of(at::ScalarType);

}  // namespace motet
