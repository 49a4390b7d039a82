#include "motet/report/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "motet/core/error.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "events.out.tfevents.";

// Castagnoli's polynomial, reflected.
uint32_t crc32c(const std::string& bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value & 1 ? value >> 1 ^ 0x82F63B78u : value >> 1;
      made[i] = value;
    }
    return made;
  }();
  uint32_t crc = ~0u;
  for (const char byte : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~crc;
}

uint32_t masked_crc(const std::string& bytes) { return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u; }

template <class T>
std::string little_endian(T value) {
  static_assert(std::endian::native == std::endian::little);
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// The wire format of protocol buffers.
std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string message(int field, const std::string& bytes) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string number(int field, double value) {
  return varint(static_cast<uint64_t>(field) << 3 | 1) + little_endian(value);
}
std::string number(int field, float value) {
  return varint(static_cast<uint64_t>(field) << 3 | 5) + little_endian(value);
}
std::string number(int field, uint64_t value) { return varint(static_cast<uint64_t>(field) << 3) + varint(value); }

// Fields of tensorflow's event.proto and summary.proto.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kValue = 1, kTag = 1, kSimpleValue = 2;

}  // namespace

TensorBoardWriter::TensorBoardWriter(const fs::path& folder)
    : path_((folder / text(kPrefix, std::time(nullptr), ".", ::getpid())).string()),
      file_(std::fopen(path_.c_str(), "ae"), &std::fclose) {
  if (!file_) fail("cannot write ", quote(path_), ": ", std::strerror(errno));
  append(number(kWallTime, static_cast<double>(std::time(nullptr))) + message(kFileVersion, "brain.Event:2"));
}

void TensorBoardWriter::append(const std::string& event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  const std::string record = length + little_endian(masked_crc(length)) + event + little_endian(masked_crc(event));
  const bool written = std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size();
  if (!written || std::fflush(file_.get()) != 0) fail("cannot write ", quote(path_), ": ", std::strerror(errno));
}

void TensorBoardWriter::write(int64_t step, double time, const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars)
    summary += message(kValue, message(kTag, tag) + number(kSimpleValue, static_cast<float>(value)));
  append(number(kWallTime, time) + number(kStep, static_cast<uint64_t>(step)) + message(kSummary, summary));
}

void remove_tensorboard_files(const fs::path& folder) {
  std::error_code none;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().starts_with(kPrefix)) found.push_back(entry.path());
  for (const fs::path& path : found) fs::remove(path, none);
}

}  // namespace motet
