// Long documents in parts that are encoded on their own and give the same tokens.
#pragma once

#include <string_view>

#include "motet/text/tokenizer.h"

namespace motet {

// A document is cut once it is longer than both together; a place is chosen before the first and looks at most the
// second ahead.
inline constexpr size_t kPartBytes = 1 << 20, kPartContext = 1 << 10;

// Where a part of a document ends and the next one begins: there, or behind a space that the tokenizer puts there by
// itself.
struct PartCut {
  size_t end = 0, next = 0;  // 0: no place
};

// The last place in text[size / 2, size) between two words, or at the end of a line, around which the tokens are the
// same with and without the cut, of the first 64 tried. `text` has at least size + kPartContext bytes. Depends on these
// bytes and the tokenizer alone.
PartCut find_part_cut(const Tokenizer& tokenizer, std::string_view text, size_t size);

}  // namespace motet
