#include "motet/text/pipeline/added_tokens.h"

#include "motet/text/pipeline/unicode.h"

namespace motet {
namespace {

bool is_word(char32_t value) {
  return (category(value) & kWords) != 0 || is_circled_letter(value) || value == 0x200C || value == 0x200D;
}

bool word_around(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word(code_point(text, character_before(text, begin)).value)) ||
         (end < text.size() && is_word(code_point(text, end).value));
}

}  // namespace

AddedTokenSearch::AddedTokenSearch(const std::vector<AddedToken>& tokens, bool normalized,
                                   const Normalizers& normalizers) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized) continue;
    const std::string content = normalized ? motet::normalized(normalizers, token.content) : token.content;
    if (content.empty()) continue;
    uint32_t node = 0;
    for (const char byte : content) {
      const auto [found, added] =
          nodes_[node].next.try_emplace(static_cast<unsigned char>(byte), static_cast<uint32_t>(nodes_.size()));
      const uint32_t next = found->second;
      if (added) nodes_.emplace_back();
      node = next;
    }
    if (!nodes_[node].token) nodes_[node].token = &token;
    first_[static_cast<unsigned char>(content[0])] = true;
    contents_.push_back(content);
  }
}

const AddedToken* AddedTokenSearch::longest(std::string_view text, size_t at, size_t& end) const {
  const AddedToken* found = nullptr;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto next = nodes_[node].next.find(static_cast<unsigned char>(text[i]));
    if (next == nodes_[node].next.end()) break;
    node = next->second;
    if (nodes_[node].token) {
      found = nodes_[node].token;
      end = i + 1;
    }
  }
  return found;
}

std::vector<AddedTokenSearch::Part> AddedTokenSearch::split(std::string_view text, bool special) const {
  std::vector<Part> parts;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !empty();) {
    if (!first_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    size_t end = at;
    const AddedToken* token = longest(text, at, end);
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at;
    at = end;
    if ((token->special && !special) || (token->single_word && word_around(text, begin, end))) continue;
    if (token->lstrip) {
      while (begin > done) {
        const size_t before = character_before(text, begin);
        if (!is_white_space(code_point(text, before).value)) break;
        begin = before;
      }
      begin = std::max(begin, done);  // what the token before has taken already
      if (begin >= end) continue;
    }
    while (token->rstrip && end < text.size() && is_white_space(code_point(text, end).value)) {
      end += code_point(text, end).size;
    }
    if (begin > done) parts.push_back({nullptr, done, begin});
    parts.push_back({token, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({nullptr, done, text.size()});
  return parts;
}

}  // namespace motet
