#include "motet/data/prepare.h"

#include <sys/wait.h>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/data/builtin.h"
#include "motet/data/prepared.h"
#include "motet/data/text_parts.h"
#include "motet/text/bpe/bpe_trainer.h"
#include "motet/text/pipeline/pipeline.h"

namespace motet {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

std::shared_ptr<const Tokenizer> trained() {
  static const std::shared_ptr<const Tokenizer> tokenizer = [] {
    BpeTrainer trainer;
    trainer.add(builtin_text().substr(0, 100'000));
    return std::shared_ptr<const Tokenizer>(trainer.finish(400, [](int64_t) {}));
  }();
  return tokenizer;
}

std::vector<int64_t> all(const std::shared_ptr<const TokenSequence>& tokens) {
  return tokens ? tokens->slice(0, tokens->size()) : std::vector<int64_t>();
}

std::map<std::string, std::string> files_of(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = read_file(entry.path());
  return files;
}

TEST(Prepare, ADocumentIsAFileAndBeginsWithItsToken) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a.txt", "to be");
  write_file_atomic(folder / "b.txt", "");
  write_file_atomic(folder / "c.txt", "or not");
  const Manifest manifest = prepare_data(
      trained(), {.inputs = {folder / "a.txt", folder / "b.txt", folder / "c.txt"}, .folder = folder / "out"});
  std::vector<int64_t> expected{0};
  for (const int32_t id : trained()->encode("to be")) expected.push_back(id);
  const uint64_t second = expected.size();
  expected.push_back(0);
  for (const int32_t id : trained()->encode("or not")) expected.push_back(id);
  const PreparedData data = open_prepared_data(folder / "out");
  EXPECT_EQ(all(data.train), expected);
  EXPECT_EQ(data.train->document_starts(0, expected.size()), std::vector<uint64_t>{second});
  EXPECT_EQ(data.validation, nullptr);
  EXPECT_EQ(manifest.train.documents, 2u);
  EXPECT_EQ(manifest.train.text_bytes, 11u);
  EXPECT_EQ(manifest.inputs.size(), 3u);
  check_prepared_data(data);
}

TEST(Prepare, TheResultDependsOnNeitherThreadsNorShards) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "plays.txt", builtin_text());
  PrepareOptions options{.inputs = {folder / "plays.txt"}, .validation = 0.1};
  options.documents.separator = "";
  options.shard_tokens = 100'000;
  std::map<std::string, std::string> files;
  for (const int threads : {1, 3}) {
    options.threads = threads;
    options.folder = folder / std::to_string(threads);
    prepare_data(trained(), options);
    if (files.empty()) files = files_of(options.folder);
    EXPECT_EQ(files_of(options.folder), files);
  }
  EXPECT_EQ(files.count("progress.json"), 0u);
  const PreparedData many = open_prepared_data(options.folder);
  options.shard_tokens = 1'000'000;
  options.folder = folder / "one";
  prepare_data(trained(), options);
  const PreparedData one = open_prepared_data(options.folder);
  EXPECT_GT(many.manifest->train.shards.size(), 2u);
  EXPECT_EQ(one.manifest->train.shards.size(), 1u);
  EXPECT_EQ(all(many.train), all(one.train));
  EXPECT_EQ(all(many.validation), all(one.validation));
  const uint64_t size = one.train->size();
  EXPECT_EQ(many.train->document_starts(0, size), one.train->document_starts(0, size));
  EXPECT_EQ(many.train->document_starts(99'000, 101'000), one.train->document_starts(99'000, 101'000));
  const uint64_t speeches = one.manifest->train.documents + one.manifest->validation.documents;
  EXPECT_EQ(speeches, 7222u);
  EXPECT_EQ(one.manifest->validation.documents, speeches / 10);
}

TEST(Prepare, LongDocumentsAreCutWithoutATrace) {
  std::string text;
  while (text.size() < 3 * kPartBytes) text += builtin_text().substr(text.size() % 1000);
  const TemporaryFolder folder;
  write_file_atomic(folder / "long.txt", text);
  prepare_data(trained(), {.inputs = {folder / "long.txt"}, .folder = folder / "out", .document_token = "none"});
  const std::vector<int32_t> whole = trained()->encode(text);
  const PreparedData data = open_prepared_data(folder / "out");
  EXPECT_EQ(all(data.train), std::vector<int64_t>(whole.begin(), whole.end()));
  EXPECT_EQ(data.manifest->train.documents, 1u);
  EXPECT_EQ(data.manifest->train.text_bytes, text.size());
  // A token before the document stands there once, not before each part.
  const Manifest marked = prepare_data(trained(), {.inputs = {folder / "long.txt"}, .folder = folder / "marked"});
  EXPECT_EQ(marked.train.tokens, whole.size() + 1);
}

