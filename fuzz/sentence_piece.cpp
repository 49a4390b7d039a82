// Any bytes as a SentencePiece model and as llama2.c's tokenizer.
#include <cstdint>

#include "motet/core/error.h"
#include "motet/text/readers/vectors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool sentence_piece : {true, false}) {
    try {
      const auto vectors =
          sentence_piece ? motet::read_sentence_piece(bytes, "fuzz") : motet::read_llama2c(bytes, "fuzz");
      const auto tokenizer = motet::tokenizer_from_vectors(vectors, "fuzz");
      tokenizer->text(tokenizer->encode("The cat's 12 caf\u00e9s\n"), false);
    } catch (const motet::Error&) {
    }
  }
  return 0;
}
