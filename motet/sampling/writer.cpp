#include "motet/sampling/writer.h"

#include <algorithm>

namespace motet {

Writer::Writer(const Tokenizer& tokenizer, std::span<const int32_t> prompt, WriterOptions options, int64_t number,
               OnWritten on_written)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      on_written_(std::move(on_written)),
      sampler_(options_.sampler, static_cast<uint64_t>(number), prompt),
      decoder_(tokenizer),
      filter_(options_.stop) {
  if (options_.continues && !prompt.empty()) decoder_.follow(prompt.back());
}

int32_t Writer::next(std::span<const float> logits) {
  if (done()) return 0;
  const size_t known = std::min(logits.size(), static_cast<size_t>(tokenizer_.vocabulary_size()));
  const int32_t id = sampler_.next(logits.first(known));
  take(scored(logits, id));
  return id;
}

int32_t Writer::next(std::span<const Candidate> likeliest) {
  if (done()) return 0;
  const int32_t id = sampler_.next(likeliest);
  take({{id}, {}});
  return id;
}

void Writer::take(const GeneratedToken& token) {
  sample_.stopped = ends(token.id);
  if (done()) {
    sample_.end = token;
    return;
  }
  sample_.tokens.push_back(token);
  if (options_.skip_special && tokenizer_.special(token.id)) {
    sample_.stopped = std::ranges::find(options_.stop, tokenizer_.piece(token.id)) != options_.stop.end();
    return;
  }
  emit(filter_.push(decoder_.push(token.id)));
  sample_.stopped = filter_.stopped();
}

GeneratedToken Writer::scored(std::span<const float> logits, int32_t id) const {
  if (options_.logprobs < 0) return {{id}, {}};
  return {{id, log_probability(logits, id)}, likeliest(logits, options_.logprobs, tokenizer_.vocabulary_size())};
}

Sample Writer::finish() {
  if (!filter_.stopped()) emit(filter_.push(decoder_.flush()));
  sample_.stopped = sample_.stopped || filter_.stopped();
  emit(filter_.rest());
  return std::move(sample_);
}

bool Writer::ends(int32_t id) const {
  return std::find(options_.end_tokens.begin(), options_.end_tokens.end(), id) != options_.end_tokens.end() ||
         (options_.end_at_special && tokenizer_.special(id));
}

void Writer::emit(const std::string& text) {
  if (text.empty()) return;
  sample_.text += text;
  if (on_written_) on_written_(text);
}

}  // namespace motet
