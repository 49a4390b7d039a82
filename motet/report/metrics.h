// metrics.jsonl: one JSON object a line, as the run goes on.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace motet {

// Appends to the file, which is made when it is missing. Each line reaches the file before write() returns, so a run
// that is killed loses nothing. Not thread-safe.
class MetricsWriter {
 public:
  // Throws Error when the file cannot be opened.
  explicit MetricsWriter(const std::filesystem::path& path);

  // Numbers that are not finite become null. Throws Error when the line cannot be written (a full disk).
  void write(const nlohmann::json& record);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace motet
