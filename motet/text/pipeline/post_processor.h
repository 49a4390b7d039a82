// What happens to the tokens of a whole text.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace motet {

struct PostProcessor {
  std::vector<int32_t> before, after;  // special tokens around the text
  bool trim_offsets = false;           // white space at a token's ends is not counted
  bool prefix_space = false;           // then the first token's single space is not there
};

// "post_processor" of tokenizer.json (null: none): TemplateProcessing, ByteLevel, Sequence. Throws Error that begins
// with `where` and names what is not supported.
PostProcessor read_post_processor(const nlohmann::json& json, const std::string& where);

}  // namespace motet
