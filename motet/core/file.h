// Files: read whole, mapped, or written whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

namespace motet {

// What is read at most of a pipe or a device, whose end nobody knows; and of a line.
inline constexpr size_t kStreamBytes = size_t{1} << 30, kLineBytes = 100'000'000;

// The descriptor of a file to read. A pipe's writer is not waited for: poll() tells of its bytes and of its end, and
// check_interrupt() between two of them ends the wait, whichever thread got the signal. Throws as read_file does.
int open_for_reading(const std::filesystem::path& path);

// All bytes of a file; an empty file is an empty string. A pipe is read to its end, and a line on stderr says that this
// is waited for. Throws Error naming the path and the reason: missing, a folder, not readable, more than `most` bytes
// (of a pipe or a device kStreamBytes, if that is less); Interrupted.
std::string read_file(const std::filesystem::path& path, size_t most = SIZE_MAX);

// The next line of a stream without its break; false at the end. Throws Error that begins with `where` for a line of
// more than kLineBytes; Interrupted.
bool read_line(std::istream& in, std::string& line, const std::string& where);

// A file in memory, read-only. The bytes live as long as the object; it can be moved. If another program shortens the
// file meanwhile, reading the lost part ends the process (SIGBUS): checkpoints are replaced, never rewritten.
class MappedFile {
 public:
  // Throws as read_file does, and for what is no regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A file that appears under its name, replacing an older one, when commit() is called, and never otherwise. It grows
// as a sibling named `.<name>.tmp-<process>-<number>`, which the destructor removes. Not thread-safe.
class AtomicFile {
 public:
  // Throws Error when the folder is missing or not writable, or `path` is a folder.
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Throws Error, for instance on a full disk.
  void write(std::string_view bytes);

  // Replaces bytes that were written before. Throws as write() does.
  void write_at(uint64_t offset, std::string_view bytes);

  // Brings the bytes to the disk and renames. At most once; throws Error and leaves the older file when it fails.
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  int descriptor_ = -1;
};

// The file holds exactly `bytes` afterwards, or what it held before and an Error is thrown.
void write_file_atomic(const std::filesystem::path& path, std::string_view bytes);

// A folder that appears under its name when commit() is called, and never otherwise. Until then its files are written
// below path(), a sibling that the destructor removes. Missing parent folders are made.
class AtomicFolder {
 public:
  enum class Older { replaced, refused };
  // Throws Error when the parent cannot be made or written, `target` exists and is no folder, or an older one of its
  // name, or a link, is refused.
  explicit AtomicFolder(std::filesystem::path target, Older = Older::replaced);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& path() const { return temporary_; }

  // Brings all files to the disk and renames; an older folder is exchanged in one step and then removed. At most once;
  // throws Error and leaves the older folder when it fails, or when it has appeared meanwhile and is refused.
  void commit();

 private:
  std::filesystem::path target_, temporary_;
  Older older_;
};

// A folder that no other process has locked while this lives. Some file systems have no locks: there nobody is refused.
class FolderLock {
 public:
  // Throws Error when the folder cannot be opened, and "FOLDER: another process " + `use` when that has it.
  FolderLock(const std::filesystem::path& folder, const char* use);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

// The sizes of all files below a folder; 0 where it is missing.
int64_t bytes_below(const std::filesystem::path& folder);

// The process whose AtomicFile or AtomicFolder has made a file of this name; 0: none has.
int64_t maker_of(std::string_view name);

// Removes what AtomicFile and AtomicFolder left in a folder: those of processes that are gone, or of all, which is for
// a folder that is this process's own and where nothing is written yet. In a container the next process may have the
// number of one that was killed. What cannot be removed stays.
enum class Makers { gone, all };
void remove_leftovers(const std::filesystem::path& folder, Makers = Makers::gone);

}  // namespace motet
