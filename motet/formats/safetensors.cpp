#include "motet/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>

#include "motet/core/checked.h"
#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr const char* kMetadata = "__metadata__";
constexpr std::array<std::pair<const char*, int64_t>, 15> kDtypes = {{{"BOOL", 1},
                                                                      {"U8", 1},
                                                                      {"I8", 1},
                                                                      {"F8_E5M2", 1},
                                                                      {"F8_E4M3", 1},
                                                                      {"U16", 2},
                                                                      {"I16", 2},
                                                                      {"F16", 2},
                                                                      {"BF16", 2},
                                                                      {"U32", 4},
                                                                      {"I32", 4},
                                                                      {"F32", 4},
                                                                      {"U64", 8},
                                                                      {"I64", 8},
                                                                      {"F64", 8}}};

// Bytes of a tensor, or nothing when they do not fit 64 bits.
std::optional<uint64_t> tensor_bytes(const std::vector<int64_t>& shape, int64_t element) {
  std::optional<uint64_t> size = static_cast<uint64_t>(element);
  for (const int64_t dimension : shape) {
    if (size) size = checked_multiply(*size, static_cast<uint64_t>(dimension));
  }
  return size;
}

// A non-negative integer that fits int64.
std::optional<int64_t> as_size(const json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return value.get<int64_t>();
}

struct Entry {
  TensorView tensor;
  uint64_t begin = 0, end = 0;  // of the data
};

// One member of the header: {"dtype": ..., "shape": [...], "data_offsets": [begin, end]} and nothing else.
Entry parse_entry(const std::string& name, const json& value, const std::string& where, uint64_t data_size) {
  const std::string what = where + ": tensor " + quote(name);
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    fail(what, ": want an object of exactly dtype, shape and data_offsets");
  }
  Entry entry;
  entry.tensor.name = name;
  const json& dtype = value["dtype"];
  if (dtype.is_string()) entry.tensor.dtype = dtype.get<std::string>();
  const int64_t element = dtype_bytes(entry.tensor.dtype);
  if (element == 0) fail(what, ": unknown dtype ", quote(dtype.is_string() ? entry.tensor.dtype : dtype.dump()));

  const json& shape = value["shape"];
  if (!shape.is_array()) fail(what, ": shape is no list of sizes");
  for (const json& dimension : shape) {
    const auto size = as_size(dimension);
    if (!size) fail(what, ": shape has ", quote(dimension.dump()), ", want an integer of at least 0");
    entry.tensor.shape.push_back(*size);
  }
  const json& offsets = value["data_offsets"];
  const auto begin = offsets.is_array() && offsets.size() == 2 ? as_size(offsets[0]) : std::nullopt;
  const auto end = begin ? as_size(offsets[1]) : std::nullopt;
  if (!end) fail(what, ": data_offsets is ", quote(offsets.dump()), ", want [begin, end]");
  entry.begin = static_cast<uint64_t>(*begin);
  entry.end = static_cast<uint64_t>(*end);
  if (entry.begin > entry.end || entry.end > data_size) {
    fail(what, ": data_offsets ", entry.begin, " to ", entry.end, " lie outside of the file's ", data_size,
         " data bytes");
  }
  const auto size = tensor_bytes(entry.tensor.shape, element);
  if (!size) fail(what, ": the shape is too large");
  if (*size != entry.end - entry.begin) {
    fail(what, ": the shape takes ", *size, " bytes and data_offsets span ", entry.end - entry.begin);
  }
  return entry;
}

std::map<std::string, std::string> parse_metadata(const json& value, const std::string& where) {
  if (!value.is_object()) fail(where, ": ", kMetadata, " is no object of strings");
  std::map<std::string, std::string> out;
  for (const auto& [name, entry] : value.items()) {
    if (!entry.is_string()) fail(where, ": ", kMetadata, " ", quote(name), " is no string");
    out[name] = entry.get<std::string>();
  }
  return out;
}

// Sorted by place, the ranges must be 0..a, a..b, b..c and so on up to the end.
void check_ranges(const std::vector<Entry>& entries, const std::string& where, uint64_t data_size) {
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    const std::string name = quote(entry.tensor.name);
    if (entry.begin < at) fail(where, ": tensor ", name, " at data byte ", entry.begin, " overlaps the one before it");
    if (entry.begin > at) fail(where, ": no tensor holds the ", entry.begin - at, " data bytes before ", name);
    at = entry.end;
  }
  if (at != data_size) fail(where, ": ", data_size - at, " bytes follow the last tensor");
}

uint64_t header_length(std::span<const std::byte> bytes, const std::string& where) {
  if (bytes.size() < kLengthBytes) {
    fail(where, ": ", bytes.size(), " bytes are no safetensors file, which has at least ", kLengthBytes);
  }
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | std::to_integer<uint64_t>(bytes[i]);
  if (length > kSafetensorsHeaderBytes) {
    fail(where, ": the header claims ", length, " bytes, want at most ", kSafetensorsHeaderBytes,
         "; is this a safetensors file?");
  }
  if (length > bytes.size() - kLengthBytes) {
    fail(where, ": the header claims ", length, " bytes and the file has ", bytes.size() - kLengthBytes,
         " left; it is cut short");
  }
  return length;
}

