// Any bytes as a tokenizer.json: an Error or a tokenizer that encodes and decodes.
#include <cstdint>

#include "motet/core/error.h"
#include "motet/formats/json.h"
#include "motet/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = motet::tokenizer_from_json(motet::parse_json(bytes, "fuzz"), "fuzz");
    tokenizer->text(tokenizer->encode("The cat's 12 caf\u00e9s\n"), false);
  } catch (const motet::Error&) {
  }
  return 0;
}
