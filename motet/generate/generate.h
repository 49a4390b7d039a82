#pragma once
#include <functional>
#include <string>
#include <vector>

#include "motet/generate/sampler.h"
#include "motet/models/model.h"
#include "motet/text/tokenizer.h"

namespace motet {

struct GenerateOptions {
  int64_t max_tokens = 128;
  std::vector<std::string> stop;  // the text ends before the first of these
  SamplerOptions sampler;
};

/// Continues the prompt and returns the continuation. Each step runs the last tokens that fit the model's context anew.
/// `on_text` receives the text as it becomes certain: whole UTF-8 characters that no stop string can still take back.
/// Throws Error for an empty prompt or one longer than the context, Interrupted on Ctrl-C.
std::string generate(
    ModelImpl&, const Tokenizer&, const std::string& prompt, const GenerateOptions&,
    const std::function<void(std::string_view)>& on_text = [](std::string_view) {});

}  // namespace motet
