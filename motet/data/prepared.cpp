#include "motet/data/prepared.h"

#include <algorithm>
#include <filesystem>

#include "motet/core/checked.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/data/hash.h"
#include "motet/data/token_shard.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

struct MappedShard {
  explicit MappedShard(const fs::path& file) : path(file.string()), map(file), shard(map.bytes(), path) {}
  std::string path;
  MappedFile map;
  TokenShard shard;
};

// The shards behind each other.
class ShardedTokens : public TokenSequence {
 public:
  void add(std::unique_ptr<MappedShard> shard) {
    const auto end = checked_add(size(), shard->shard.size());
    if (!end) fail(shard->path, ": the shards have too many tokens");
    shards_.push_back(std::move(shard));
    ends_.push_back(*end);
  }

  uint64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  void read(uint64_t begin, std::span<int64_t> out) const override {
    for (size_t i = shard_of(begin); !out.empty(); ++i) {
      const uint64_t from = begin - begin_of(i), count = std::min<uint64_t>(out.size(), ends_[i] - begin);
      shards_[i]->shard.read(from, out.first(count));
      out = out.subspan(count);
      begin += count;
    }
  }

  std::vector<uint64_t> document_starts(uint64_t begin, uint64_t end) const override {
    std::vector<uint64_t> all;
    uint64_t at = begin + 1;
    for (size_t i = at < end ? shard_of(at) : shards_.size(); i < shards_.size() && at < end; at = ends_[i++]) {
      const uint64_t offset = begin_of(i);
      for (const uint64_t start : shards_[i]->shard.document_starts(at - offset, std::min(end, ends_[i]) - offset))
        all.push_back(offset + start);
    }
    return all;
  }

  const std::vector<std::unique_ptr<MappedShard>>& shards() const { return shards_; }

 private:
  uint64_t begin_of(size_t shard) const { return shard == 0 ? 0 : ends_[shard - 1]; }
  size_t shard_of(uint64_t place) const {
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), place) - ends_.begin());
  }

  std::vector<std::unique_ptr<MappedShard>> shards_;
  std::vector<uint64_t> ends_;
};

std::shared_ptr<const TokenSequence> open_split(const fs::path& folder, const Manifest& manifest,
                                                const SplitRecord& split) {
  auto tokens = std::make_shared<ShardedTokens>();
  for (const ShardRecord& record : split.shards) {
    auto mapped = std::make_unique<MappedShard>(folder / record.file);
    const TokenShard& shard = mapped->shard;
    if (shard.foreign() || shard.size() != record.tokens || shard.num_documents() != record.documents ||
        shard.hash() != record.hash || shard.vocabulary() != manifest.vocabulary)
      fail(mapped->path, ": is not the shard that ", kManifestFile, " names");
    tokens->add(std::move(mapped));
  }
  return tokens->size() == 0 ? nullptr : tokens;
}

PreparedData open_own(const fs::path& folder) {
  const std::string file = (folder / kManifestFile).string();
  PreparedData data{.name = folder.string(), .manifest = parse_manifest(read_json(file), file)};
  const Manifest& manifest = *data.manifest;
  data.tokenizer = (folder / manifest.tokenizer_file).string();
  if (hash64(read_file(data.tokenizer)) != manifest.tokenizer_hash)
    fail(data.tokenizer, ": is not the tokenizer that ", kManifestFile, " names");
  data.train = open_split(folder, manifest, manifest.train);
  data.validation = open_split(folder, manifest, manifest.validation);
  if (!data.train) fail(data.name, ": has no tokens for training");
  return data;
}

// "fineweb_val_000000", "tiny_shakespeare_val", "val".
bool is_validation(const fs::path& path) {
  return ("_" + path.stem().string() + "_").find("_val_") != std::string::npos;
}

std::vector<fs::path> llmc_shards(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return is_llmc_shard(path.string()) ? std::vector{path} : std::vector<fs::path>();
  std::vector<fs::path> found;
  for (fs::directory_iterator entries(path, error), end; !error && entries != end; entries.increment(error))
    if (entries->path().extension() == ".bin" && is_llmc_shard(entries->path().string()))
      found.push_back(entries->path());
  std::sort(found.begin(), found.end());
  return found;
}

PreparedData open_llmc(const std::string& path) {
  auto train = std::make_shared<ShardedTokens>(), validation = std::make_shared<ShardedTokens>();
  const std::vector<fs::path> files = llmc_shards(path);
  for (const fs::path& file : files)
    (files.size() > 1 && is_validation(file) ? validation : train)->add(std::make_unique<MappedShard>(file));
  if (train->size() == 0) fail(path, ": has no tokens for training");
  return {.name = path,
          .tokenizer = {},
          .train = std::move(train),
          .validation = validation->size() == 0 ? nullptr : std::move(validation),
          .manifest = {}};
}

}  // namespace

bool is_prepared_data(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::path(path) / kManifestFile, ignored) || !llmc_shards(path).empty();
}

PreparedData open_prepared_data(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::path(path) / kManifestFile, ignored) ? open_own(path) : open_llmc(path);
}

void check_prepared_data(const PreparedData& data) {
  for (const auto& part : {data.train, data.validation}) {
    if (!part) continue;
    for (const auto& shard : static_cast<const ShardedTokens&>(*part).shards()) {
      check_interrupt();
      shard->shard.check();
    }
  }
}

}  // namespace motet
