// Any bytes as the body of a completion or, by the first one, of a chat: refused with 400, or numbers within their
// ranges.
#include "motet/serve/completion_request.h"
#include "fuzz/target.h"

namespace {

void want(bool holds, const char* what) {
  if (holds) return;
  std::cerr << "not so: " << what << std::endl;
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return motet::fuzzed(data, size, [](std::span<const std::byte> all) {
    if (all.empty()) return;
    constexpr int64_t kVocabulary = 300;
    const std::string_view body(reinterpret_cast<const char*>(all.data()) + 1, all.size() - 1);
    try {
      const motet::CompletionRequest r = motet::read_completion(body, all.front() == std::byte{'c'}, kVocabulary);
      want(r.fields.n >= 1 && r.fields.n <= motet::kMostSamples, "n has its range");
      want(r.writer.logprobs >= -1 && r.writer.logprobs <= motet::kMostLogprobs, "logprobs has its range");
      want(!r.max_tokens || (*r.max_tokens >= 0 && *r.max_tokens <= 1 << 30), "max_tokens has its range");
      want(r.prompts.size() <= static_cast<size_t>(motet::kMostPrompts), "prompts have a number");
      want(r.chat ? !r.messages.empty() : !r.prompts.empty(), "something is asked");
      want(r.fields.temperature >= 0 && r.fields.temperature <= 2, "temperature has its range");
      for (const auto& [id, bias] : r.writer.sampler.bias)
        want(id >= 0 && id < kVocabulary && bias >= -100 && bias <= 100, "a bias has its range");
      for (const auto& prompt : r.prompts)
        if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt))
          for (const int32_t id : *ids) want(id >= 0 && id < kVocabulary, "an id is in the vocabulary");
    } catch (const motet::Refused& refused) {
      want(refused.status() == 400, "what is wrong is the request");
      throw;
    }
  });
}
