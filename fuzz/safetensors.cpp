#include "motet/formats/safetensors.h"

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return motet::fuzzed(data, size, [](std::span<const std::byte> bytes) {
    for (const auto& tensor : motet::parse_safetensors(bytes, "f").tensors) motet::touch(tensor.bytes);
  });
}
