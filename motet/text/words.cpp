#include "motet/text/words.h"

namespace motet {

std::vector<bool> word_beginnings(const Tokenizer& tokenizer) {
  std::vector<bool> begins(static_cast<size_t>(tokenizer.vocabulary_size()));
  for (int32_t id = 0; id < static_cast<int32_t>(begins.size()); ++id) {
    if (tokenizer.special(id)) continue;
    const int32_t twice[] = {id, id};  // the first token of a text may lose its blank
    const std::string once = tokenizer.decode({&id, 1}), both = tokenizer.decode(twice);
    const char first = both.size() > once.size() ? both[once.size()] : 'x';
    begins[static_cast<size_t>(id)] = first == ' ' || (first >= '\t' && first <= '\r');
  }
  return begins;
}

}  // namespace motet
