// Any bytes as text: ids with and without offsets agree, places lie in the text, streams are valid UTF-8.
#include <cstdint>
#include <cstdlib>

#include "motet/core/utf8.h"
#include "motet/text/bpe/bpe_trainer.h"
#include "motet/text/pipeline/stream_decoder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizer = [] {
    motet::BpeTrainer trainer;
    for (int i = 0; i < 3; ++i) trainer.add("the cat's caf\u00e9 has 123 tables, 456 chairs\n\n  and  the\tend ");
    return trainer.finish(300);
  }();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto ids = tokenizer->encode(text);
  const auto tokens = tokenizer->tokens(text, {});
  if (ids.size() != tokens.size()) std::abort();
  motet::StreamDecoder stream(*tokenizer);
  std::string shown;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto& [id, span] = tokens[i];
    if (id != ids[i] || span.begin > span.end || span.end > size) std::abort();
    const std::string part = stream.push(id);
    if (motet::utf8_invalid_at(part) != std::string::npos) std::abort();
    shown += part;
  }
  if (shown + stream.flush() != tokenizer->text(ids, false)) std::abort();
  return 0;
}
