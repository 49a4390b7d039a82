// How a tokenizer cuts a text into the pieces that its model sees one by one.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "motet/text/pipeline/aligned_text.h"

namespace motet {

struct TextPiece {
  std::string_view text;             // not empty
  const TextSpan* origin = nullptr;  // of each byte; null: not tracked
  bool first = false;                // begins at the beginning of the original text

  TextPiece part(size_t begin, size_t end) const {
    return {text.substr(begin, end - begin), origin ? origin + begin : nullptr, first && begin == 0};
  }
};

// Takes pieces, which live until the call returns.
class PieceSink {
 public:
  virtual ~PieceSink() = default;
  virtual void piece(const TextPiece& piece) = 0;
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void split(const TextPiece& piece, PieceSink& out) const = 0;
};

struct PreTokenizers {
  std::vector<std::shared_ptr<const PreTokenizer>> steps;
  bool bytes = false;  // the pieces go to a byte-level model, which maps their bytes itself
};

// "pre_tokenizer" of tokenizer.json (null: none): ByteLevel, Split, Digits, Metaspace, Whitespace, WhitespaceSplit,
// Punctuation, Sequence. Throws Error that begins with `where` and names what is not supported.
PreTokenizers read_pre_tokenizers(const nlohmann::json& json, const std::string& where);

// All steps, one on the pieces of the other.
void pre_tokenize(const PreTokenizers& steps, const TextPiece& text, PieceSink& out);

// The regular expression of GPT-2.
extern const char* const kGpt2Pattern;

// GPT-2's printable stand-in for each byte, as UTF-8, and back.
const std::string& byte_character(unsigned char byte);
// The bytes behind a string of stand-ins; false when it has another character.
bool bytes_of_characters(std::string_view text, std::string& bytes);

}  // namespace motet