// Each letter a token, each blank a "▁", and one before the text: what LLaMA's tokenizer.json does.
std::shared_ptr<const Tokenizer> letters() {
  nlohmann::json vocabulary;
  for (const char* piece : {"a", "b", "c", "▁"}) vocabulary[piece] = vocabulary.size();
  const nlohmann::json steps = {{{"type", "Prepend"}, {"prepend", "▁"}},
                                {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}};
  return read_pipeline({{"normalizer", {{"type", "Sequence"}, {"normalizers", steps}}},
                        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}},
                       "f");
}

TEST(Prepare, ASpaceThatIsLeftOutBetweenPartsStillCountsAsItsByte) {
  std::string text;
  while (text.size() < 2 * kPartBytes) text += "abc cab ";
  text += "a";
  const TemporaryFolder folder;
  write_file_atomic(folder / "long.txt", text);
  const Manifest manifest = prepare_data(letters(), {.inputs = {folder / "long.txt"}, .folder = folder / "out"});
  EXPECT_EQ(manifest.train.text_bytes, text.size());
  EXPECT_EQ(manifest.train.tokens, text.size() + 1);
  const std::vector<int64_t> tokens = all(open_prepared_data(folder / "out").train);
  EXPECT_EQ(std::ranges::count(tokens, letters()->encode(" ").back()), std::ranges::count(text, ' ') + 1);
}

TEST(Prepare, TheDocumentTokenIsTheFirstSpecialOneOfThreeNames) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a.txt", "abc");
  int number = 0;
  const auto chosen = [&](const std::vector<std::pair<std::string, bool>>& names) {
    nlohmann::json tokenizer = letters()->to_json();
    nlohmann::json& added = tokenizer["added_tokens"] = nlohmann::json::array();
    for (const auto& [name, special] : names)
      added.push_back({{"id", 4 + added.size()}, {"content", name}, {"special", special}, {"normalized", false}});
    const std::string out = folder / std::to_string(number++);
    return prepare_data(read_pipeline(tokenizer, "f"), {.inputs = {folder / "a.txt"}, .folder = out}).document_token;
  };
  EXPECT_EQ(chosen({{"<s>", true}, {"<|begin_of_text|>", true}, {"<|endoftext|>", true}}), 6);
  EXPECT_EQ(chosen({{"<s>", true}, {"<|begin_of_text|>", true}, {"<|endoftext|>", false}}), 5);
  EXPECT_EQ(chosen({{"</s>", true}, {"<s>", true}}), 5);
  EXPECT_EQ(chosen({{"<s>", false}, {"<pad>", true}}), std::nullopt);
}

TEST(Prepare, PackedInputIsToldByItsFirstBytes) {
  const TemporaryFolder folder;
  const std::string packed("\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\xc9\x07\x00\x9d\x4a\x9c\x55\x02\x00\x00\x00",
                           22);  // gzip
  write_file_atomic(folder / "a.txt", packed);
  prepare_data(std::make_shared<ByteTokenizer>(), {.inputs = {folder / "a.txt"}, .folder = folder / "out"});
  EXPECT_EQ(all(open_prepared_data(folder / "out").train), (std::vector<int64_t>{'l', 'o'}));
}

TEST(Prepare, ATextWithoutAnyPlaceToCutIsEncodedWhole) {
  const std::string text(3 * kPartBytes, 'a');
  EXPECT_EQ(find_part_cut(*trained(), text, kPartBytes).end, 0u);
  const TemporaryFolder folder;
  write_file_atomic(folder / "long.txt", text);
  const Manifest manifest =
      prepare_data(std::make_shared<ByteTokenizer>(), {.inputs = {folder / "long.txt"}, .folder = folder / "out"});
  EXPECT_EQ(manifest.train.tokens, text.size());
  EXPECT_EQ(manifest.document_token, std::nullopt);
}

