#include "motet/formats/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>

#include "motet/core/checked.h"
#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/formats/byte_reader.h"
#include "motet/formats/gguf_blocks.h"

namespace motet {
namespace {

constexpr size_t kLongestKey = 65535, kLongestName = 64;
constexpr uint32_t kMostAxes = 4;
constexpr uint64_t kDefaultAlignment = 32, kMostAlignment = 1 << 20;
constexpr std::array<size_t, 13> kWidths = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // bytes of a GgufType; 0: varies

// A name or a key: no longer than `most`, not empty, UTF-8.
std::string name_of(ByteReader& reader, const std::string& what, size_t most) {
  const uint64_t size = reader.number<uint64_t>(what);
  if (size == 0 || size > most)
    fail(reader.where(), ": ", what, " at byte ", reader.at(), " has ", size, " bytes, want 1 to ", most);
  const auto bytes = reader.take(size, what);
  const std::string name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (utf8_invalid_at(name) != std::string::npos) fail(reader.where(), ": ", what, " ", quote(name), " is no UTF-8");
  return name;
}

GgufType type_of(ByteReader& reader, const std::string& what) {
  const uint32_t code = reader.number<uint32_t>(what);
  if (code >= kWidths.size()) fail(reader.where(), ": ", what, " has the type ", code, ", want 0 to 12");
  return static_cast<GgufType>(code);
}

// Passes over `count` values and checks those that may be wrong in themselves.
void pass_over(ByteReader& reader, GgufType type, uint64_t count, const std::string& what) {
  if (type == GgufType::string) {
    for (uint64_t i = 0; i < count; ++i) reader.take(reader.number<uint64_t>(what), what);
    return;
  }
  const auto size = checked_multiply(count, kWidths[static_cast<size_t>(type)]);
  if (!size) fail(reader.where(), ": ", what, " claims ", count, " elements, which is too many");
  const auto bytes = reader.take(*size, what);
  if (type != GgufType::boolean) return;
  for (const std::byte b : bytes)
    if (b > std::byte{1}) fail(reader.where(), ": ", what, " is a boolean that is neither 0 nor 1");
}

GgufValue read_value(ByteReader& reader, std::span<const std::byte> all, const std::string& what) {
  GgufValue value{.type = type_of(reader, what)};
  if (value.type == GgufType::array) {
    value.is_array = true;
    value.type = type_of(reader, what);
    if (value.type == GgufType::array) fail(reader.where(), ": ", what, " is an array of arrays, which is not read");
    value.count = reader.number<uint64_t>(what);
  }
  const size_t begin = reader.at();
  pass_over(reader, value.type, value.count, what);
  value.bytes = all.subspan(begin, reader.at() - begin);
  return value;
}

// A tensor and where its data begins, before that is known to be inside the file.
struct Entry {
  GgufTensor tensor;
  uint64_t offset = 0, size = 0;
};

Entry read_entry(ByteReader& reader) {
  Entry entry;
  entry.tensor.name = name_of(reader, "a tensor's name", kLongestName);
  const std::string what = "tensor " + quote(entry.tensor.name), &where = reader.where();
  const uint32_t axes = reader.number<uint32_t>(what);
  if (axes > kMostAxes) fail(where, ": ", what, " has ", axes, " axes, want at most ", kMostAxes);
  std::optional<uint64_t> count = 1;
  for (uint32_t i = 0; i < axes; ++i) {
    const uint64_t size = reader.number<uint64_t>(what);
    if (count) count = checked_multiply(*count, size);
    if (!count || *count > static_cast<uint64_t>(INT64_MAX) || size > static_cast<uint64_t>(INT64_MAX))
      fail(where, ": ", what, ": the shape is too large");
    entry.tensor.shape.insert(entry.tensor.shape.begin(), static_cast<int64_t>(size));
  }
  const uint32_t code = reader.number<uint32_t>(what);
  const GgufElement* element = find_gguf_element(code);
  if (!element) {
    std::vector<std::string> known;
    for (const GgufElement& e : gguf_elements()) known.push_back(e.name);
    fail(where, ": ", what, " is stored as ", gguf_code_name(code), ", want one of ", joined(known));
  }
  entry.tensor.type = element->name;
  const int64_t row = axes == 0 ? 1 : entry.tensor.shape.back();
  if (row % element->block)
    fail(where, ": ", what, " has rows of ", row, " numbers, want whole blocks of ", element->block, " for ",
         element->name);
  const auto size =
      checked_multiply(*count / static_cast<uint64_t>(element->block), static_cast<uint64_t>(element->bytes));
  if (!size) fail(where, ": ", what, ": the shape is too large");
  entry.size = *size;
  entry.offset = reader.number<uint64_t>(what);
  return entry;
}

uint64_t aligned(uint64_t at, uint64_t alignment) { return (at + alignment - 1) / alignment * alignment; }

// Gives each tensor its bytes; sorted by place they must follow each other with nothing but padding between them.
void place_tensors(std::vector<Entry>& entries, std::span<const std::byte> data, uint64_t alignment,
                   const std::string& where) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.offset, a.size, a.tensor.name) < std::tie(b.offset, b.size, b.tensor.name);
  });
  uint64_t at = 0;
  for (Entry& entry : entries) {
    const std::string what = where + ": tensor " + quote(entry.tensor.name);
    if (entry.offset % alignment) fail(what, " begins at data byte ", entry.offset, ", want a multiple of ", alignment);
    if (entry.offset > data.size() || entry.size > data.size() - entry.offset)
      fail(what, " takes ", entry.size, " bytes at data byte ", entry.offset, ", and the file has ", data.size(),
           " data bytes; it is cut short");
    if (entry.offset < at) fail(what, " at data byte ", entry.offset, " overlaps the one before it");
    if (entry.offset > aligned(at, alignment))
      fail(where, ": no tensor holds the ", entry.offset - at, " data bytes before ", quote(entry.tensor.name));
    entry.tensor.bytes = data.subspan(entry.offset, entry.size);
    at = entry.offset + entry.size;
  }
  if (data.size() > aligned(at, alignment)) fail(where, ": ", data.size() - at, " bytes follow the last tensor");
}

