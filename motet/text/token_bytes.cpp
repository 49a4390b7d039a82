#include "motet/text/token_bytes.h"

#include <charconv>

#include "motet/core/utf8.h"

namespace motet {
namespace {

// The byte that SentencePiece writes as <0xE2>.
bool byte_of(const std::string& piece, char& byte) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return false;
  unsigned char value = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  byte = static_cast<char>(value);
  return error == std::errc() && end == piece.data() + 5;
}

}  // namespace

std::string token_bytes(const Tokenizer& tokenizer, int32_t id) {
  const std::string alone = tokenizer.decode({&id, 1});
  if (tokenizer.decodes_one_by_one()) return alone;
  char byte;
  if (byte_of(tokenizer.piece(id), byte)) return std::string(1, byte);
  const int32_t twice[] = {id, id};  // SentencePiece drops the blank before the first token alone
  const std::string both = tokenizer.decode(twice);
  return both.starts_with(alone) ? both.substr(alone.size()) : alone;
}

std::vector<std::string> token_texts(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::vector<std::string> texts;
  std::string begun;  // of a character
  for (const int32_t id : ids) {
    const std::string bytes = begun + token_bytes(tokenizer, id);
    std::string_view rest = bytes;
    while (!rest.empty()) {
      const Utf8Step step = utf8_step(rest);
      if (step.kind == Utf8Step::Kind::incomplete) break;
      rest.remove_prefix(step.size);
    }
    texts.push_back(bytes.substr(0, bytes.size() - rest.size()));
    begun = rest;
  }
  if (!texts.empty()) texts.back() += begun;
  return texts;
}

std::vector<int32_t> token_byte_counts(const Tokenizer& tokenizer) {
  std::vector<int32_t> counts(static_cast<size_t>(tokenizer.vocabulary_size()));
  for (int32_t id = 0; id < static_cast<int32_t>(counts.size()); ++id) {
    if (!tokenizer.special(id))
      counts[static_cast<size_t>(id)] = static_cast<int32_t>(token_bytes(tokenizer, id).size());
  }
  return counts;
}

}  // namespace motet
