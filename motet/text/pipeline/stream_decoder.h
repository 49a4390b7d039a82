// Text that appears token by token.
#pragma once

#include <cstdint>
#include <string>

#include "motet/text/tokenizer.h"

namespace motet {

// Emits only whole UTF-8 characters: bytes of a character that is not complete wait for the next token, and bytes that
// can never be one become U+FFFD (one for each longest start of a character, as Unicode recommends).
// Where tokens depend on each other (SentencePiece), bytes that never become a character wait for 16 tokens. What
// was given out stays, also where a later token changes it in the text of all. The tokenizer must outlive the object.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // The text goes on that of another one's last token: a blank between the two is part of it, where SentencePiece has
  // none at a text's beginning.
  void follow(int32_t last);

  // The text that is complete now; may be empty. Throws Error for an id outside of the vocabulary.
  std::string push(int32_t id);

  // What still waited, as U+FFFD; empty when nothing did. The decoder is then as new.
  std::string flush();

 private:
  // What `all`, the text of ids_, adds to the shown one; where it changed that, the text of the new tokens alone.
  std::string new_text(const std::string& all) const;

  const Tokenizer& tokenizer_;
  std::string waiting_;  // less than one character
  // Of a tokenizer whose tokens depend on each other: those of the last text and what came since.
  std::vector<int32_t> ids_;
  size_t shown_ = 0;  // of ids_
  std::string shown_text_;
};

}  // namespace motet