uint64_t alignment_of(const GgufContent& content, const std::string& where) {
  const auto found = content.metadata.find("general.alignment");
  if (found == content.metadata.end()) return kDefaultAlignment;
  const GgufValue& value = found->second;
  uint32_t alignment = 0;
  if (value.type == GgufType::u32 && !value.is_array) std::memcpy(&alignment, value.bytes.data(), sizeof alignment);
  if (!std::has_single_bit(alignment) || alignment > kMostAlignment)
    fail(where, ": general.alignment is no power of two between 1 and ", kMostAlignment);
  return alignment;
}

uint32_t read_version(ByteReader& reader) {
  const auto magic = reader.take(4, "the magic 'GGUF'");
  if (std::memcmp(magic.data(), "GGUF", 4) != 0) fail(reader.where(), ": no GGUF file, it does not begin with 'GGUF'");
  const uint32_t version = reader.number<uint32_t>("the version");
  if (version == 0x02000000 || version == 0x03000000)
    fail(reader.where(), ": a big-endian GGUF file, want little endian");
  if (version != 2 && version != 3) fail(reader.where(), ": GGUF version ", version, ", want 2 or 3");
  return version;
}

}  // namespace

int64_t GgufTensor::elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

GgufContent parse_gguf(std::span<const std::byte> bytes, const std::string& where) {
  ByteReader reader(bytes, where);
  GgufContent content{.version = read_version(reader)};
  const uint64_t tensors = reader.number<uint64_t>("the number of tensors"),
                 entries = reader.number<uint64_t>("the number of metadata entries");
  for (uint64_t i = 0; i < entries; ++i) {
    const std::string key = name_of(reader, "a metadata key", kLongestKey);
    if (!content.metadata.emplace(key, read_value(reader, bytes, "metadata " + quote(key))).second)
      fail(where, ": metadata ", quote(key), " appears twice");
  }
  std::vector<Entry> placed;
  std::map<std::string, bool> seen;
  for (uint64_t i = 0; i < tensors; ++i) {
    placed.push_back(read_entry(reader));
    const std::string& name = placed.back().tensor.name;
    if (!seen.emplace(name, true).second) fail(where, ": tensor ", quote(name), " appears twice");
  }
  const uint64_t alignment = alignment_of(content, where), begin = aligned(reader.at(), alignment);
  if (begin > bytes.size() && !placed.empty())
    fail(where, ": the file ends before the tensors, at byte ", bytes.size(), " of ", begin);
  place_tensors(placed, bytes.subspan(std::min<uint64_t>(begin, bytes.size())), alignment, where);
  for (Entry& entry : placed) content.tensors.push_back(std::move(entry.tensor));
  return content;
}

}  // namespace motet
