#pragma once
#include <functional>
#include <string>
#include <vector>

#include "motet/generate/decoder.h"
#include "motet/sampling/writer.h"

namespace motet {

struct GenerateOptions {
  int64_t max_tokens = 128;
  int64_t samples = 1;
  bool special_tokens = true;  // those that the tokenizer's file puts before every text stand before the prompt
  WriterOptions writer;
  CacheOptions cache;
  std::function<void()> on_prompt;  // called when the prompt has been computed, before the first token is drawn
};

/// Receives the text of sample number i as it becomes certain: whole UTF-8 characters that no stop string can still
/// take back.
using OnText = std::function<void(int64_t i, std::string_view)>;

/// The prompt as tokens, behind those that the tokenizer's file puts before every text (special_tokens). Throws Error
/// for an empty one, one that the tokenizer cannot write, one longer than the context.
std::vector<int32_t> prompt_tokens(const Tokenizer&, const std::string& prompt, int64_t context,
                                   bool special_tokens = true);

/// Continues the one sequence that the decoder holds, options.samples times; a sample does not depend on how many there
/// are. Throws Interrupted on Ctrl-C.
std::vector<Sample> continue_text(Decoder&, const Tokenizer&, const GenerateOptions&, const OnText& = {});

/// Continues the prompt. Throws as prompt_tokens and Decoder do, Interrupted on Ctrl-C.
std::vector<Sample> generate(ModelImpl&, const Tokenizer&, const std::string& prompt, const GenerateOptions&,
                             const OnText& = {});

}  // namespace motet
