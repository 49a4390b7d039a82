#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "motet/sampling/sampler.h"
#include "motet/sampling/stop_strings.h"
#include "motet/text/pipeline/stream_decoder.h"
#include "motet/text/tokenizer.h"

namespace motet {

struct WriterOptions {
  std::vector<std::string> stop;    // the text ends before the first of these
  std::vector<int32_t> end_tokens;  // and at one of these tokens (motet/generate/end_tokens.h)
  bool end_at_special = false;      // and at any special token, as answers do
  bool skip_special = false;        // special tokens are no part of the text; one whose name is a stop string stops it
  bool continues = false;           // the text goes on the prompt's, as an answer does not: StreamDecoder::follow
  int64_t logprobs = -1;            // of each token, and of so many of the likeliest; -1: none
  SamplerOptions sampler;
};

/// One token of a continuation. Logarithmic probabilities are those of the model itself, before the sampler's
/// penalties, filters and temperature.
struct GeneratedToken : ScoredToken {
  std::vector<ScoredToken> top;
};

struct Sample {
  std::string text;
  std::vector<GeneratedToken> tokens;  // the one that ended the text is not among them
  std::optional<GeneratedToken> end;   // that one
  bool stopped = false;                // by a stop string or an end token, not by the number of tokens
};

/// Receives a part of the text as it becomes certain: whole UTF-8 characters that no stop string can still take back.
using OnWritten = std::function<void(std::string_view)>;

/// One continuation of a prompt: logits in, the next token and text out. The tokenizer must outlive it.
class Writer {
 public:
  /// `number`: which of several samples of one prompt, as the sampler takes it.
  Writer(const Tokenizer&, std::span<const int32_t> prompt, WriterOptions, int64_t number, OnWritten = {});

  bool done() const { return sample_.stopped; }
  /// The next token; one without meaning after the end. Of the logits [V], V at least the tokenizer's vocabulary, those
  /// beyond it are never drawn: published models round their vocabulary up. Throws as Sampler::next.
  int32_t next(std::span<const float> logits_V);
  /// As those of Sampler; of the tokenizer's vocabulary. 0 too where logarithmic probabilities are asked for.
  int64_t wanted() const { return options_.logprobs < 0 ? sampler_.wanted() : 0; }
  int32_t next(std::span<const Candidate> likeliest);
  /// So far.
  const Sample& sample() const { return sample_; }
  /// The end: what was held back is written.
  Sample finish();

 private:
  void take(const GeneratedToken&);
  GeneratedToken scored(std::span<const float> logits_V, int32_t id) const;
  bool ends(int32_t id) const;
  void emit(const std::string& text);

  const Tokenizer& tokenizer_;
  WriterOptions options_;
  OnWritten on_written_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopStrings filter_;
  Sample sample_;
};

}  // namespace motet
