// Any bytes as a chat template: an Error or a text.
#include <cstdint>

#include "motet/core/error.h"
#include "motet/text/chat/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::ordered_json variables = {
      {"messages", {{{"role", "user"}, {"content", " Hi "}}, {{"role", "assistant"}, {"content", "Ho"}}}},
      {"add_generation_prompt", true},
      {"bos_token", "<s>"}};
  try {
    motet::ChatTemplate({reinterpret_cast<const char*>(data), size}, "fuzz").render(variables);
  } catch (const motet::Error&) {
  }
  return 0;
}
