#include "motet/core/file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryFolder;

void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST(File, ReadingGivesAllBytesAndEmptyFilesAreAllowed) {
  const TemporaryFolder folder;
  const std::string bytes("a\0\xff\n", 4);
  put(folder / "a", bytes);
  put(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "a"), bytes);
  EXPECT_EQ(read_file(folder / "empty"), "");
  const MappedFile mapped(folder / "a"), empty(folder / "empty");
  EXPECT_EQ(mapped.bytes().size(), 4u);
  EXPECT_EQ(std::to_integer<int>(mapped.bytes()[2]), 255);
  EXPECT_TRUE(empty.bytes().empty());
}

TEST(File, FilesWithoutSizeAreReadToTheirEnd) {
  EXPECT_NE(read_file("/proc/self/status").find("VmRSS"), std::string::npos);
}

TEST(File, MissingFilesAndFoldersAreRefused) {
  const TemporaryFolder folder;
  const std::string missing = folder / "none", inside = folder.path().string();
  for (const auto& read :
       {+[](const std::string& path) { read_file(path); }, +[](const std::string& path) { MappedFile{path}; }}) {
    EXPECT_EQ(message_of<Error>([&] { read(missing); }), "cannot read '" + missing + "': No such file or directory");
    EXPECT_EQ(message_of<Error>([&] { read(inside); }), "cannot read '" + inside + "': Is a directory");
  }
}

TEST(File, MoreThanTheLimitIsRefused) {
  const TemporaryFolder folder;
  put(folder / "a", "12345");
  EXPECT_EQ(read_file(folder / "a", 5), "12345");
  EXPECT_EQ(message_of<Error>([&] { read_file(folder / "a", 4); }),
            "cannot read '" + (folder / "a") + "': more than 4 bytes, want at most that many");
  EXPECT_EQ(message_of<Error>([] { read_file("/dev/zero", 1000); }),
            "cannot read '/dev/zero': more than 1000 bytes, want at most that many");
  EXPECT_EQ(message_of<Error>([] { read_file("/dev/zero"); }),
            "cannot read '/dev/zero': more than 1073741824 bytes, want at most that many");
  EXPECT_EQ(read_file("/dev/null"), "");
}

// The file is larger than all memory.
TEST(File, ALargeFileIsRefusedByItsSize) {
  const TemporaryFolder folder;
  put(folder / "a", "");
  ASSERT_EQ(::truncate((folder / "a").c_str(), off_t{1} << 42), 0);
  EXPECT_NE(message_of<Error>([&] { read_file(folder / "a", 1 << 20); }).find("more than 1048576 bytes"),
            std::string::npos);
}

TEST(File, APipeIsReadToItsEndAndTheWaitIsSaid) {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe", bytes(300000, 'x');
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::thread writer([&] {
    std::ofstream file(pipe, std::ios::binary);
    file << bytes.substr(0, 100000) << std::flush;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    file << bytes.substr(100000);
  });
  ::testing::internal::CaptureStderr();
  const std::string got = read_file(pipe);
  writer.join();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "waiting for the end of '" + pipe + "', a pipe\n");
  EXPECT_EQ(got, bytes);
}

TEST(File, AnInterruptEndsTheWaitForAPipe) {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const bool writes : {false, true})  // while it waits for a writer, and for more of one
    EXPECT_EXIT(
        {
          install_interrupt_handler();
          const int writer = writes ? ::open(pipe.c_str(), O_RDWR) : -1;
          ::alarm(20);  // the test's end if this waits for ever
          const pthread_t reader = ::pthread_self();
          std::thread killer([reader] {
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            ::pthread_kill(reader, SIGTERM);
          });
          try {
            read_file(pipe);
          } catch (const Interrupted& error) {
            ::_exit(error.exit_code());
          }
          ::_exit(writer);
        },
        ::testing::ExitedWithCode(143), "waiting for the end");
}

