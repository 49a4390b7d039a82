// A file of tokens, as `motet data prepare` writes it, and llm.c's. docs/data.md has the layouts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "motet/core/file.h"
#include "motet/data/hash.h"

namespace motet {

// Views into a shard's bytes; every size was checked, the tokens were not looked at.
class TokenShard {
 public:
  // Ours or llm.c's (GPT-2: uint16; Llama 3: uint32), told by the magic. Throws Error in one line that begins with
  // `where`: another magic or version, a header whose checksum is wrong, sizes that do not fit the file, documents
  // that are out of order. `bytes` and `where` must outlive the object.
  TokenShard(std::span<const std::byte> bytes, const std::string& where);

  uint64_t size() const { return size_; }
  int width() const { return width_; }                 // bytes of a token: 2 or 4
  uint64_t vocabulary() const { return vocabulary_; }  // every id is below; llm.c's: what the width holds
  bool foreign() const { return first_token_ >= 0; }   // llm.c's
  uint64_t num_documents() const { return documents_.size() / sizeof(uint64_t); }  // that begin here; llm.c's: 0
  uint64_t hash() const { return hash_; }  // of what follows the header; llm.c's: 0

  // Throw as TokenSequence says. Places are those in this shard; a document may begin at 0, or before it.
  void read(uint64_t begin, std::span<int64_t> out) const;
  std::vector<uint64_t> document_starts(uint64_t begin, uint64_t end) const;  // begin <= p < end

  // Reads all of it. Throws Error when the checksum is wrong or an id is outside of the vocabulary.
  void check() const;

 private:
  void parse_own();
  void parse_foreign(int width, int64_t first_token);
  uint64_t token(uint64_t place) const;
  uint64_t document(uint64_t index) const;

  std::span<const std::byte> bytes_, tokens_, documents_;
  const std::string& where_;
  uint64_t size_ = 0, vocabulary_ = 0, hash_ = 0;
  int width_ = 0;
  int64_t first_token_ = -1;  // llm.c's: the token with which each document begins
};

// Whether a file begins like one of llm.c's shards. False when it cannot be read.
bool is_llmc_shard(const std::string& path);

// Writes a shard front to back; it appears whole or not at all. Memory grows with the documents only.
class TokenShardWriter {
 public:
  // Ids are below `vocabulary`, which is at most 2^31.
  TokenShardWriter(const std::filesystem::path& path, uint64_t vocabulary);

  // The next token begins a document.
  void begin_document();
  // Throws Error on a full disk.
  void add(std::span<const int32_t> tokens);
  uint64_t size() const { return size_; }
  void commit();

 private:
  void put(std::string_view bytes);

  AtomicFile file_;
  Hash64 hash_;
  uint64_t vocabulary_, size_ = 0;
  int width_;
  std::vector<uint64_t> documents_;
  std::string buffer_;
};

}  // namespace motet
