// Numbers and strings out of little-endian bytes that are not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "motet/core/error.h"

namespace motet {

// Reads from front to back; every complaint is an Error "WHERE: the file ends inside WHAT, at byte N of M".
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }
  const std::string& where() const { return where_; }

  template <class Number>
  Number number(const std::string& what) {
    static_assert(std::is_arithmetic_v<Number>);
    Number value;
    std::memcpy(&value, take(sizeof value, what).data(), sizeof value);
    return value;
  }

  std::span<const std::byte> take(uint64_t size, const std::string& what) {
    if (size > left()) fail(where_, ": the file ends inside ", what, ", at byte ", at_, " of ", bytes_.size());
    at_ += size;
    return bytes_.subspan(at_ - size, size);
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& where_;
  size_t at_ = 0;
};

}  // namespace motet
