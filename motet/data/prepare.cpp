#include "motet/data/prepare.h"

#include <cmath>
#include <filesystem>
#include <future>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/core/progress.h"
#include "motet/data/hash.h"
#include "motet/data/split_writer.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kProgressFile = "progress.json";
constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr size_t kBatchBytes = 8 << 20;  // of text that is encoded at once, for each thread up to kBatchThreads
constexpr size_t kBatchThreads = 4;

// The folder of the data while one process writes it.
class OutputFolder {
 public:
  explicit OutputFolder(const fs::path& path) : path_(path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) fail("cannot write ", quote(path.string()), ": ", error.message());
    lock_.emplace(path, "prepares data there");
  }

  bool has(const char* file) const { return fs::exists(path_ / file); }
  // Whether there is nothing but what processes that are gone left of an AtomicFile, which is then removed.
  bool take_empty() const {
    for (const auto& entry : fs::directory_iterator(path_))
      if (maker_of(entry.path().filename().string()) == 0) return false;
    remove_leftovers(path_);
    return fs::is_empty(path_);
  }
  fs::path operator/(const char* file) const { return path_ / file; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  std::optional<FolderLock> lock_;
};

// What stands before each document; nothing for "none".
std::optional<int64_t> document_token(const Tokenizer& tokenizer, const std::string& name) {
  if (name == "none") return std::nullopt;
  const bool own = name == "auto";
  const std::vector<std::string> names =
      own ? std::vector<std::string>{"<|endoftext|>", "<|begin_of_text|>", "<s>"} : std::vector<std::string>{name};
  for (const std::string& wanted : names)
    for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id)
      if ((!own || tokenizer.special(id)) && tokenizer.piece(id) == wanted) return id;
  if (!own)
    fail_usage("--document-token: the tokenizer has no token ", quote(name), ", want one of its tokens or none");
  return std::nullopt;
}

// All on which the result depends.
json settings_of(const PrepareOptions& o, const Manifest& manifest, const std::vector<InputFile>& files) {
  json inputs = json::array();
  for (const InputFile& file : files) inputs.push_back({file.path, file.bytes, file.validation});
  return {{"tokenizer", hash_text(manifest.tokenizer_hash)},
          {"document token", manifest.document_token ? json(*manifest.document_token) : json()},
          {"shard tokens", o.shard_tokens},
          {"validation", o.validation},
          {"text field", o.documents.text_field},
          {"format", o.documents.format},
          {"separator", o.documents.separator ? json(*o.documents.separator) : json()},
          {"inputs", std::move(inputs)}};
}

class Preparation {
 public:
  Preparation(std::shared_ptr<const Tokenizer> tokenizer, const PrepareOptions& options)
      : tokenizer_(std::move(tokenizer)), options_(options), files_(find_inputs(options.inputs, false)) {
    const auto more = find_inputs(options.validation_inputs, true);
    files_.insert(files_.end(), more.begin(), more.end());
    tokenizer_text_ = tokenizer_->to_json().dump() + "\n";
    manifest_.tokenizer_file = kTokenizerFile;
    manifest_.tokenizer_hash = hash64(tokenizer_text_);
    manifest_.vocabulary = static_cast<uint64_t>(tokenizer_->vocabulary_size());
    manifest_.document_token = document_token(*tokenizer_, options.document_token);
    settings_ = settings_of(options, manifest_, files_);
    folder_.emplace(options.folder);
    begin();
  }

  Manifest run() {
    try {
      write_parts();
    } catch (const Interrupted&) {
      throw Interrupted("interrupted; " + kept());
    }
    for (size_t i = 0; i < files_.size(); ++i)
      manifest_.inputs.push_back(
          {files_[i].path, reader_->summaries()[i].text_bytes, reader_->summaries()[i].text_hash});
    manifest_.train = train_->record(train_bytes_);
    manifest_.validation = validation_->record(validation_bytes_);
    if (manifest_.train.tokens == 0)
      fail("the texts have no documents for training", manifest_.validation.tokens == 0 ? "" : ", all are validation");
    write_file_atomic(*folder_ / kManifestFile, manifest_json(manifest_).dump(1) + "\n");
    std::error_code ignored;
    fs::remove(*folder_ / kProgressFile, ignored);
    return manifest_;
  }

 private:
  struct Batch {
    std::vector<TextPart> parts;
    uint64_t packed_bytes = 0;  // read so far
  };

  // Takes up what an earlier run has left, or claims the folder.
  void begin() {
    const std::string& name = options_.folder;
    if (folder_->has(kManifestFile)) fail_usage("--out: ", name, " already holds prepared data, want a new folder");
    SplitProgress train, validation;
    const std::string file = (*folder_ / kProgressFile).string();
    if (folder_->has(kProgressFile)) {
      const json saved = read_json(file);
      if (!saved.is_object() || !saved.contains("settings") || !saved["settings"].is_object() ||
          !saved.contains("train") || !saved.contains("validation"))
        fail(file, ": is no record of motet data prepare, want a new folder");
      train = parse_progress(saved["train"], file);
      validation = parse_progress(saved["validation"], file);
      // Without a whole shard nothing would be lost.
      for (const auto& [key, value] : settings_.items())
        if (train.shards + validation.shards > 0 && saved["settings"].value(key, json()) != value)
          fail_usage("--out: ", name, " holds the beginning of other data, the ", key,
                     " differ, want the same command or a new folder");
      remove_leftovers(folder_->path(), Makers::all);
    } else if (!folder_->take_empty()) {
      fail_usage("--out: ", name, " is not empty, want a new folder");
    }
    const auto save = [this] { save_progress(); };
    train_.emplace(folder_->path(), "train", manifest_.vocabulary, options_.shard_tokens, train, save);
    validation_.emplace(folder_->path(), "validation", manifest_.vocabulary, options_.shard_tokens, validation, save);
    save_progress();
    write_file_atomic(*folder_ / kTokenizerFile, tokenizer_text_);
  }

