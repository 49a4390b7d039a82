#include "motet/core/file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <istream>
#include <utility>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/log.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail_file(const char* verb, const fs::path& path, int error) {
  fail("cannot ", verb, " ", quote(path.string()), ": ", std::strerror(error));
}

// Closes when it goes out of scope.
struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

// What the path is, without opening it: a pipe would give its bytes to whoever opens it. Refuses folders.
struct stat status_of(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) fail_file("read", path, errno);
  if (S_ISDIR(status.st_mode)) fail_file("read", path, EISDIR);
  return status;
}

// Of the file that is open: another may have its name by now.
size_t size_of(const Descriptor& descriptor, const fs::path& path) {
  struct stat status = {};
  if (::fstat(descriptor.value, &status) != 0) fail_file("read", path, errno);
  return static_cast<size_t>(status.st_size);
}

// Until a stream has bytes or its end. A signal may come between the look and the wait, or to another thread: nobody
// waits for long without looking.
void wait_for_bytes(const Descriptor& stream) {
  constexpr int kMilliseconds = 200;
  pollfd one{stream.value, POLLIN, 0};
  int ready = 0;
  do {
    check_interrupt();
    ready = ::poll(&one, 1, kMilliseconds);
  } while (ready == 0 || (ready < 0 && errno == EINTR));
}

void sync_path(const fs::path& path) {
  const Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  // A file system without fsync answers EINVAL; the rename is then as safe as it gets.
  if (descriptor.value < 0 || (::fsync(descriptor.value) != 0 && errno != EINVAL)) fail_file("write", path, errno);
}

fs::path parent_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

fs::path temporary_sibling(const fs::path& path) {
  static std::atomic<int> counter = 0;
  return parent_of(path) / text(".", path.filename().string(), ".tmp-", ::getpid(), "-", counter++);
}

// `from` takes the name `to`, and an older folder of that name becomes `from`.
void replace_folder(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno == ENOENT) {  // nothing to exchange with
    if (::rename(from.c_str(), to.c_str()) != 0) fail_file("write", to, errno);
    return;
  }
  // A file system that cannot exchange: for a moment the folder exists only under the name `aside`.
  const fs::path aside = temporary_sibling(to);
  if (::rename(to.c_str(), aside.c_str()) != 0) fail_file("write", to, errno);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    ::rename(aside.c_str(), to.c_str());
    fail_file("write", to, error);
  }
  ::rename(aside.c_str(), from.c_str());
}

}  // namespace

int open_for_reading(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_file("read", path, errno);
  return descriptor;
}

std::string read_file(const fs::path& path, size_t most) {
  const struct stat status = status_of(path);
  const bool stream = !S_ISREG(status.st_mode);
  const size_t limit = stream ? std::min(most, kStreamBytes) : most;
  if (S_ISFIFO(status.st_mode)) log_info(text("waiting for the end of ", quote(path.string()), ", a pipe"));
  const Descriptor descriptor{open_for_reading(path)};
  const size_t size = size_of(descriptor, path);
  std::string out;
  if (size <= limit) out.reserve(size);
  char buffer[1 << 16];
  while (out.size() <= limit) {  // until the end and not until `size`, which is 0 for pipes and /proc
    if (stream) wait_for_bytes(descriptor);
    const ssize_t count = ::read(descriptor.value, buffer, sizeof buffer);
    if (count < 0 && errno != EINTR && errno != EAGAIN) fail_file("read", path, errno);
    if (count == 0) return out;
    if (count > 0) out.append(buffer, static_cast<size_t>(count));
  }
  fail("cannot read ", quote(path.string()), ": more than ", limit, " bytes, want at most that many");
}

bool read_line(std::istream& in, std::string& line, const std::string& where) {
  line.clear();
  std::streambuf& bytes = *in.rdbuf();
  constexpr int kEnd = std::char_traits<char>::eof();
  for (int next; (next = bytes.sbumpc()) != '\n'; line += static_cast<char>(next)) {
    if (next == kEnd) {
      check_interrupt();  // an interrupted read looks like the end
      return !line.empty();
    }
    if (line.size() == kLineBytes) fail(where, ": a line of more than ", kLineBytes, " bytes, want a shorter one");
  }
  check_interrupt();
  return true;
}

