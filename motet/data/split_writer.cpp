#include "motet/data/split_writer.h"

#include <algorithm>
#include <cstdio>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"

namespace motet {

SplitWriter::SplitWriter(std::filesystem::path folder, std::string name, uint64_t vocabulary, uint64_t shard_tokens,
                         SplitProgress done, std::function<void()> saved)
    : folder_(std::move(folder)),
      name_(std::move(name)),
      vocabulary_(vocabulary),
      shard_tokens_(shard_tokens),
      progress_(done),
      saved_(std::move(saved)),
      position_(done.tokens),
      files_(done.shards) {
  for (uint64_t i = 0; i < done.shards; ++i) {
    const std::string path = path_of(i).string();
    const MappedFile file(path);
    if (TokenShard(file.bytes(), path).size() != shard_tokens)
      fail(path, ": is not the shard that was written here, want a new folder");
  }
}

std::filesystem::path SplitWriter::path_of(uint64_t shard) const {
  char number[24];
  std::snprintf(number, sizeof number, "-%05llu", static_cast<unsigned long long>(shard));
  return folder_ / (name_ + number + ".tokens");
}

void SplitWriter::add(uint64_t part, uint64_t chain, bool begins_document, std::span<const int32_t> tokens) {
  const uint64_t before = position_, kept = progress_.shards * shard_tokens_;
  document_ |= begins_document;
  if (position_ < kept && !tokens.empty()) {  // in whole shards already
    const auto skipped = static_cast<size_t>(std::min<uint64_t>(tokens.size(), kept - position_));
    tokens = tokens.subspan(skipped);
    position_ += skipped;
    document_ = false;
  }
  while (!tokens.empty()) {
    check_interrupt();
    if (!shard_) shard_ = std::make_unique<TokenShardWriter>(path_of(progress_.shards), vocabulary_);
    if (document_) shard_->begin_document();
    document_ = false;
    const auto count = static_cast<size_t>(std::min<uint64_t>(tokens.size(), shard_tokens_ - shard_->size()));
    shard_->add(tokens.first(count));
    tokens = tokens.subspan(count);
    position_ += count;
    if (shard_->size() < shard_tokens_) continue;
    shard_->commit();
    shard_.reset();
    files_ = progress_.shards + 1;
    progress_ = {.shards = files_, .part = part, .tokens = before, .chain = chain};
    saved_();
  }
}

void SplitWriter::finish() {
  if (!shard_) return;
  shard_->commit();
  shard_.reset();
  files_ = progress_.shards + 1;
}

SplitRecord SplitWriter::record(uint64_t text_bytes) const {
  SplitRecord split{.text_bytes = text_bytes, .shards = {}};
  for (uint64_t i = 0; i < files_; ++i) {
    const std::string path = path_of(i).string();
    const MappedFile file(path);
    const TokenShard shard(file.bytes(), path);
    split.shards.push_back({path_of(i).filename().string(), shard.size(), shard.num_documents(), shard.hash()});
    split.tokens += shard.size();
    split.documents += shard.num_documents();
  }
  return split;
}

nlohmann::json progress_json(const SplitProgress& p) {
  return {{"shards", p.shards}, {"part", p.part}, {"tokens", p.tokens}, {"chain", p.chain}};
}

SplitProgress parse_progress(const nlohmann::json& json, const std::string& where) {
  const auto count = [&](const char* name) {
    if (!json.is_object() || !json.contains(name) || !json[name].is_number_unsigned())
      fail(where, ": '", name, "' is missing or no whole number, want a new folder");
    return json[name].get<uint64_t>();
  };
  return {.shards = count("shards"), .part = count("part"), .tokens = count("tokens"), .chain = count("chain")};
}

}  // namespace motet
