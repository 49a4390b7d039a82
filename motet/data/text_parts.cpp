#include "motet/data/text_parts.h"

#include "motet/core/utf8.h"

namespace motet {
namespace {

constexpr int kTried = 64;

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

// "word| word", or the line break between two lines that are not empty: in what pre-tokenizers make of these, white
// space belongs to what follows.
bool candidate(std::string_view text, size_t at) {
  const char before = text[at - 1], here = text[at], after = text[at + 1];
  if (here == ' ') return letter(before) && letter(after);
  return here == '\n' && !blank(before) && !blank(after);
}

// Whether encoding the text around gives the same when it is cut.
bool same(const Tokenizer& tokenizer, std::string_view around, size_t end, size_t next) {
  std::vector<int32_t> parts = tokenizer.encode(around.substr(0, end));
  const std::vector<int32_t> rest = tokenizer.encode(around.substr(next));
  parts.insert(parts.end(), rest.begin(), rest.end());
  return parts == tokenizer.encode(around);
}

}  // namespace

PartCut find_part_cut(const Tokenizer& tokenizer, std::string_view text, size_t size) {
  int tried = 0;
  for (size_t at = size - 1; at >= size / 2 && at >= kPartContext && tried < kTried; --at) {
    if (!candidate(text, at)) continue;
    ++tried;
    size_t begin = at - kPartContext, end = at + kPartContext;
    while (begin < at && continues_character(text[begin])) ++begin;
    while (end > at + 1 && end < text.size() && continues_character(text[end])) --end;
    const std::string_view around = text.substr(begin, end - begin);
    if (same(tokenizer, around, at - begin, at - begin)) return {at, at};
    if (text[at] == ' ' && same(tokenizer, around, at - begin, at - begin + 1)) return {at, at + 1};
  }
  return {};
}

}  // namespace motet
