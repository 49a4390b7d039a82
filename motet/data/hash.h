// Checksums that notice damage and other content; no protection against forgery. XXH3, 64 bits: `xxhsum -H3` prints
// the same digits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace motet {

uint64_t hash64(std::string_view bytes, uint64_t seed = 0);

// The hash of bytes that come part by part.
class Hash64 {
 public:
  Hash64();
  ~Hash64();
  Hash64(const Hash64&) = delete;
  Hash64& operator=(const Hash64&) = delete;

  void add(std::string_view bytes);
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace motet
