// GGUF, llama.cpp's format: metadata (with the vocabulary) and tensors, often quantised. Versions 2 and 3, little
// endian.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motet/core/file.h"

namespace motet {

enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

// A tensor as it is stored. `shape` has the slowest axis first, as everywhere in Motet (GGUF itself has it last).
struct GgufTensor {
  std::string name;
  std::string type;  // "F32", "Q4_K" ...
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  int64_t elements() const;
};

// One entry of the metadata; its bytes stay in the file.
struct GgufValue {
  GgufType type;  // of the value, or of the elements of an array
  bool is_array = false;
  uint64_t count = 1;
  std::span<const std::byte> bytes;
};

struct GgufContent {
  uint32_t version = 0;
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  // in the order of their bytes
};

// The bytes of a file, checked; views into them. `where` begins every message. Throws Error in one line with the place:
// another magic, version or byte order, counts and lengths beyond the file, keys or names that are empty, twice, too
// long or no UTF-8, unknown types, arrays of arrays, booleans that are neither 0 nor 1, an alignment that is no power
// of two, shapes that overflow or do not fill whole blocks, tensors that overlap, leave holes, are not aligned or end
// after the file, and bytes after the last.
GgufContent parse_gguf(std::span<const std::byte> bytes, const std::string& where);

// A file in memory. The views live as long as this object.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return path_; }
  uint32_t version() const { return content_.version; }
  const std::vector<GgufTensor>& tensors() const { return content_.tensors; }
  const GgufTensor* find(std::string_view name) const;
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return content_.metadata; }

  // Values of the metadata by key; nothing when the key is absent. Throws Error naming file and key for another type:
  // integers of any width are integers (throws when above int64), floats and integers are numbers.
  std::optional<std::string> word(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::vector<std::string>> words(std::string_view key) const;  // such as tokenizer.ggml.tokens
  std::optional<std::vector<int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  // The value in a few words, for people: long arrays as their count.
  std::string shown(std::string_view key) const;

 private:
  const GgufValue* value(std::string_view key, bool array) const;

  std::string path_;
  MappedFile file_;
  GgufContent content_;
  std::map<std::string, size_t, std::less<>> index_;
};

}  // namespace motet
