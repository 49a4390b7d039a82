// A byte-level BPE learned from text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "motet/text/bpe/bpe.h"
#include "motet/text/tokenizer.h"

namespace motet {

// Takes a text part by part and learns which bytes go together most often. What it learns depends on the text alone,
// not on the parts. Texts are cut by GPT-2's pattern; merges never cross such a cut.
class BpeTrainer {
 public:
  // Once more distinct pieces than this are counted, the rare ones are dropped: first those seen once, then twice ...
  explicit BpeTrainer(size_t most_pieces = 4'000'000) : most_pieces_(most_pieces) {}

  // The next part. UTF-8; what is none becomes U+FFFD. A part may end anywhere.
  void add(std::string_view part);

  // The tokenizer of `vocabulary_size` tokens: <|endoftext|> (id 0), 256 bytes, merges; fewer when no pair is left
  // that comes twice. `progress` is called with the number of merges. Throws UsageError below 257, Error without text.
  std::unique_ptr<Tokenizer> finish(int64_t vocabulary_size, const std::function<void(int64_t)>& progress = {});

 private:
  void count(std::string_view text);
  void prune();

  size_t most_pieces_;
  std::string rest_;  // since the last cut that is certain
  std::unordered_map<std::string, uint64_t, PieceHash, std::equal_to<>> counts_;
};

}  // namespace motet
