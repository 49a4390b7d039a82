#include "motet/core/utf8.h"

#include <cstring>

namespace motet {
namespace {

struct Lead {
  size_t size;              // of the whole character; 0: no character starts so
  unsigned char low, high;  // range of the second byte
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  const Lead lead = lead_of(static_cast<unsigned char>(bytes[0]));
  if (lead.size == 0) return {Utf8Step::Kind::invalid, 1};
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {Utf8Step::Kind::incomplete, i};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const bool second = i == 1;
    if (byte < (second ? lead.low : 0x80) || byte > (second ? lead.high : 0xBF)) return {Utf8Step::Kind::invalid, i};
  }
  return {Utf8Step::Kind::character, lead.size};
}

size_t utf8_invalid_at(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    if (step.kind != Utf8Step::Kind::character) return at;
    at += step.size;
  }
  return std::string_view::npos;
}

std::string_view valid_utf8(std::string_view text, std::string& storage) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight;
    if (text.size() - at >= sizeof eight) {  // eight ASCII bytes at once
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind != Utf8Step::Kind::character) break;
    at += step.size;
  }
  if (at == text.size()) return text;
  storage.assign(text.substr(0, at));
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    storage += step.kind == Utf8Step::Kind::character ? text.substr(at, step.size) : "\xEF\xBF\xBD";
    at += step.size;
  }
  return storage;
}

size_t utf8_boundary(std::string_view bytes, size_t at, int step) {
  for (int tries = 0; tries < 3 && continues_character(bytes[at]); ++tries) at += step;
  return at;
}

size_t utf8_length(std::string_view bytes) {
  size_t length = 0;
  for (size_t at = 0; at < bytes.size(); ++length) at += utf8_step(bytes.substr(at)).size;
  return length;
}

}  // namespace motet