MappedFile::MappedFile(const fs::path& path) {
  const struct stat status = status_of(path);
  if (!S_ISREG(status.st_mode)) fail("cannot read ", quote(path.string()), ": no regular file, want one");
  const Descriptor descriptor{open_for_reading(path)};
  size_ = size_of(descriptor, path);
  if (size_ == 0) return;  // mmap refuses empty ranges
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.value, 0);
  if (address == MAP_FAILED) fail_file("read", path, errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)), temporary_(temporary_sibling(path_)) {
  std::error_code ignored;
  if (fs::is_directory(path_, ignored)) fail_file("write", path_, EISDIR);
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_file("write", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_file("write", path_, errno);
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

void AtomicFile::write_at(uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_file("write", path_, errno);
    bytes.remove_prefix(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0 && errno != EINVAL) fail_file("write", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_file("write", path_, errno);
  ::close(std::exchange(descriptor_, -1));
  sync_path(parent_of(path_));
}

void write_file_atomic(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

AtomicFolder::AtomicFolder(fs::path target, Older older) : target_(std::move(target)), older_(older) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // "runs/a/" is "runs/a"
  temporary_ = temporary_sibling(target_);
  std::error_code error;
  if (older_ == Older::refused && fs::exists(fs::symlink_status(target_, error))) fail_file("write", target_, EEXIST);
  if (fs::exists(target_, error) && !fs::is_directory(target_, error)) fail_file("write", target_, ENOTDIR);
  fs::create_directories(parent_of(target_), error);
  if (error) fail_file("write", target_, error.value());
  if (::mkdir(temporary_.c_str(), 0777) != 0) fail_file("write", target_, errno);
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);  // holds the older folder after a commit that replaced one
}

void AtomicFolder::commit() {
  for (const auto& entry : fs::recursive_directory_iterator(temporary_)) {
    if (entry.is_regular_file() || entry.is_directory()) sync_path(entry.path());
  }
  sync_path(temporary_);
  if (older_ == Older::replaced)
    replace_folder(temporary_, target_);
  else if (::rename(temporary_.c_str(), target_.c_str()) != 0)  // over nothing or an empty folder alone
    fail_file("write", target_, errno);
  sync_path(parent_of(target_));
}

FolderLock::FolderLock(const fs::path& folder, const char* use)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail_file("write", folder, errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  fail(folder.string(), ": another process ", use);
}

FolderLock::~FolderLock() { ::close(descriptor_); }

int64_t bytes_below(const fs::path& folder) {
  std::error_code error;
  int64_t sum = 0;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code none;
    if (at->is_regular_file(none))
      if (const auto size = at->file_size(none); !none) sum += static_cast<int64_t>(size);
  }
  return sum;
}

// temporary_sibling's .NAME.tmp-PROCESS-NUMBER.
int64_t maker_of(std::string_view name) {
  const size_t mark = name.rfind(".tmp-");
  if (mark == name.npos || mark < 2 || name[0] != '.') return 0;
  const char *process = name.data() + mark + 5, *end = name.data() + name.size();
  int32_t id = 0;
  uint64_t number = 0;
  const auto after = std::from_chars(process, end, id);
  if (after.ec != std::errc() || id <= 0 || after.ptr == end || *after.ptr != '-') return 0;
  const auto last = std::from_chars(after.ptr + 1, end, number);
  return last.ec == std::errc() && last.ptr == end ? id : 0;
}

void remove_leftovers(const fs::path& folder, Makers makers) {
  std::error_code none;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const auto maker = static_cast<pid_t>(maker_of(entry.path().filename().string()));
    const auto gone = [&] { return ::kill(maker, 0) != 0 && errno == ESRCH; };
    if (maker > 0 && (makers == Makers::all || gone())) left.push_back(entry.path());
  }
  for (const fs::path& path : left) fs::remove_all(path, none);
}

}  // namespace motet
