#include <array>

#include "motet/text/pipeline/pre_tokenizer.h"

namespace motet {
namespace {

struct Tables {
  std::array<std::string, 256> characters;
  std::array<int, 0x144> bytes;  // -1: no stand-in

  Tables() {
    bytes.fill(-1);
    char32_t shifted = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t code = visible ? static_cast<char32_t>(byte) : shifted++;
      append_utf8(characters[static_cast<size_t>(byte)], code);
      bytes[code] = byte;
    }
  }
};

const Tables& tables() {
  static const Tables all;
  return all;
}

}  // namespace

const std::string& byte_character(unsigned char byte) { return tables().characters[byte]; }

bool bytes_of_characters(std::string_view text, std::string& bytes) {
  const auto& table = tables().bytes;
  bytes.clear();
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    if (c.value >= table.size() || table[c.value] < 0) return false;
    bytes += static_cast<char>(table[c.value]);
    at += c.size;
  }
  return true;
}

}  // namespace motet
