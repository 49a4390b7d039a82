// From tokens back to text.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace motet {

class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  // Changes the tokens of a whole text, some of which may become one.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

struct Decoders {
  std::vector<std::shared_ptr<const DecoderStep>> steps;
  bool bytes = false;   // the only one is ByteLevel
  bool spaces = false;  // there is none: the reference puts a space between tokens
};

// "decoder" of tokenizer.json (null: none): ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence. Throws
// Error that begins with `where` and names what is not supported.
Decoders read_decoders(const nlohmann::json& json, const std::string& where);

// The value of a token such as "<0x0A>", or -1.
int byte_of_token(std::string_view token);

// The text of bytes, each longest start of a character that is none as U+FFFD.
std::string lossy_text(std::string bytes);

}  // namespace motet
