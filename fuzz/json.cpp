#include "motet/formats/json.h"

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return motet::fuzzed(data, size, [](std::span<const std::byte> bytes) {
    motet::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "f").dump();
  });
}
