// Help for unit tests: messages of errors, a folder that cleans itself up, threads.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "motet/core/threads.h"

namespace motet::testing {

// The message of the E that `action` throws; a failure when it throws something else or nothing.
template <class E, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const E& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "a message is one line: " << error.what();
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// A new folder below the system's temporary one, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "motet-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  // The path of a name inside.
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

  // How many entries there are, hidden ones too.
  int count() const { return static_cast<int>(std::distance(std::filesystem::directory_iterator(path_), {})); }

 private:
  std::filesystem::path path_;
};

// A thread of its own for each task: the worst that a kernel can meet.
inline Threads own_threads(int count) {
  return {count, [](int64_t n, const std::function<void(int64_t)>& task) {
            std::vector<std::thread> pool;
            for (int64_t i = 0; i < n; ++i) pool.emplace_back([&task, i] { task(i); });
            for (std::thread& t : pool) t.join();
          }};
}

}  // namespace motet::testing
