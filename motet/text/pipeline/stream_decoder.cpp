#include "motet/text/pipeline/stream_decoder.h"

#include <utility>

#include "motet/core/utf8.h"

namespace motet {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

// The part of `bytes` that is complete, with U+FFFD for what is no character; the rest stays in `waiting`.
std::string whole_characters(const std::string& bytes, std::string& waiting) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(std::string_view(bytes).substr(at));
    if (step.kind == Utf8Step::Kind::incomplete) {
      waiting = bytes.substr(at);
      break;
    }
    out += step.kind == Utf8Step::Kind::character ? bytes.substr(at, step.size) : kReplacement;
    at += step.size;
  }
  return out;
}

}  // namespace

void StreamDecoder::follow(int32_t last) {
  if (tokenizer_.decodes_one_by_one()) return;
  const std::string text = tokenizer_.text({&last, 1}, false);
  if (text.ends_with(kReplacement)) return;  // half a character is not whole with what comes
  ids_ = {last}, shown_ = 1, shown_text_ = text;
}

std::string StreamDecoder::new_text(const std::string& all) const {
  if (all.starts_with(shown_text_)) return all.substr(shown_text_.size());
  return tokenizer_.text(std::span(ids_).subspan(shown_), false);
}

std::string StreamDecoder::push(int32_t id) {
  if (tokenizer_.decodes_one_by_one()) {
    return whole_characters(std::exchange(waiting_, {}) + tokenizer_.decode({&id, 1}), waiting_);
  }
  // The text of a few tokens with and without the new ones: what they add is what a whole text would show.
  ids_.push_back(id);
  const std::string now = tokenizer_.text(ids_, false);
  constexpr size_t kMostWaiting = 16;
  const bool incomplete = now.ends_with(kReplacement) && ids_.size() - shown_ < kMostWaiting;
  if (incomplete || now.size() < shown_text_.size()) return "";
  std::string out = new_text(now);
  if (out.empty()) return out;  // a token without a text does not take the blank from the next one
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(shown_));
  shown_ = ids_.size();
  shown_text_ = tokenizer_.text(ids_, false);
  return out;
}

std::string StreamDecoder::flush() {
  if (tokenizer_.decodes_one_by_one()) return std::exchange(waiting_, {}).empty() ? "" : kReplacement;
  const std::string out = new_text(tokenizer_.text(ids_, false));
  ids_.clear();
  shown_ = 0;
  shown_text_.clear();
  return out;
}

}  // namespace motet
