#include "motet/text/stream_decoder.h"

#include <utility>

#include "motet/core/utf8.h"

namespace motet {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string StreamDecoder::push(int32_t id) {
  const std::string bytes = std::exchange(waiting_, {}) + tokenizer_.decode({&id, 1});
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(std::string_view(bytes).substr(at));
    if (step.kind == Utf8Step::Kind::incomplete) {
      waiting_ = bytes.substr(at);
      break;
    }
    out += step.kind == Utf8Step::Kind::character ? bytes.substr(at, step.size) : kReplacement;
    at += step.size;
  }
  return out;
}

std::string StreamDecoder::flush() { return std::exchange(waiting_, {}).empty() ? "" : kReplacement; }

}  // namespace motet