  void save_progress() {
    write_file_atomic(*folder_ / kProgressFile, json{{"settings", settings_},
                                                     {"train", progress_json(train_->progress())},
                                                     {"validation", progress_json(validation_->progress())}}
                                                        .dump() +
                                                    "\n");
  }

  std::string kept() const {
    const uint64_t shards = train_->progress().shards + validation_->progress().shards;
    return text(options_.folder, " keeps ", shards, shards == 1 ? " whole shard" : " whole shards",
                ", the same command continues there");
  }

  Batch read_batch() {
    Batch batch;
    const size_t wanted = kBatchBytes * std::min<size_t>(static_cast<size_t>(options_.threads), kBatchThreads);
    for (size_t bytes = 0; bytes < wanted;) {
      auto part = reader_->next();
      if (!part) break;
      bytes += part->text.size() + sizeof(TextPart);
      batch.parts.push_back(std::move(*part));
    }
    batch.packed_bytes = reader_->packed_bytes();
    return batch;
  }

  // Every 1/x-th document, and those of files of their own.
  bool for_validation(const TextPart& part) const {
    if (files_[part.file].validation) return true;
    const auto share = [&](uint64_t documents) {
      return std::floor(static_cast<double>(documents) * options_.validation);
    };
    return share(part.document + 1) > share(part.document);
  }

  void write_parts() {
    reader_.emplace(files_, options_.documents, tokenizer_);
    uint64_t total = 0;
    for (const InputFile& file : files_) total = file.path == "-" ? 0 : total + file.bytes;
    constexpr uint64_t kMegabyte = 1'000'000;
    Progress progress("MB read", static_cast<int64_t>(total / kMegabyte));
    Batch batch = read_batch();
    while (!batch.parts.empty()) {
      check_interrupt();
      // The next texts are read while these are encoded.
      auto next = std::async(std::launch::async, [this] { return read_batch(); });
      try {
        write_batch(batch);
      } catch (...) {
        reader_->stop();  // it may wait for a pipe, and `next` for it
        throw;
      }
      progress.update(static_cast<int64_t>(batch.packed_bytes / kMegabyte), text(tokens_ / 1000, "k tokens"));
      batch = next.get();
    }
    check_reached(*train_);
    check_reached(*validation_);
    writing([&] {
      train_->finish();
      validation_->finish();
    });
    progress.finish();
  }

  void write_batch(const Batch& batch) {
    std::vector<std::string_view> texts;
    for (size_t i = 0; i < batch.parts.size(); ++i)
      if (writer_of(batch.parts[i]).wants(part_ + i)) texts.push_back(batch.parts[i].text);
    const auto encoded = tokenizer_->encode_all(texts, options_.threads, {});
    size_t used = 0;
    for (const TextPart& part : batch.parts) {
      SplitWriter& writer = writer_of(part);
      chain_ = hash64(part.text, chain_);
      (&writer == &*train_ ? train_bytes_ : validation_bytes_) += part.bytes;
      if (writer.wants(part_)) {
        check_chain(writer);
        const bool marked = part.begins && manifest_.document_token;
        const auto mark = static_cast<int32_t>(manifest_.document_token.value_or(0));
        std::vector<int32_t> ids(marked ? 1 : 0, mark);
        ids.insert(ids.end(), encoded[used].begin(), encoded[used].end());
        ++used;
        tokens_ += ids.size();
        writing([&] { writer.add(part_, chain_, part.begins, ids); });
      }
      ++part_;
    }
  }

  // The texts must be those from which the whole shards were made.
  void check_chain(const SplitWriter& writer) const {
    const SplitProgress& done = writer.progress();
    if (done.shards > 0 && done.part == part_ && done.chain != chain_) other_texts();
  }

  void check_reached(const SplitWriter& writer) const {
    if (writer.progress().shards > 0 && writer.progress().part >= part_) other_texts();
  }

  [[noreturn]] void other_texts() const {
    fail("--out: the texts are not those from which ", options_.folder,
         " was begun, want the same texts or a new folder");
  }

  // Says of a full disk what is kept.
  template <class Action>
  void writing(Action action) {
    try {
      action();
    } catch (const Interrupted&) {
      throw;
    } catch (const Error& error) {
      fail(error.what(), "; ", kept());
    }
  }

  SplitWriter& writer_of(const TextPart& part) { return for_validation(part) ? *validation_ : *train_; }

  std::shared_ptr<const Tokenizer> tokenizer_;
  const PrepareOptions& options_;
  std::vector<InputFile> files_;
  std::string tokenizer_text_;
  Manifest manifest_;
  json settings_;
  std::optional<OutputFolder> folder_;
  std::optional<SplitWriter> train_, validation_;
  std::optional<DocumentReader> reader_;
  uint64_t part_ = 0, chain_ = 0, tokens_ = 0, train_bytes_ = 0, validation_bytes_ = 0;
};

}  // namespace

Manifest prepare_data(std::shared_ptr<const Tokenizer> tokenizer, const PrepareOptions& options) {
  if (!(options.validation >= 0 && options.validation < 1))
    fail_usage("--validation: ", options.validation, " is not a fraction, want 0 to below 1");
  if (options.shard_tokens < 1) fail_usage("--shard-tokens: 0 is below 1");
  return Preparation(std::move(tokenizer), options).run();
}

}  // namespace motet
