#include "motet/serve/token_places.h"

#include <algorithm>

#include "motet/core/utf8.h"
#include "motet/text/token_bytes.h"

namespace motet {
namespace {

int64_t characters(std::string_view text) { return static_cast<int64_t>(utf8_length(text)); }

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// By the encoder's spans. A token within a character begins where that does, and blanks that no span has (where offsets
// are trimmed) are the next token's; what else a normalizer takes away is of the one before.
std::vector<int64_t> places_of_spans(const std::vector<TextToken>& tokens, std::string_view text) {
  std::vector<int64_t> places;
  size_t end = 0, at = 0;  // of the spans so far; of the last token
  int64_t place = 0;
  for (const TextToken& token : tokens) {
    size_t begin = std::min(token.span.begin, text.size());
    while (begin > end && is_blank(text[begin - 1])) --begin;
    while (begin > 0 && begin < text.size() && continues_character(text[begin])) --begin;
    if (begin > at) {
      place += characters(text.substr(at, begin - at));
      at = begin;
    }
    places.push_back(place);
    end = std::max(end, token.span.end);
  }
  return places;
}

}  // namespace

void TokenPlaces::follow(int64_t characters, int32_t last) {
  decoder_.follow(last);
  place_ = characters;
}

int64_t TokenPlaces::next(int32_t id, std::string* text) {
  const std::string own = token_bytes(tokenizer_, id), certain = decoder_.push(id);
  if (text) *text += certain;
  const int64_t begin = place_, come = characters(certain);
  place_ += come;
  const bool whole = !own.empty() && utf8_invalid_at(own) == std::string::npos;
  return whole && come > characters(own) ? place_ - characters(own) : begin;
}

std::vector<int64_t> prompt_places(const Tokenizer& tokenizer, std::span<const int32_t> ids, size_t unwritten,
                                   const std::string& text, bool given) {
  const std::span<const int32_t> written = ids.subspan(unwritten);
  TokenPlaces decoded(tokenizer);
  std::string back;
  std::vector<int64_t> places;
  for (const int32_t id : written) places.push_back(decoded.next(id, &back));
  back += decoded.rest();
  if (back != text) {
    const std::vector<TextToken> tokens = given ? tokenizer.tokens(text, {}) : std::vector<TextToken>();
    if (tokens.size() == written.size()) places = places_of_spans(tokens, text);
    const int64_t most = characters(text);
    for (int64_t& place : places) place = std::min(place, most);
  }
  places.insert(places.begin(), unwritten, 0);
  return places;
}

}  // namespace motet
