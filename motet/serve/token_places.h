#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "motet/text/pipeline/stream_decoder.h"

namespace motet {

/// Where tokens begin in the text that they make, in characters.
class TokenPlaces {
 public:
  /// The tokenizer must outlive it.
  explicit TokenPlaces(const Tokenizer& tokenizer) : tokenizer_(tokenizer), decoder_(tokenizer) {}
  /// To be called first: the next token stands behind a text of so many characters, whose last token was this one.
  void follow(int64_t characters, int32_t last);
  /// Where the token begins: behind what half a character before it becomes. `text` gets what became certain.
  int64_t next(int32_t id, std::string* text = nullptr);
  /// Where one would begin that comes now.
  int64_t place() const { return place_; }
  /// The rest of the text: of half a character that nothing follows.
  std::string rest() { return decoder_.flush(); }

 private:
  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  int64_t place_ = 0;
};

/// Where each token of a prompt begins in its text: none of the first `unwritten` is part of it. A `given` text is what
/// the others were made of, which they need not give back: a normalizer changes it, <unk> stands for any of it. Else it
/// is the tokenizer's text of them.
std::vector<int64_t> prompt_places(const Tokenizer&, std::span<const int32_t> ids, size_t unwritten,
                                   const std::string& text, bool given);

}  // namespace motet
