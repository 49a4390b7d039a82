#include "motet/commands/sample_text.h"

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/generate/generate.h"

namespace motet {
namespace {

constexpr int64_t kPromptTokens = 16;

// Without the first bytes of a character at the end.
std::string whole_characters(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(std::string_view(bytes).substr(at));
    if (step.kind == Utf8Step::Kind::incomplete && at > 0) return bytes.substr(0, at);
    at += step.size;
  }
  return bytes;
}

}  // namespace

std::string first_words(const TextData& data, int64_t context) {
  const auto length = static_cast<uint64_t>(std::clamp<int64_t>(context / 2, 1, kPromptTokens));
  const std::vector<int64_t> first = data.validation->slice(0, length);
  const std::string words = whole_characters(data.tokenizer->decode(std::vector<int32_t>(first.begin(), first.end())));
  try {
    prompt_tokens(*data.tokenizer, words, context);
  } catch (const Error&) {
    return "";
  }
  return words;
}

}  // namespace motet
