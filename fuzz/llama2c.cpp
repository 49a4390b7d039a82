#include "motet/formats/llama2c.h"

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return motet::fuzzed(data, size, [](std::span<const std::byte> bytes) {
    for (const auto& tensor : motet::parse_llama2c(bytes, "f").tensors) motet::touch(tensor.bytes);
  });
}
