#include "motet/data/corpus.h"

#include <filesystem>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/utf8.h"
#include "motet/data/builtin.h"
#include "motet/data/documents.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> expand(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const std::string& path : paths) {
    std::error_code error;
    for (const std::string& file : fs::is_directory(path, error) ? files_below(path) : std::vector{path}) {
      if (const std::string other = other_than_text(file); !other.empty())
        fail("cannot use ", quote(file), ": ", other,
             ", want plain text, or a folder that motet data prepare makes of it");
      files.emplace_back(file);
    }
  }
  return files;
}

}  // namespace

std::string other_than_text(const std::string& file) {
  const fs::path kind = fs::path(file).extension();
  std::error_code missing;
  if (!fs::exists(file, missing)) return "";
  return kind == ".jsonl" ? "lines of JSON" : kind == ".gz" || kind == ".zst" ? "a packed file" : "";
}

Corpus load_corpus(const std::vector<std::string>& paths) {
  if (paths.empty()) return {.text = std::string(builtin_text()), .name = "tiny Shakespeare (built-in)"};
  Corpus corpus;
  const std::vector<fs::path> files = expand(paths);
  for (const fs::path& file : files) {
    const std::string bytes = read_file(file);
    if (bytes.empty()) fail("cannot use ", quote(file.string()), ": the file is empty, want text");
    const size_t zero = bytes.find('\0');
    if (zero != std::string::npos) {
      fail("cannot use ", quote(file.string()), ": a zero byte at offset ", zero, ", want text and not binary data");
    }
    if (!corpus.text.empty() && corpus.text.back() != '\n') corpus.text += '\n';
    corpus.text += bytes;
  }
  const std::string first = files.front().filename().string();
  corpus.name = files.size() == 1 ? first : text(files.size(), " files, the first is ", first);
  return corpus;
}

Split split_text(std::string_view text, double fraction) {
  if (!(fraction >= 0 && fraction < 1)) fail_usage("validation: ", fraction, " is not a fraction, want 0 to below 1");
  auto at = text.size() - static_cast<size_t>(static_cast<double>(text.size()) * fraction);
  const auto begun = at;  // bytes that are no UTF-8 may all look like the middle of a character, which has at most 4
  while (at > 0 && at < text.size() && begun - at < 3 && continues_character(text[at])) --at;
  return {.train = text.substr(0, at), .validation = text.substr(at)};
}

}  // namespace motet
