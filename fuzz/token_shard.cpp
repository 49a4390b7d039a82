#include "motet/data/token_shard.h"

#include <cstring>
#include <vector>

#include "fuzz/target.h"
#include "motet/data/hash.h"

namespace {

void read_shard(std::span<const std::byte> bytes) {
  static const std::string where = "f";
  const motet::TokenShard shard(bytes, where);
  shard.document_starts(0, shard.size());
  shard.check();
}

// With a checksum that is right, so that what the header says is believed.
std::vector<std::byte> with_checksum(std::span<const std::byte> bytes) {
  constexpr size_t kHashed = 56;
  std::vector<std::byte> out(bytes.begin(), bytes.end());
  const uint64_t hash = motet::hash64({reinterpret_cast<const char*>(out.data()), kHashed});
  std::memcpy(out.data() + kHashed, &hash, sizeof hash);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  motet::fuzzed(data, size, read_shard);
  if (size < 64) return 0;
  return motet::fuzzed(data, size, [](std::span<const std::byte> bytes) { read_shard(with_checksum(bytes)); });
}
