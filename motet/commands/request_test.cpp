#include "motet/commands/request.h"

#include <algorithm>
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
  EXPECT_EQ(run_folder(request, "train"), fs::path(folder / "run"));
  EXPECT_EQ(message_of<UsageError>([&] { run_folder(request, "train"); }),
            "--out: " + (folder / "run") + " already holds a run, want a new folder");
}

TEST(RunFolder, RunsThatBeginAtOnceGetFoldersOfTheirOwn) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  std::vector<std::string> made(8);
  std::vector<std::thread> starters;
  for (std::string& path : made)
    starters.emplace_back([&path] { path = run_folder(json::object(), "train").string(); });
  for (std::thread& t : starters) t.join();
  fs::current_path(before);
  EXPECT_EQ(std::set<std::string>(made.begin(), made.end()).size(), made.size());
}

TEST(LoadTokenizer, AnotherNumberOfTokensThanTheModelsIsRefused) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "tokenizer.json", CharTokenizer("abc").to_json().dump());
  EXPECT_EQ(load_tokenizer(folder.path(), testing::tiny({}, {}, 3))->vocabulary_size(), 3);
  EXPECT_EQ(message_of<Error>([&] { load_tokenizer(folder.path(), testing::tiny({}, {}, 4)); }),
            (folder / "tokenizer.json") + ": the tokenizer has 3 tokens, want the 4 of vocab_size in config.json");
}

}  // namespace
}  // namespace motet
