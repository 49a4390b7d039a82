// Tokens of files that do not say how large their vocabulary is.
#pragma once

#include <memory>
#include <string>

#include "motet/core/error.h"
#include "motet/data/tokens.h"

namespace motet {

// Another sequence whose ids must be below `vocabulary`; read() throws Error that begins with `where` for others.
class BoundedTokens : public TokenSequence {
 public:
  BoundedTokens(std::shared_ptr<const TokenSequence> tokens, int64_t vocabulary, std::string where)
      : tokens_(std::move(tokens)), vocabulary_(vocabulary), where_(std::move(where)) {}

  uint64_t size() const override { return tokens_->size(); }

  void read(uint64_t begin, std::span<int64_t> out) const override {
    tokens_->read(begin, out);
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i] >= vocabulary_)
        fail(where_, ": token ", begin + i, " is ", out[i], ", outside of the tokenizer's vocabulary of ", vocabulary_);
  }

  std::vector<uint64_t> document_starts(uint64_t begin, uint64_t end) const override {
    return tokens_->document_starts(begin, end);
  }

 private:
  std::shared_ptr<const TokenSequence> tokens_;
  int64_t vocabulary_;
  std::string where_;
};

}  // namespace motet
