// The shards of one part of the data, in a folder that an earlier run may have begun.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "motet/data/manifest.h"
#include "motet/data/token_shard.h"

namespace motet {

// Where the whole shards end, in the order of the texts' parts.
struct SplitProgress {
  uint64_t shards = 0;  // that are whole
  uint64_t part = 0;    // in which the last of them ended
  uint64_t tokens = 0;  // of the split before that part
  uint64_t chain = 0;   // hash of the texts up to that part, inclusive
};

class SplitWriter {
 public:
  // Shards are named NAME-00000.tokens and so on. `saved` is called after each whole shard. Throws Error when a shard
  // of `done` is not there.
  SplitWriter(std::filesystem::path folder, std::string name, uint64_t vocabulary, uint64_t shard_tokens,
              SplitProgress done, std::function<void()> saved);

  // Whether the tokens of a part are wanted: those before are in whole shards.
  bool wants(uint64_t part) const { return progress_.shards == 0 || part >= progress_.part; }

  // The tokens of a part, in order. Throws Error on a full disk.
  void add(uint64_t part, uint64_t chain, bool begins_document, std::span<const int32_t> tokens);

  // Closes the last shard.
  void finish();

  const SplitProgress& progress() const { return progress_; }
  SplitRecord record(uint64_t text_bytes) const;  // after finish(): of all shards

 private:
  std::filesystem::path path_of(uint64_t shard) const;

  std::filesystem::path folder_;
  std::string name_;
  uint64_t vocabulary_, shard_tokens_;
  SplitProgress progress_;
  std::function<void()> saved_;
  uint64_t position_;      // tokens of the split so far, those in whole shards too
  uint64_t files_ = 0;     // shards, the last one too
  bool document_ = false;  // the next token begins a document
  std::unique_ptr<TokenShardWriter> shard_;
};

nlohmann::json progress_json(const SplitProgress& progress);
// Throws Error that begins with `where`.
SplitProgress parse_progress(const nlohmann::json& json, const std::string& where);

}  // namespace motet
