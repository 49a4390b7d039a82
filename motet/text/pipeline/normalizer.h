// What a tokenizer does to a text before it splits it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "motet/text/pipeline/aligned_text.h"

namespace motet {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(AlignedText& text) const = 0;
};

using Normalizers = std::vector<std::shared_ptr<const Normalizer>>;

// "normalizer" of tokenizer.json (null: none): NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, Sequence.
// Throws Error that begins with `where` and names what is not supported.
Normalizers read_normalizers(const nlohmann::json& json, const std::string& where);

// All of them on a text that needs no alignment.
std::string normalized(const Normalizers& normalizers, std::string_view text);

// Runs of spaces become one, none is left at the ends; nor is SentencePiece's sign for one at the end.
std::shared_ptr<const Normalizer> collapse_spaces();

}  // namespace motet