TEST(Prepare, SeparatorsAreLinesOfTheirOwn) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a.txt", "one\n---\n--- two\nthree\r\n---\r\n---\n\nfour\n---");
  PrepareOptions options{.inputs = {folder / "a.txt"}, .folder = folder / "out"};
  options.documents.separator = "---";
  prepare_data(std::make_shared<ByteTokenizer>(), options);
  const PreparedData data = open_prepared_data(folder / "out");
  const std::vector<int64_t> tokens = all(data.train);
  EXPECT_EQ(std::string(tokens.begin(), tokens.end()), "one\n--- two\nthree\r\n\nfour\n");
  EXPECT_EQ(data.train->document_starts(0, tokens.size()), (std::vector<uint64_t>{4, 19}));
}

TEST(Prepare, FoldersThatHoldSomethingElseAreRefused) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a.txt", "text");
  const auto refused = [&](const std::string& out) {
    return message_of<UsageError>(
        [&] { prepare_data(trained(), {.inputs = {folder / "a.txt"}, .folder = folder / out}); });
  };
  prepare_data(trained(), {.inputs = {folder / "a.txt"}, .folder = folder / "done"});
  EXPECT_EQ(refused("done"), "--out: " + folder / "done" + " already holds prepared data, want a new folder");
  std::filesystem::create_directory(folder / "other");
  write_file_atomic(folder / "other/file", "");
  EXPECT_EQ(refused("other"), "--out: " + folder / "other" + " is not empty, want a new folder");
}

TEST(Prepare, OnlyWhatDeadProcessesLeftIsTakenAndOnlyWithItsFolder) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a.txt", "text");
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  const std::string dead = text(".a.tmp-", gone, "-0"), alive = text(".a.tmp-", ::getpid(), "-0");
  const auto there = [&](const std::string& out, const std::string& name) {
    return std::filesystem::exists(folder.path() / out / name);
  };
  const auto prepare = [&](const std::string& out, const std::vector<std::string>& names) {
    std::filesystem::create_directory(folder / out);
    for (const std::string& name : names) write_file_atomic(folder.path() / out / name, "half");
    prepare_data(trained(), {.inputs = {folder / "a.txt"}, .folder = folder / out});
  };
  for (const std::vector<std::string>& names : {std::vector<std::string>{alive, dead, "file"}, {alive}}) {
    const std::string out = std::to_string(names.size());
    EXPECT_EQ(message_of<UsageError>([&] { prepare(out, names); }),
              "--out: " + folder / out + " is not empty, want a new folder");
    for (const std::string& name : names) EXPECT_TRUE(there(out, name)) << name;
  }
  prepare("left", {dead});
  EXPECT_FALSE(there("left", dead));
  EXPECT_TRUE(there("left", kManifestFile));
  // In a container the process that goes on has the number of the one that was killed.
  const std::string none = R"({"shards":0,"part":0,"tokens":0,"chain":0})";
  std::filesystem::create_directory(folder / "killed");
  write_file_atomic(folder / "killed/progress.json",
                    R"({"settings":{},"train":)" + none + R"(,"validation":)" + none + "}");
  const std::string other = ".a.tmp-copy";  // somebody's
  prepare("killed", {alive, other});
  EXPECT_FALSE(there("killed", alive));
  EXPECT_TRUE(there("killed", other));
  EXPECT_TRUE(there("killed", kManifestFile));
}

TEST(PreparedData, AChangedFolderIsFound) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a.txt", "text and more text");
  prepare_data(trained(), {.inputs = {folder / "a.txt"}, .folder = folder / "out"});
  const std::string shard = folder / "out/train-00000.tokens";
  const std::string good = read_file(shard);
  std::string bad = good;
  bad[64] ^= 1;
  write_file_atomic(shard, bad);
  EXPECT_EQ(message_of<Error>([&] { check_prepared_data(open_prepared_data(folder / "out")); }),
            shard + ": the checksum is wrong, the file was changed or damaged");
  prepare_data(trained(), {.inputs = {folder / "a.txt", folder / "a.txt"}, .folder = folder / "twice"});
  write_file_atomic(shard, read_file(folder / "twice/train-00000.tokens"));
  EXPECT_EQ(message_of<Error>([&] { open_prepared_data(folder / "out"); }),
            shard + ": is not the shard that data.json names");
  write_file_atomic(shard, good);
  write_file_atomic(folder / "out/tokenizer.json", "{}");
  EXPECT_EQ(message_of<Error>([&] { open_prepared_data(folder / "out"); }),
            folder / "out/tokenizer.json" + ": is not the tokenizer that data.json names");
  std::filesystem::remove(shard);
  message_of<Error>([&] { open_prepared_data(folder / "out"); });
}

}  // namespace
}  // namespace motet
