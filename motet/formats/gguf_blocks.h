// The element types of GGUF: blocks of quantised numbers with their scales.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace motet {

struct GgufElement {
  uint32_t code;  // in the file
  const char* name;
  int64_t block;  // numbers in a block
  int64_t bytes;  // of a block
  void (*decode)(const std::byte* block, float* out);
};

// All types that are read: F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K.
std::span<const GgufElement> gguf_elements();
// Null when there is none.
const GgufElement* find_gguf_element(uint32_t code);
const GgufElement* find_gguf_element(const std::string& name);
// The name of a code that is known but not read, such as IQ4_NL, or "type 99".
std::string gguf_code_name(uint32_t code);

// All numbers of whole blocks, exactly as llama.cpp's reference code computes them (products in float32). `out` has
// bytes.size() / element.bytes * element.block places.
void decode_blocks(const GgufElement& element, std::span<const std::byte> bytes, std::span<float> out);

// IEEE half and bfloat16 to float.
float half_to_float(uint16_t bits);
float bfloat_to_float(uint16_t bits);

}  // namespace motet
