#include "motet/generate/generate.h"

#include <algorithm>
#include <deque>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/ops/device.h"

namespace motet {

std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt, int64_t context,
                                   bool special_tokens) {
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  if (special_tokens) put_before(tokenizer, ids);
  if (ids.empty()) fail("generate: the prompt is empty, want at least one token");
  if (static_cast<int64_t>(ids.size()) > context)
    fail("generate: the prompt has ", ids.size(), " tokens, want at most the model's context of ", context);
  return ids;
}

namespace {

// By the writer of sequence i, which is the one that there is as long as there is one.
int32_t drawn(Writer& writer, const Decoder::Next& now, size_t i) {
  if (!now.likeliest.empty()) return writer.next(now.likeliest[std::min(i, now.likeliest.size() - 1)]);
  const auto numbers = host_numbers<float>(now.logits_BV);
  const size_t width = static_cast<size_t>(now.logits_BV.size(1)), rows = numbers.size() / width;
  return writer.next(numbers.subspan(std::min(i, rows - 1) * width, width));
}

}  // namespace

std::vector<Sample> continue_text(Decoder& decoder, const Tokenizer& tokenizer, const GenerateOptions& options,
                                  const OnText& on_text) {
  std::deque<Writer> writers;
  for (int64_t i = 0; i < options.samples; ++i)
    writers.emplace_back(tokenizer, decoder.ids(), options.writer, i, [&on_text, i](std::string_view text) {
      if (on_text) on_text(i, text);
    });
  const auto all_done = [&] {
    return std::all_of(writers.begin(), writers.end(), [](const Writer& w) { return w.done(); });
  };
  std::vector<int32_t> next(writers.size());
  for (int64_t step = 0; step < options.max_tokens && !all_done(); ++step) {
    check_interrupt();
    const Decoder::Next now =  // of the prompt alone in the first step
        decoder.next(writers.front().wanted(), tokenizer.vocabulary_size());
    if (step == 0) {
      if (options.on_prompt) options.on_prompt();
      decoder.branch(options.samples);
    }
    for (size_t i = 0; i < writers.size(); ++i) next[i] = drawn(writers[i], now, i);
    decoder.push(next);
  }
  std::vector<Sample> samples;
  for (Writer& writer : writers) samples.push_back(writer.finish());
  return samples;
}

std::vector<Sample> generate(ModelImpl& model, const Tokenizer& tokenizer, const std::string& prompt,
                             const GenerateOptions& options, const OnText& on_text) {
  Decoder decoder(model, prompt_tokens(tokenizer, prompt, model.config().context, options.special_tokens),
                  options.max_tokens, options.cache);
  return continue_text(decoder, tokenizer, options, on_text);
}

}  // namespace motet
