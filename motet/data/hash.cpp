#include "motet/data/hash.h"

#include <cinttypes>
#include <cstdio>

#define XXH_INLINE_ALL  // headers alone: no library at run time
#include <xxhash.h>

namespace motet {

struct Hash64::State {
  XXH3_state_t xxh;
};

uint64_t hash64(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash64::Hash64() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh);
  XXH3_64bits_reset(&state_->xxh);
}

Hash64::~Hash64() = default;

void Hash64::add(std::string_view bytes) { XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size()); }

uint64_t Hash64::value() const { return XXH3_64bits_digest(&state_->xxh); }

std::string hash_text(uint64_t hash) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, hash);
  return digits;
}

}  // namespace motet
