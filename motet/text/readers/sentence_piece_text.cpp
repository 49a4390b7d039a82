#include "motet/core/utf8.h"
#include "motet/text/pipeline/pipeline.h"

namespace motet {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";

// Bytes that follow each other: characters, and U+FFFD for each byte that is part of none.
void append_bytes(std::string& out, std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    const bool character = step.kind == Utf8Step::Kind::character;
    out += character ? bytes.substr(at, step.size) : "\xEF\xBF\xBD";
    at += character ? step.size : 1;
  }
}

}  // namespace

std::string sentence_piece_text(const SentencePieceText& rules, std::span<const int32_t> ids,
                                const std::vector<std::string>& pieces) {
  using Kind = SentencePieceText::Kind;
  std::string out, bytes;
  bool at_begin = true, space_seen = false;
  for (const int32_t id : ids) {
    const auto i = static_cast<size_t>(id);
    const Kind kind = i < rules.kinds.size() ? rules.kinds[i] : Kind::user_defined;
    if (kind == Kind::byte) {
      bytes += static_cast<char>(byte_of_token(pieces[i]));
      continue;
    }
    append_bytes(out, bytes);
    bytes.clear();
    if (space_seen || !out.empty()) at_begin = false;
    space_seen = false;
    if (kind == Kind::control) continue;
    if (kind == Kind::unknown) {
      out += rules.unknown;
      continue;
    }
    std::string_view piece = pieces[i];
    if (at_begin && (rules.strip_prefix || rules.collapse) && piece.starts_with(kSpace)) {
      piece.remove_prefix(kSpace.size());
      space_seen = !rules.collapse;
    }
    while (!piece.empty()) {
      const size_t space = std::min(piece.find(kSpace), piece.size());
      out += piece.substr(0, space);
      piece.remove_prefix(space);
      if (piece.empty()) break;
      out += ' ';
      piece.remove_prefix(kSpace.size());
    }
  }
  append_bytes(out, bytes);
  return out;
}

}  // namespace motet
