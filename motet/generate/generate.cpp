#include "motet/generate/generate.h"

#include <algorithm>
#include <deque>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/ops/device.h"
#include "motet/text/pipeline/stream_decoder.h"

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

// One sample: logits in, the next token and text out.
class Writer {
 public:
  Writer(const Decoder& prompt, const Tokenizer& tokenizer, const GenerateOptions& options, int64_t number,
         const OnText& on_text)
      : tokenizer_(tokenizer),
        options_(options),
        number_(number),
        on_text_(on_text),
        sampler_(options.sampler, static_cast<uint64_t>(number), prompt.ids()),
        decoder_(tokenizer),
        filter_(options.stop) {}

  bool done() const { return sample_.stopped; }

  // The next token; one without meaning after the end.
  int32_t next(std::span<const float> logits_V) {
    if (done()) return 0;
    const int32_t id = sampler_.next(logits_V);
    sample_.stopped = ends(id);
    if (done()) return id;
    GeneratedToken token{{id}, {}};
    if (options_.logprobs >= 0) {
      token.logprob = log_probability(logits_V, id);
      token.top = likeliest(logits_V, options_.logprobs);
    }
    sample_.tokens.push_back(std::move(token));
    emit(filter_.push(decoder_.push(id)));
    sample_.stopped = filter_.stopped();
    return id;
  }

  Sample finish() {
    if (!filter_.stopped()) emit(filter_.push(decoder_.flush()));
    sample_.stopped = sample_.stopped || filter_.stopped();
    emit(filter_.rest());
    return std::move(sample_);
  }

 private:
  bool ends(int32_t id) const {
    return std::find(options_.end_tokens.begin(), options_.end_tokens.end(), id) != options_.end_tokens.end() ||
           (options_.end_at_special && tokenizer_.special(id));
  }

  void emit(const std::string& text) {
    if (text.empty()) return;
    sample_.text += text;
    if (on_text_) on_text_(number_, text);
  }

  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  int64_t number_;
  const OnText& on_text_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopFilter filter_;
  Sample sample_;
};

}  // namespace

std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt, int64_t context) {
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  if (ids.empty()) fail("generate: the prompt is empty, want at least one token");
  if (static_cast<int64_t>(ids.size()) > context)
    fail("generate: the prompt has ", ids.size(), " tokens, want at most the model's context of ", context);
  return ids;
}

std::vector<Sample> continue_text(Decoder& decoder, const Tokenizer& tokenizer, const GenerateOptions& options,
                                  const OnText& on_text) {
  std::deque<Writer> writers;
  for (int64_t i = 0; i < options.samples; ++i) writers.emplace_back(decoder, tokenizer, options, i, on_text);
  const auto all_done = [&] {
    return std::all_of(writers.begin(), writers.end(), [](const Writer& w) { return w.done(); });
  };
  std::vector<int32_t> next(writers.size());
  for (int64_t step = 0; step < options.max_tokens && !all_done(); ++step) {
    check_interrupt();
    const Tensor logits = decoder.logits();  // of the prompt alone in the first step
    const int64_t rows = logits.size(0), width = logits.size(1);
    if (step == 0) {
      if (options.on_prompt) options.on_prompt();
      decoder.branch(options.samples);
    }
    const auto numbers = host_numbers<float>(logits);
    // Published models round their vocabulary up: what the tokenizer does not know is not drawn.
    const size_t known = static_cast<size_t>(std::min(width, tokenizer.vocabulary_size()));
    for (size_t i = 0; i < writers.size(); ++i) {
      const size_t row = rows > 1 ? i * static_cast<size_t>(width) : 0;
      next[i] = writers[i].next(numbers.subspan(row, known));
    }
    decoder.push(next);
  }
  std::vector<Sample> samples;
  for (Writer& writer : writers) samples.push_back(writer.finish());
  return samples;
}

std::vector<Sample> generate(ModelImpl& model, const Tokenizer& tokenizer, const std::string& prompt,
                             const GenerateOptions& options, const OnText& on_text) {
  Decoder decoder(model, prompt_tokens(tokenizer, prompt, model.config().context), options.max_tokens, options.cache);
  return continue_text(decoder, tokenizer, options, on_text);
}

}  // namespace motet
