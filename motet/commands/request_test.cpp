#include "motet/commands/request.h"

#include <set>
#include <thread>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::message_of;
using testing::TemporaryFolder;

TEST(RunFolder, ASecondRunInOneFolderIsRefusedEvenBeforeTheFirstWroteAnything) {
  const TemporaryFolder folder;
  const json request{{"out", folder / "run"}};
  const RunFolder first(request, "train");
  EXPECT_EQ(first.path(), fs::path(folder / "run"));
  EXPECT_EQ(message_of<UsageError>([&] { RunFolder(request, "train"); }),
            "--out: " + (folder / "run") + " already holds a run, want a new folder");
}

TEST(RunFolder, ARunThatLeftNoRecordCanBeTriedAgain) {
  const TemporaryFolder folder;
  const json request{{"out", folder / "run"}};
  {
    const RunFolder failed(request, "train");
  }
  {
    const RunFolder again(request, "train");
    write_file_atomic(again.path() / "metrics.jsonl", "{}\n");
  }
  message_of<UsageError>([&] { RunFolder(request, "train"); });
}

TEST(RunFolder, RunsThatBeginAtOnceGetFoldersOfTheirOwn) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  std::vector<std::unique_ptr<RunFolder>> made(8);
  std::vector<std::thread> starters;
  for (auto& one : made) starters.emplace_back([&one] { one = std::make_unique<RunFolder>(json::object(), "train"); });
  for (std::thread& t : starters) t.join();
  std::set<fs::path> paths;
  for (const auto& one : made) paths.insert(one->path());
  EXPECT_EQ(paths.size(), made.size());
  made.clear();
  fs::current_path(before);
}

TEST(LoadTokenizer, MoreTokensThanTheModelHasAreRefused) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "tokenizer.json", CharTokenizer("abc").to_json().dump());
  for (const int64_t size : {3, 4})  // published models round their vocabulary up
    EXPECT_EQ(load_tokenizer(folder.path(), testing::tiny({}, {}, size))->vocabulary_size(), 3);
  EXPECT_EQ(message_of<Error>([&] { load_tokenizer(folder.path(), testing::tiny({}, {}, 2)); }),
            folder.path().string() + ": the tokenizer has 3 tokens, want at most the 2 of vocab_size in config.json");
}

}  // namespace
}  // namespace motet
