#include "motet/formats/gguf_blocks.h"

#include <array>
#include <bit>
#include <cstring>

#include "motet/core/error.h"

// Source of the layouts: ggml's ggml-common.h and the reference dequantisation in ggml-quants.c (MIT), rewritten.
namespace motet {
namespace {

constexpr int kSmall = 32, kLarge = 256;  // numbers in a block

uint8_t byte_at(const std::byte* b, int i) { return std::to_integer<uint8_t>(b[i]); }

int signed_at(const std::byte* b, int i) { return static_cast<int8_t>(byte_at(b, i)); }

float half_at(const std::byte* b) {
  uint16_t bits;
  std::memcpy(&bits, b, sizeof bits);
  return half_to_float(bits);
}

void f32(const std::byte* b, float* y) { std::memcpy(y, b, sizeof *y); }

void f16(const std::byte* b, float* y) { *y = half_at(b); }

void bf16(const std::byte* b, float* y) {
  uint16_t bits;
  std::memcpy(&bits, b, sizeof bits);
  *y = bfloat_to_float(bits);
}

void q8_0(const std::byte* b, float* y) {
  const float d = half_at(b);
  for (int i = 0; i < kSmall; ++i) y[i] = static_cast<float>(signed_at(b + 2, i)) * d;
}

// Q4_0, Q4_1, Q5_0, Q5_1: low nibbles are the first half, high ones the second; a fifth bit may lie in a mask; the
// numbers are centred, or have a minimum of their own.
template <bool kFive, bool kMinimum>
void small(const std::byte* b, float* y) {
  const float d = half_at(b), m = kMinimum ? half_at(b + 2) : 0;
  const std::byte* at = b + (kMinimum ? 4 : 2);
  uint32_t fifth = 0;
  if (kFive) {
    std::memcpy(&fifth, at, sizeof fifth);
    at += sizeof fifth;
  }
  for (int i = 0; i < kSmall; ++i) {
    const uint8_t both = byte_at(at, i % 16);
    int q = i < 16 ? both & 0xF : both >> 4;
    q |= static_cast<int>(fifth >> i & 1) << 4;
    y[i] = kMinimum ? static_cast<float>(q) * d + m : static_cast<float>(q - (kFive ? 16 : 8)) * d;
  }
}

// Scale and minimum number `i` of the eight pairs of six bits in 12 bytes.
std::pair<int, int> scale_and_minimum(int i, const std::byte* s) {
  if (i < 4) return {byte_at(s, i) & 63, byte_at(s, i + 4) & 63};
  return {(byte_at(s, i + 4) & 0xF) | (byte_at(s, i - 4) >> 6) << 4, byte_at(s, i + 4) >> 4 | (byte_at(s, i) >> 6)
                                                                                                  << 4};
}

// Q4_K, Q5_K: eight groups of 32 numbers with a scale and a minimum each.
template <bool kFive>
void large(const std::byte* b, float* y) {
  const float d = half_at(b), least = half_at(b + 2);
  const std::byte *scales = b + 4, *high = b + 16, *low = b + (kFive ? 48 : 16);
  for (int group = 0; group < 8; ++group) {
    const auto [scale, minimum] = scale_and_minimum(group, scales);
    const float d1 = d * static_cast<float>(scale), m1 = least * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) {
      const uint8_t both = byte_at(low + group / 2 * 32, i);
      int q = group % 2 ? both >> 4 : both & 0xF;
      if (kFive) q += (byte_at(high, i) >> group & 1) * 16;
      y[group * 32 + i] = d1 * static_cast<float>(q) - m1;
    }
  }
}

// Two halves of 128 numbers: four low bits, two high bits, a scale for each 16.
void q6_k(const std::byte* b, float* y) {
  const std::byte *low = b, *high = b + 128, *scales = b + 192;
  const float d = half_at(b + 208);
  for (int i = 0; i < kLarge; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, j = i % 32;
    const uint8_t both = byte_at(low + 64 * half + 32 * (quarter % 2), j);
    const int four = quarter < 2 ? both & 0xF : both >> 4, two = byte_at(high + 32 * half, j) >> (2 * quarter) & 3;
    const int scale = signed_at(scales, 8 * half + 2 * quarter + j / 16);
    y[i] = d * static_cast<float>(scale) * static_cast<float>((four | two << 4) - 32);
  }
}

constexpr std::array<GgufElement, 11> kElements = {{{0, "F32", 1, 4, f32},
                                                    {1, "F16", 1, 2, f16},
                                                    {2, "Q4_0", kSmall, 18, small<false, false>},
                                                    {3, "Q4_1", kSmall, 20, small<false, true>},
                                                    {6, "Q5_0", kSmall, 22, small<true, false>},
                                                    {7, "Q5_1", kSmall, 24, small<true, true>},
                                                    {8, "Q8_0", kSmall, 34, q8_0},
                                                    {12, "Q4_K", kLarge, 144, large<false>},
                                                    {13, "Q5_K", kLarge, 176, large<true>},
                                                    {14, "Q6_K", kLarge, 210, q6_k},
                                                    {30, "BF16", 1, 2, bf16}}};

}  // namespace

float half_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, exponent = bits >> 10 & 0x1F,
                 mantissa = bits & 0x3FF;
  if (exponent == 0) {
    const float small = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -small : small;
  }
  const uint32_t wide = exponent == 0x1F ? 0xFF : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

std::span<const GgufElement> gguf_elements() { return kElements; }

const GgufElement* find_gguf_element(uint32_t code) {
  for (const GgufElement& element : kElements)
    if (element.code == code) return &element;
  return nullptr;
}

const GgufElement* find_gguf_element(const std::string& name) {
  for (const GgufElement& element : kElements)
    if (element.name == name) return &element;
  return nullptr;
}

std::string gguf_code_name(uint32_t code) {
  static constexpr std::array<std::pair<uint32_t, const char*>, 19> others = {{{9, "Q8_1"},
                                                                               {10, "Q2_K"},
                                                                               {11, "Q3_K"},
                                                                               {15, "Q8_K"},
                                                                               {16, "IQ2_XXS"},
                                                                               {17, "IQ2_XS"},
                                                                               {18, "IQ3_XXS"},
                                                                               {19, "IQ1_S"},
                                                                               {20, "IQ4_NL"},
                                                                               {21, "IQ3_S"},
                                                                               {22, "IQ2_S"},
                                                                               {23, "IQ4_XS"},
                                                                               {24, "I8"},
                                                                               {25, "I16"},
                                                                               {26, "I32"},
                                                                               {27, "I64"},
                                                                               {28, "F64"},
                                                                               {29, "IQ1_M"},
                                                                               {39, "MXFP4"}}};
  for (const auto& [other, name] : others)
    if (other == code) return name;
  return text("type ", code);
}

void decode_blocks(const GgufElement& element, std::span<const std::byte> bytes, std::span<float> out) {
  const size_t blocks = bytes.size() / static_cast<size_t>(element.bytes);
  if (blocks * static_cast<size_t>(element.bytes) != bytes.size() ||
      blocks * static_cast<size_t>(element.block) != out.size())
    fail("decode_blocks: ", bytes.size(), " bytes of ", element.name, " do not fill ", out.size(), " numbers");
  for (size_t i = 0; i < blocks; ++i)
    element.decode(bytes.data() + i * static_cast<size_t>(element.bytes),
                   out.data() + i * static_cast<size_t>(element.block));
}

}  // namespace motet
