// A long row of tokens, in memory or mapped from files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace motet {

// Safe to read from several threads.
class TokenSequence {
 public:
  virtual ~TokenSequence() = default;

  virtual uint64_t size() const = 0;

  // Copies the tokens from `begin` on; begin + out.size() is at most size(). Throws Error naming the file for an id
  // outside of the vocabulary.
  virtual void read(uint64_t begin, std::span<int64_t> out) const = 0;

  // The places p, begin < p < end, at which another document begins, ascending.
  virtual std::vector<uint64_t> document_starts(uint64_t begin, uint64_t end) const = 0;

  // read() into a vector of its own.
  std::vector<int64_t> slice(uint64_t begin, uint64_t count) const;
};

class MemoryTokens : public TokenSequence {
 public:
  // `starts`: where documents begin, ascending.
  explicit MemoryTokens(std::vector<int32_t> tokens, std::vector<uint64_t> starts = {});

  uint64_t size() const override { return tokens_.size(); }
  void read(uint64_t begin, std::span<int64_t> out) const override;
  std::vector<uint64_t> document_starts(uint64_t begin, uint64_t end) const override;

 private:
  std::vector<int32_t> tokens_;
  std::vector<uint64_t> starts_;
};

// The tokens begin .. begin + size of another sequence.
class TokenPart : public TokenSequence {
 public:
  TokenPart(std::shared_ptr<const TokenSequence> whole, uint64_t begin, uint64_t size);

  uint64_t size() const override { return size_; }
  void read(uint64_t begin, std::span<int64_t> out) const override { whole_->read(begin_ + begin, out); }
  std::vector<uint64_t> document_starts(uint64_t begin, uint64_t end) const override;

 private:
  std::shared_ptr<const TokenSequence> whole_;
  uint64_t begin_, size_;
};

}  // namespace motet
