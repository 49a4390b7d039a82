#include "motet/text/token_bytes.h"

namespace motet {

std::vector<int32_t> token_byte_counts(const Tokenizer& tokenizer) {
  std::vector<int32_t> counts(static_cast<size_t>(tokenizer.vocabulary_size()));
  for (int32_t id = 0; id < static_cast<int32_t>(counts.size()); ++id) {
    if (tokenizer.special(id)) continue;
    const int32_t twice[] = {id, id};  // SentencePiece drops the blank before the first token alone
    counts[static_cast<size_t>(id)] =
        static_cast<int32_t>(tokenizer.decode(twice).size() - tokenizer.decode({&id, 1}).size());
  }
  return counts;
}

}  // namespace motet
