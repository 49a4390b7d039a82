#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/formats/byte_reader.h"
#include "motet/formats/gguf.h"

// The metadata of a GGUF file as values.
namespace motet {
namespace {

constexpr uint64_t kShown = 4;  // elements of an array

[[noreturn]] void refuse(const std::string& path, std::string_view key, const std::string& wanted) {
  fail(path, ": metadata ", quote(key), ": want ", wanted);
}

template <class Number>
Number read(ByteReader& reader) {
  return reader.number<Number>("a value");
}

std::optional<int64_t> integer_of(ByteReader& reader, GgufType type) {
  switch (type) {
    case GgufType::u8:
      return read<uint8_t>(reader);
    case GgufType::i8:
      return read<int8_t>(reader);
    case GgufType::u16:
      return read<uint16_t>(reader);
    case GgufType::i16:
      return read<int16_t>(reader);
    case GgufType::u32:
      return read<uint32_t>(reader);
    case GgufType::i32:
      return read<int32_t>(reader);
    case GgufType::i64:
      return read<int64_t>(reader);
    case GgufType::u64: {
      const uint64_t value = read<uint64_t>(reader);
      return value > static_cast<uint64_t>(INT64_MAX) ? std::nullopt : std::optional<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> number_of(ByteReader& reader, GgufType type) {
  if (type == GgufType::f32) return read<float>(reader);
  if (type == GgufType::f64) return read<double>(reader);
  const auto whole = integer_of(reader, type);
  return whole ? std::optional<double>(static_cast<double>(*whole)) : std::nullopt;
}

std::optional<std::string> word_of(ByteReader& reader, GgufType type) {
  if (type != GgufType::string) return std::nullopt;
  const auto bytes = reader.take(read<uint64_t>(reader), "a value");
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<bool> flag_of(ByteReader& reader, GgufType type) {
  return type == GgufType::boolean ? std::optional<bool>(read<uint8_t>(reader) != 0) : std::nullopt;
}

// All elements by one of the functions above.
template <class Element, class Read>
std::vector<Element> elements(const GgufValue& value, const std::string& path, std::string_view key, Read element,
                              const std::string& wanted) {
  ByteReader reader(value.bytes, path);
  std::vector<Element> all;
  for (uint64_t i = 0; i < value.count; ++i) {
    auto one = element(reader, value.type);
    if (!one) refuse(path, key, wanted);
    all.push_back(std::move(*one));
  }
  return all;
}

std::string one_shown(ByteReader& reader, GgufType type) {
  if (type == GgufType::string) return quote(*word_of(reader, type));
  if (type == GgufType::boolean) return *flag_of(reader, type) ? "true" : "false";
  if (type == GgufType::f32 || type == GgufType::f64) return text(*number_of(reader, type));
  const auto whole = integer_of(reader, type);
  return whole ? text(*whole) : "above 2^63";
}

}  // namespace

GgufFile::GgufFile(const std::string& path) : path_(path), file_(path), content_(parse_gguf(file_.bytes(), path)) {
  for (size_t i = 0; i < content_.tensors.size(); ++i) index_[content_.tensors[i].name] = i;
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &content_.tensors[found->second];
}

const GgufValue* GgufFile::value(std::string_view key, bool array) const {
  const auto found = content_.metadata.find(key);
  if (found == content_.metadata.end()) return nullptr;
  if (found->second.is_array != array) refuse(path_, key, array ? "an array" : "one value");
  return &found->second;
}

std::optional<std::string> GgufFile::word(std::string_view key) const {
  const GgufValue* v = value(key, false);
  if (!v) return std::nullopt;
  std::string word = elements<std::string>(*v, path_, key, word_of, "a string").front();
  if (utf8_invalid_at(word) != std::string::npos) refuse(path_, key, "UTF-8");
  return word;
}

std::optional<int64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* v = value(key, false);
  return v ? std::optional(elements<int64_t>(*v, path_, key, integer_of, "an integer of at most 2^63 - 1").front())
           : std::nullopt;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* v = value(key, false);
  return v ? std::optional(elements<double>(*v, path_, key, number_of, "a number").front()) : std::nullopt;
}

std::optional<bool> GgufFile::flag(std::string_view key) const {
  const GgufValue* v = value(key, false);
  if (!v) return std::nullopt;
  ByteReader reader(v->bytes, path_);
  const auto flag = flag_of(reader, v->type);
  if (!flag) refuse(path_, key, "a boolean");
  return flag;
}

std::optional<std::vector<std::string>> GgufFile::words(std::string_view key) const {
  const GgufValue* v = value(key, true);
  return v ? std::optional(elements<std::string>(*v, path_, key, word_of, "an array of strings")) : std::nullopt;
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  const GgufValue* v = value(key, true);
  return v ? std::optional(elements<int64_t>(*v, path_, key, integer_of, "an array of integers")) : std::nullopt;
}

std::optional<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  const GgufValue* v = value(key, true);
  return v ? std::optional(elements<double>(*v, path_, key, number_of, "an array of numbers")) : std::nullopt;
}

std::string GgufFile::shown(std::string_view key) const {
  const auto found = content_.metadata.find(key);
  if (found == content_.metadata.end()) return "";
  const GgufValue& v = found->second;
  ByteReader reader(v.bytes, path_);
  if (!v.is_array) return one_shown(reader, v.type);
  std::string out = "[";
  for (uint64_t i = 0; i < std::min(v.count, kShown); ++i) out += (i ? ", " : "") + one_shown(reader, v.type);
  return out + (v.count > kShown ? text(", ...] of ", v.count) : std::string("]"));
}

}  // namespace motet
