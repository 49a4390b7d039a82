#pragma once
#include <functional>
#include <string>
#include <vector>

#include "motet/generate/decoder.h"
#include "motet/generate/sampler.h"
#include "motet/text/tokenizer.h"

namespace motet {

struct GenerateOptions {
  int64_t max_tokens = 128;
  std::vector<std::string> stop;  // the text ends before the first of these
  bool end_at_special = false;    // and at a special token, as answers do
  SamplerOptions sampler;
  CacheOptions cache;
};

/// The prompt as tokens. Throws Error for an empty one, one that the tokenizer cannot write, one longer than the
/// context.
std::vector<int32_t> prompt_tokens(const Tokenizer&, const std::string& prompt, int64_t context);

/// Continues what the decoder holds and returns the continuation; the other words as at generate().
std::string continue_text(Decoder&, const Tokenizer&, const GenerateOptions&,
                          const std::function<void(std::string_view)>& on_text);

/// Continues the prompt and returns the continuation, each token computed on its own (decoder.h).
/// `on_text` receives the text as it becomes certain: whole UTF-8 characters that no stop string can still take back.
/// Throws as prompt_tokens does, Interrupted on Ctrl-C.
std::string generate(
    ModelImpl&, const Tokenizer&, const std::string& prompt, const GenerateOptions&,
    const std::function<void(std::string_view)>& on_text = [](std::string_view) {});

}  // namespace motet
