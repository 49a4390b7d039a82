// A long row of tokens, in memory or mapped from files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace motet {

// A target that is not learned, as torch's cross entropy leaves it out.
inline constexpr int64_t kLeftOut = -100;

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

  // Length of the rows that stand in it, whole ones only: a window begins where a row does. 0: it begins anywhere.
  virtual uint64_t row_length() const { return 0; }

  // Rows without end that come in random order already: they are read as they stand, each once.
  virtual bool endless() const { return false; }

  // Makes of the targets, which are the tokens from `begin` on, those kLeftOut that are not learned.
  virtual void leave_out(uint64_t begin, std::span<int64_t> targets) const {}

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

// Sequences one after another, each of which begins a document.
class JoinedTokens : public TokenSequence {
 public:
  explicit JoinedTokens(std::vector<std::shared_ptr<const TokenSequence>> parts);

  uint64_t size() const override { return begins_.back(); }
  void read(uint64_t begin, std::span<int64_t> out) const override;
  std::vector<uint64_t> document_starts(uint64_t begin, uint64_t end) const override;

 private:
  // Calls f(part, where it lies here, first, last) for what begin .. end has of each part, `first` counted in it.
  template <class F>
  void each_part(uint64_t begin, uint64_t end, const F& f) const;

  std::vector<std::shared_ptr<const TokenSequence>> parts_;
  std::vector<uint64_t> begins_{0};  // of each part, and where the last one ends
};

}  // namespace motet