// A tensor of a known size that is about to be written.
struct Sized {
  const TensorPromise* tensor;
  uint64_t bytes;
};

std::string header_of(const std::vector<Sized>& order, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  uint64_t at = 0;
  for (const auto& [tensor, bytes] : order) {
    header[tensor->name] = {{"dtype", tensor->dtype}, {"shape", tensor->shape}, {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string out = header.dump();
  // The data begins with a line of the cache, so that rows that are vectors do not lie across two (single rows of such
  // a matrix in memory took 1.3 times as long).
  constexpr size_t kLine = 64;
  out.resize((kLengthBytes + out.size() + kLine - 1) / kLine * kLine - kLengthBytes, ' ');
  return out;
}

uint64_t checked_size(const TensorPromise& tensor, const std::string& path) {
  const std::string what = text("write_safetensors: ", path, ": tensor ", quote(tensor.name));
  if (utf8_invalid_at(tensor.name) != std::string::npos) fail(what, ": the name is no UTF-8");
  if (tensor.name == kMetadata) fail(what, ": the name is reserved");
  const int64_t element = dtype_bytes(tensor.dtype);
  if (element == 0) fail(what, ": unknown dtype ", quote(tensor.dtype));
  for (const int64_t dimension : tensor.shape) {
    if (dimension < 0) fail(what, ": the shape has ", dimension, ", want at least 0");
  }
  const auto size = tensor_bytes(tensor.shape, element);
  if (!size) fail(what, ": the shape is too large");
  return *size;
}

}  // namespace

int64_t dtype_bytes(std::string_view dtype) {
  for (const auto& [name, size] : kDtypes) {
    if (dtype == name) return size;
  }
  return 0;
}

SafetensorsContent parse_safetensors(std::span<const std::byte> bytes, const std::string& where) {
  const uint64_t length = header_length(bytes, where);
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  const auto data = bytes.subspan(kLengthBytes + length);
  if (!header.starts_with('{')) fail(where, ": the header does not begin with '{'");
  const json parsed = parse_json(header, where + ": header", kSafetensorsHeaderBytes);

  SafetensorsContent content;
  std::vector<Entry> entries;
  for (const auto& [name, value] : parsed.items()) {
    if (name == kMetadata) {
      content.metadata = parse_metadata(value, where);
    } else {
      entries.push_back(parse_entry(name, value, where, data.size()));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  check_ranges(entries, where, data.size());
  for (Entry& entry : entries) {
    entry.tensor.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    content.tensors.push_back(std::move(entry.tensor));
  }
  return content;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  SafetensorsContent content = parse_safetensors(file_.bytes(), path);
  tensors_ = std::move(content.tensors);
  metadata_ = std::move(content.metadata);
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void write_safetensors(const std::string& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorPromise> promises;
  for (const TensorView& tensor : tensors)
    promises.push_back(
        {tensor.name, tensor.dtype, tensor.shape, [&tensor](const TensorPromise::Take& take) { take(tensor.bytes); }});
  write_safetensors(path, promises, metadata);
}

void write_safetensors(const std::string& path, const std::vector<TensorPromise>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<Sized> order;
  for (const TensorPromise& tensor : tensors) order.push_back({&tensor, checked_size(tensor, path)});
  std::sort(order.begin(), order.end(), [](const Sized& a, const Sized& b) {
    const int64_t wide_a = -dtype_bytes(a.tensor->dtype), wide_b = -dtype_bytes(b.tensor->dtype);
    return std::tie(wide_a, a.tensor->name) < std::tie(wide_b, b.tensor->name);
  });
  std::vector<std::string_view> names;
  for (const Sized& sized : order) names.push_back(sized.tensor->name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) fail("write_safetensors: ", path, ": tensor ", quote(*twice), " appears twice");
  for (const auto& [name, value] : metadata) {
    if (utf8_invalid_at(name + value) != std::string::npos) fail("write_safetensors: ", path, ": metadata is no UTF-8");
  }

  const std::string header = header_of(order, metadata);
  if (header.size() > kSafetensorsHeaderBytes) {
    fail("write_safetensors: ", path, ": the header takes ", header.size(), " bytes, want at most ",
         kSafetensorsHeaderBytes);
  }
  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i) length += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  AtomicFile file(path);
  file.write(length);
  file.write(header);
  for (const auto& [tensor, bytes] : order) {
    uint64_t given = 0;
    tensor->give([&](std::span<const std::byte> part) {
      given += part.size();
      file.write({reinterpret_cast<const char*>(part.data()), part.size()});
    });
    if (given != bytes)
      fail("write_safetensors: ", path, ": tensor ", quote(tensor->name), ": ", given, " bytes do not fill the shape");
  }
  file.commit();
}

}  // namespace motet
