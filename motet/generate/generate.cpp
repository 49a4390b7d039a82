#include "motet/generate/generate.h"

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/text/stream_decoder.h"

namespace motet {
namespace {

// Holds back what could be the beginning of a stop string.
class StopFilter {
 public:
  explicit StopFilter(const std::vector<std::string>& stops) : stops_(stops) {}

  // The text that is certain now; sets stopped().
  std::string push(const std::string& text) {
    held_ += text;
    size_t first = std::string::npos;
    for (const std::string& stop : stops_) first = stop.empty() ? first : std::min(first, held_.find(stop));
    if (first != std::string::npos) {
      stopped_ = true;
      return held_.substr(0, first);
    }
    size_t keep = 0;
    for (const std::string& stop : stops_)
      for (size_t n = std::min(stop.size(), held_.size()); n > keep; --n)
        if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
    std::string certain = held_.substr(0, held_.size() - keep);
    held_.erase(0, certain.size());
    return certain;
  }
  std::string rest() { return stopped_ ? "" : std::exchange(held_, ""); }
  bool stopped() const { return stopped_; }

 private:
  const std::vector<std::string>& stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace

std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt, int64_t context) {
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  if (ids.empty()) fail("generate: the prompt is empty, want at least one token");
  if (static_cast<int64_t>(ids.size()) > context)
    fail("generate: the prompt has ", ids.size(), " tokens, want at most the model's context of ", context);
  return ids;
}

std::string continue_text(Decoder& decoder, const Tokenizer& tokenizer, const GenerateOptions& options,
                          const std::function<void(std::string_view)>& on_text) {
  at::NoGradGuard no_grad;
  Sampler sampler(options.sampler);
  StreamDecoder text_decoder(tokenizer);
  StopFilter filter(options.stop);
  std::string out;
  const auto emit = [&](const std::string& text) {
    if (text.empty()) return;
    out += text;
    on_text(text);
  };
  for (int64_t i = 0; i < options.max_tokens && !filter.stopped(); ++i) {
    check_interrupt();
    // Published models round their vocabulary up: what the tokenizer does not know is not drawn.
    const Tensor known_V = decoder.logits().slice(0, 0, tokenizer.vocabulary_size());
    const int32_t token = sampler.next(known_V, decoder.ids());
    if (options.end_at_special && tokenizer.special(token)) break;
    decoder.push(token);
    emit(filter.push(text_decoder.push(token)));
  }
  if (!filter.stopped()) emit(filter.push(text_decoder.flush()));
  emit(filter.rest());
  return out;
}

std::string generate(ModelImpl& model, const Tokenizer& tokenizer, const std::string& prompt,
                     const GenerateOptions& options, const std::function<void(std::string_view)>& on_text) {
  Decoder decoder(model, prompt_tokens(tokenizer, prompt, model.config().context), options.max_tokens, options.cache);
  return continue_text(decoder, tokenizer, options, on_text);
}

}  // namespace motet
