#include "motet/data/split_writer.h"

#include <map>
#include <numeric>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

constexpr uint64_t kShardTokens = 10;

// Twelve parts of different sizes, some that continue a document, some that fill a shard to its end.
struct Part {
  bool begins = false;
  std::vector<int32_t> tokens;
};

const std::vector<Part>& parts() {
  static const std::vector<Part> all = [] {
    const std::vector<std::pair<bool, int>> sizes{{true, 3},  {true, 7},  {false, 4}, {true, 25},
                                                  {false, 1}, {true, 0},  {true, 10}, {true, 10},
                                                  {true, 2},  {false, 3}, {true, 5},  {true, 6}};
    std::vector<Part> made;
    int32_t next = 0;
    for (const auto& [begins, size] : sizes) {
      made.push_back({begins, std::vector<int32_t>(static_cast<size_t>(size))});
      std::iota(made.back().tokens.begin(), made.back().tokens.end(), next);
      next += size;
    }
    return made;
  }();
  return all;
}

std::map<std::string, std::string> files_of(const TemporaryFolder& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    files[entry.path().filename().string()] = read_file(entry.path());
  return files;
}

// Writes parts [0,end), leaving out those that are in whole shards, as Preparation does; the progress it saved last.
SplitProgress write(const TemporaryFolder& folder, const SplitProgress& done, size_t end, bool finish) {
  SplitProgress saved = done;
  SplitWriter* current = nullptr;
  SplitWriter writer(folder.path(), "train", 100, kShardTokens, done, [&] { saved = current->progress(); });
  current = &writer;
  for (size_t i = 0; i < end; ++i)
    if (writer.wants(i)) writer.add(i, 1000 + i, parts()[i].begins, parts()[i].tokens);
  if (finish) writer.finish();
  return saved;
}

TEST(SplitWriter, AWriterThatWasStoppedAnywhereContinuesToTheSameFiles) {
  const TemporaryFolder whole;
  write(whole, {}, parts().size(), true);
  const auto wanted = files_of(whole);
  EXPECT_EQ(wanted.size(), 8u);  // 76 tokens
  for (size_t stop = 0; stop <= parts().size(); ++stop) {
    const TemporaryFolder folder;
    const SplitProgress saved = write(folder, {}, stop, false);
    EXPECT_EQ(files_of(folder).size(), saved.shards) << stop;
    write(folder, parse_progress(progress_json(saved), "f"), parts().size(), true);
    EXPECT_EQ(files_of(folder), wanted) << stop;
  }
}

TEST(SplitWriter, TheRecordNamesEachShardWithItsTokensAndDocuments) {
  const TemporaryFolder folder;
  SplitWriter writer(folder.path(), "train", 100, kShardTokens, {}, [] {});
  for (size_t i = 0; i < 4; ++i) writer.add(i, i, parts()[i].begins, parts()[i].tokens);  // 3, 7, 4 + 25
  writer.finish();
  const SplitRecord split = writer.record(123);
  EXPECT_EQ(split.text_bytes, 123u);
  EXPECT_EQ(split.tokens, 39u);
  EXPECT_EQ(split.documents, 3u);
  ASSERT_EQ(split.shards.size(), 4u);
  EXPECT_EQ(split.shards[3].file, "train-00003.tokens");
  EXPECT_EQ(split.shards[3].tokens, 9u);
  EXPECT_EQ(split.shards[0].documents, 2u);
  EXPECT_EQ(split.shards[1].documents, 1u);
  EXPECT_EQ(split.shards[2].documents, 0u);
}

TEST(SplitWriter, AShardOfAnotherSizeIsNotContinued) {
  const TemporaryFolder folder;
  const SplitProgress saved = write(folder, {}, 4, false);
  const auto continued = [&] { SplitWriter(folder.path(), "train", 100, kShardTokens + 1, saved, [] {}); };
  EXPECT_EQ(message_of<Error>(continued),
            folder / "train-00000.tokens" + ": is not the shard that was written here, want a new folder");
}

}  // namespace
}  // namespace motet
