#include "motet/data/corpus.h"

#include <filesystem>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/data/builtin.h"

namespace motet {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

TEST(Corpus, TheBuiltInTextIsTinyShakespeare) {
  EXPECT_EQ(builtin_text().size(), 1115394u);
  EXPECT_TRUE(builtin_text().starts_with("First Citizen:\nBefore we proceed any further"));
  EXPECT_TRUE(builtin_text().ends_with("Whiles thou art waking.\n"));
  EXPECT_EQ(load_corpus({}).text, builtin_text());
  EXPECT_EQ(load_corpus({}).name, "tiny Shakespeare (built-in)");
}

TEST(Corpus, FilesFollowEachOtherWithALineBreakBetween) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "one", "1");
  write_file_atomic(folder / "two", "2\n");
  const Corpus corpus = load_corpus({folder / "one", folder / "two", folder / "one"});
  EXPECT_EQ(corpus.text, "1\n2\n1");
  EXPECT_EQ(corpus.name, "3 files, the first is one");
  EXPECT_EQ(load_corpus({folder / "one"}).name, "one");
}

TEST(Corpus, AFolderStandsForTheTextsBelowItInOrder) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "aa" / "deep");
  std::filesystem::create_directories(folder.path() / ".hidden");
  for (const char* name : {"b.txt", "a.txt", "aa/deep/c.txt", ".hidden/d.txt", "e.md"})
    write_file_atomic(folder / name, std::string(name) + "\n");
  EXPECT_EQ(load_corpus({folder.path().string()}).text, "a.txt\naa/deep/c.txt\nb.txt\n");
}

TEST(Corpus, WhatIsNotPlainIsRefusedInAFolderToo) {
  const auto refused = [](const std::string& path) { return message_of<Error>([&] { load_corpus({path}); }); };
  const std::string wanted = ", want plain text, or a folder that motet data prepare makes of it";
  for (const auto& [name, what] : {std::pair("b.jsonl", "lines of JSON"), std::pair("b.jsonl.gz", "a packed file"),
                                   std::pair("b.txt.gz", "a packed file"), std::pair("b.txt.zst", "a packed file")}) {
    const TemporaryFolder folder;
    for (const char* plain : {"a.txt", "c.txt"}) write_file_atomic(folder / plain, "a\n");
    write_file_atomic(folder / name, "{\"text\": \"b\"}\n");
    const std::string message = "cannot use '" + (folder / name) + "': " + what + wanted;
    EXPECT_EQ(refused(folder / name), message);
    EXPECT_EQ(refused(folder.path().string()), message);
    EXPECT_EQ(refused(folder / "none.txt.gz"),
              "cannot read '" + (folder / "none.txt.gz") + "': No such file or directory");
  }
}

TEST(Corpus, FilesThatAreNoTextAreRefused) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "empty", "");
  write_file_atomic(folder / "binary", std::string("ab\0c", 4));
  const auto refused = [](const std::string& path) { return message_of<Error>([&] { load_corpus({path}); }); };
  EXPECT_EQ(refused(folder / "none"), "cannot read '" + (folder / "none") + "': No such file or directory");
  EXPECT_EQ(refused(folder / "empty"), "cannot use '" + (folder / "empty") + "': the file is empty, want text");
  EXPECT_EQ(refused(folder / "binary"),
            "cannot use '" + (folder / "binary") + "': a zero byte at offset 2, want text and not binary data");
  EXPECT_EQ(refused(folder.path().string()),
            "cannot read '" + folder.path().string() + "': the folder holds no *.txt or *.jsonl, packed or not");
}

TEST(Corpus, TheLastPartIsForValidation) {
  EXPECT_EQ(split_text("0123456789", 0.2).train, "01234567");
  EXPECT_EQ(split_text("0123456789", 0.2).validation, "89");
  EXPECT_EQ(split_text("0123456789", 0).validation, "");
}

TEST(Corpus, ASplitNeverCutsACharacter) {
  const std::string text = "aaaa日bb";
  for (int percent = 0; percent < 100; ++percent) {
    const Split split = split_text(text, percent / 100.0);
    EXPECT_EQ(std::string(split.train) + std::string(split.validation), text);
    EXPECT_TRUE(split.train.size() <= 4 || split.train.size() >= 7) << percent;
  }
}

TEST(Corpus, ASplitOfBytesThatAreNoCharactersStaysNearItsPlace) {
  const std::string text(1000, '\x80');
  EXPECT_EQ(split_text(text, 0.1).train.size(), 897u);
}

TEST(Corpus, WrongFractionsAreRefused) {
  EXPECT_EQ(message_of<UsageError>([] { split_text("ab", 1); }), "validation: 1 is not a fraction, want 0 to below 1");
  message_of<UsageError>([] { split_text("ab", -0.1); });
  message_of<UsageError>([] { split_text("ab", std::stod("nan")); });
}

}  // namespace
}  // namespace motet
