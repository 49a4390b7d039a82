#include "motet/generate/generate.h"

#include <algorithm>
#include <deque>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/ops/device.h"

namespace motet {

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
    const Tensor logits = decoder.logits();  // of the prompt alone in the first step
    const int64_t rows = logits.size(0), width = logits.size(1);
    if (step == 0) {
      if (options.on_prompt) options.on_prompt();
      decoder.branch(options.samples);
    }
    const auto numbers = host_numbers<float>(logits);
    for (size_t i = 0; i < writers.size(); ++i) {
      const size_t row = rows > 1 ? i * static_cast<size_t>(width) : 0;
      next[i] = writers[i].next(numbers.subspan(row, static_cast<size_t>(width)));
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
