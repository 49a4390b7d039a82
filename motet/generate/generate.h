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
  std::vector<std::string> stop;    // the text ends before the first of these
  std::vector<int32_t> end_tokens;  // and at one of these tokens (end_tokens.h)
  bool end_at_special = false;      // and at any special token, as answers do
  int64_t samples = 1;
  int64_t logprobs = -1;  // of each token, and of so many of the likeliest; -1: none
  SamplerOptions sampler;
  CacheOptions cache;
  std::function<void()> on_prompt;  // called when the prompt has been computed, before the first token is drawn
};

/// One token of a continuation. Logarithmic probabilities are those of the model itself, before the sampler's
/// penalties, filters and temperature.
struct GeneratedToken : ScoredToken {
  std::vector<ScoredToken> top;
};

struct Sample {
  std::string text;
  std::vector<GeneratedToken> tokens;  // the one that ended the text is not among them
  bool stopped = false;                // by a stop string or an end token, not by max_tokens
};

/// Receives the text of sample number i as it becomes certain: whole UTF-8 characters that no stop string can still
/// take back.
using OnText = std::function<void(int64_t i, std::string_view)>;

/// The prompt as tokens. Throws Error for an empty one, one that the tokenizer cannot write, one longer than the
/// context.
std::vector<int32_t> prompt_tokens(const Tokenizer&, const std::string& prompt, int64_t context);

/// Continues the one sequence that the decoder holds, options.samples times; a sample does not depend on how many there
/// are. Throws Interrupted on Ctrl-C.
std::vector<Sample> continue_text(Decoder&, const Tokenizer&, const GenerateOptions&, const OnText& = {});

/// Continues the prompt. Throws as prompt_tokens and Decoder do, Interrupted on Ctrl-C.
std::vector<Sample> generate(ModelImpl&, const Tokenizer&, const std::string& prompt, const GenerateOptions&,
                             const OnText& = {});

}  // namespace motet