TEST(File, OnlyRegularFilesAreMapped) {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")})
    EXPECT_EQ(message_of<Error>([&] { MappedFile{path}; }), "cannot read '" + path + "': no regular file, want one");
}

TEST(File, LinesAreReadOneByOne) {
  std::istringstream in("one\n\n three \r\nlast");
  std::vector<std::string> lines;
  for (std::string line; read_line(in, line, "in");) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "", " three \r", "last"}));
  std::istringstream ended("a\n");
  std::string line;
  EXPECT_TRUE(read_line(ended, line, "in"));
  EXPECT_FALSE(read_line(ended, line, "in"));
}

TEST(File, AMappedFileCanBeMoved) {
  const TemporaryFolder folder;
  put(folder / "a", "abc");
  MappedFile first(folder / "a");
  const MappedFile second = std::move(first);
  EXPECT_EQ(second.bytes().size(), 3u);
  EXPECT_TRUE(first.bytes().empty());
}

TEST(File, AnAtomicWriteReplacesAndLeavesNothingBehind) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a", "old");
  write_file_atomic(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_EQ(folder.count(), 1);
}

TEST(File, AnAtomicFileThatIsNotCommittedLeavesTheOldOne) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  {
    AtomicFile file(folder / "a");
    file.write("half of the new");
    EXPECT_EQ(folder.count(), 2);
  }
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(folder.count(), 1);
}

// Writes more than a process that may write four bytes to a file can; ends the process with 3 when that is refused.
void write_beyond_the_limit(const std::string& path) {
  const rlimit limit = {4, 4};  // in place of a full disk
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    write_file_atomic(path, "longer than four bytes");
  } catch (const Error&) {
    ::_exit(3);
  }
  ::_exit(0);
}

TEST(File, AFullDiskLeavesTheOldFileAndNoTemporary) {
  const TemporaryFolder folder;
  put(folder / "a", "old");
  EXPECT_EXIT(write_beyond_the_limit(folder / "a"), ::testing::ExitedWithCode(3), "");
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(folder.count(), 1);
}

TEST(File, AtomicWritesRefuseFoldersAndMissingParents) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "sub");
  EXPECT_EQ(message_of<Error>([&] { write_file_atomic(folder / "sub", ""); }),
            "cannot write '" + (folder / "sub") + "': Is a directory");
  EXPECT_EQ(message_of<Error>([&] { write_file_atomic(folder / "none/a", ""); }),
            "cannot write '" + (folder / "none/a") + "': No such file or directory");
  EXPECT_EQ(folder.count(), 1);
}

TEST(AtomicFolder, AppearsWholeWithItsParents) {
  const TemporaryFolder folder;
  {
    AtomicFolder target(folder / "runs/one/");
    fs::create_directory(target.path() / "sub");
    write_file_atomic(target.path() / "sub/a", "1");
    EXPECT_FALSE(fs::exists(folder / "runs/one"));
    EXPECT_EQ(target.path().parent_path(), folder.path() / "runs");  // a rename within one file system
    target.commit();
  }
  EXPECT_EQ(read_file(folder / "runs/one/sub/a"), "1");
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(fs::status(folder / "runs/one").permissions(), static_cast<fs::perms>(0777 & ~mask));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "runs"), {}), 1);
}

TEST(AtomicFolder, ReplacesAnOlderFolderWhole) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "one");
  put(folder / "one/old", "old");
  {
    AtomicFolder target(folder / "one");
    put((target.path() / "new").string(), "new");
    target.commit();
  }
  EXPECT_TRUE(fs::exists(folder / "one/new"));
  EXPECT_FALSE(fs::exists(folder / "one/old"));
  EXPECT_EQ(folder.count(), 1);
}

