#include "motet/formats/gguf.h"

#include "fuzz/target.h"
#include "motet/formats/gguf_blocks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return motet::fuzzed(data, size, [](std::span<const std::byte> bytes) {
    const motet::GgufContent content = motet::parse_gguf(bytes, "f");
    for (const auto& [key, value] : content.metadata) motet::touch(value.bytes);
    for (const motet::GgufTensor& tensor : content.tensors) {
      motet::touch(tensor.bytes);
      std::vector<float> numbers(static_cast<size_t>(tensor.elements()));
      motet::decode_blocks(*motet::find_gguf_element(tensor.type), tensor.bytes, numbers);
    }
  });
}
