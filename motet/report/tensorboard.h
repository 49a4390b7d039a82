// Event files that TensorBoard shows: scalars by tag and step.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace motet {

// Appends to a file of its own, events.out.tfevents.<time>.<process>, in TFRecord framing: length, its masked CRC-32C,
// an Event message, its masked CRC-32C. Not thread-safe.
class TensorBoardWriter {
 public:
  // Throws Error when the file cannot be made.
  explicit TensorBoardWriter(const std::filesystem::path& folder);

  // Numbers are float32 in such files. `time`: seconds since 1970. Throws Error when they cannot be written.
  void write(int64_t step, double time, const std::vector<std::pair<std::string, double>>& scalars);

 private:
  void append(const std::string& event);

  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// Takes away the event files of a folder, for a run that writes them anew.
void remove_tensorboard_files(const std::filesystem::path& folder);

}  // namespace motet
