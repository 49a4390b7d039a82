// Safetensors: eight bytes of header length, a JSON header, the tensors' bytes. Strict in both directions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motet/core/file.h"

namespace motet {

inline constexpr uint64_t kSafetensorsHeaderBytes = 100'000'000;

// A tensor whose bytes lie somewhere else: little endian, row major. `dtype` as in the file: "F32", "BF16", "I64" ...
struct TensorView {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;  // empty: one number
  std::span<const std::byte> bytes;
};

// Bytes of one element: 1, 2, 4 or 8; 0 for a dtype that is not known.
int64_t dtype_bytes(std::string_view dtype);

// A file in memory. Throws Error in one line with the file, the tensor and the place for everything that is not exactly
// as the format says: lengths outside of the file, a header above 100 MB, no UTF-8 object, a name twice, unknown dtypes
// or members, sizes that overflow or differ from the shape, ranges that overlap, leave holes or end before the file.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  // In the order of their bytes. The views live as long as this object.
  const std::vector<TensorView>& tensors() const { return tensors_; }

  // Null when there is none of the name.
  const TensorView* find(std::string_view name) const;

  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  MappedFile file_;
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

// The bytes of a file, checked as SafetensorsFile does; `where` begins every message. For fuzzing and other sources.
struct SafetensorsContent {
  std::vector<TensorView> tensors;  // views into the bytes
  std::map<std::string, std::string> metadata;
};
SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& where);

// Writes the file whole or not at all. Wide elements come first, then names in alphabetic order, so that every tensor
// is aligned. Throws Error for a name twice or reserved, no UTF-8, an unknown dtype, or bytes that differ from the
// shape.
void write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata);

// A tensor whose bytes are made when they are written: `give` hands them over, in one piece or several.
struct TensorPromise {
  using Take = std::function<void(std::span<const std::byte>)>;
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::function<void(const Take&)> give;
};

// The same of tensors that need not be in memory together. Throws Error when one gives another number of bytes.
void write_safetensors(const std::string& path, const std::vector<TensorPromise>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace motet