// A folder that somebody else made meanwhile, or another process of the same kind, is not ours to remove.
TEST(AtomicFolder, LeavesAnOlderFolderThatItRefuses) {
  using Older = AtomicFolder::Older;
  const TemporaryFolder folder;
  {
    AtomicFolder first(folder / "one", Older::refused), second(folder / "one", Older::refused);
    put((first.path() / "a").string(), "first");
    put((second.path() / "b").string(), "second");
    first.commit();
    EXPECT_EQ(message_of<Error>([&] { second.commit(); }),
              "cannot write '" + folder / "one" + "': Directory not empty");
  }
  EXPECT_EQ(read_file(folder / "one/a"), "first");
  EXPECT_FALSE(fs::exists(folder / "one/b"));
  fs::create_symlink(folder / "nowhere", folder / "link");
  for (const char* name : {"one", "link"})
    EXPECT_EQ(message_of<Error>([&] { AtomicFolder target(folder / name, Older::refused); }),
              "cannot write '" + folder / name + "': File exists");
  EXPECT_EQ(folder.count(), 2);
}

TEST(AtomicFolder, LeavesNothingWithoutCommit) {
  const TemporaryFolder folder;
  {
    AtomicFolder target(folder / "one");
    put((target.path() / "a").string(), "1");
  }
  EXPECT_EQ(folder.count(), 0);
}

TEST(RemoveLeftovers, TakesWhatProcessesThatAreGoneLeft) {
  const testing::TemporaryFolder folder;
  const pid_t gone = ::fork();
  if (gone == 0) ::_exit(0);
  ::waitpid(gone, nullptr, 0);
  const auto make = [&](const std::string& name) { fs::create_directories(folder.path() / name / "inside"); };
  const std::string dead = text(".step_1.tmp-", gone, "-0"), alive = text(".step_2.tmp-", ::getpid(), "-3");
  for (const std::string& name : {dead, alive, text("step_3.tmp-", gone, "-0"), text(".tmp-", gone, "-0")}) make(name);
  write_file_atomic(folder.path() / text(".config.toml.tmp-", gone, "-1"), "half");
  remove_leftovers(folder.path());
  EXPECT_FALSE(fs::exists(folder.path() / dead));
  EXPECT_FALSE(fs::exists(folder.path() / text(".config.toml.tmp-", gone, "-1")));
  EXPECT_EQ(folder.count(), 3);
  remove_leftovers(folder.path() / "missing");
}

TEST(FolderLock, RefusesASecondOneUntilTheFirstIsGone) {
  const TemporaryFolder folder;
  {
    const FolderLock first(folder.path(), "trains this run");
    EXPECT_EQ(message_of<Error>([&] { FolderLock(folder.path(), "prepares data there"); }),
              folder.path().string() + ": another process prepares data there");
  }
  const FolderLock second(folder.path(), "trains this run");
  EXPECT_EQ(message_of<Error>([&] { FolderLock(folder.path() / "none", "trains this run"); }),
            "cannot write '" + folder / "none" + "': No such file or directory");
}

TEST(BytesBelow, AreThoseOfAllFiles) {
  const TemporaryFolder folder;
  EXPECT_EQ(bytes_below(folder.path() / "missing"), 0);
  fs::create_directories(folder.path() / "a" / "b");
  put(folder / "one", "1");
  put((folder.path() / "a" / "b" / "three").string(), "333");
  EXPECT_EQ(bytes_below(folder.path()), 4);
  EXPECT_EQ(bytes_below(folder.path() / "a"), 3);
}

TEST(AtomicFolder, RefusesAFileInItsPlaceOrAboveIt) {
  const TemporaryFolder folder;
  put(folder / "file", "");
  EXPECT_EQ(message_of<Error>([&] { AtomicFolder target(folder / "file"); }),
            "cannot write '" + (folder / "file") + "': Not a directory");
  EXPECT_EQ(message_of<Error>([&] { AtomicFolder target(folder / "file/sub"); }),
            "cannot write '" + (folder / "file/sub") + "': Not a directory");
  EXPECT_EQ(message_of<Error>([&] { AtomicFolder target("/proc/motet/one"); }),
            "cannot write '/proc/motet/one': No such file or directory");
}

}  // namespace
}  // namespace motet
