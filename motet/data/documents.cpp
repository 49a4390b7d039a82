#include "motet/data/documents.h"

#include <algorithm>
#include <filesystem>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/data/text_parts.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 200'000;  // the manifest names each

// "a.jsonl.gz" -> ".jsonl".
std::string kind_of(const fs::path& path) {
  const fs::path inner = path.extension() == ".gz" || path.extension() == ".zst" ? path.stem() : path;
  return inner.extension().string();
}

bool is_text_file(const fs::path& path) {
  const std::string kind = kind_of(path);
  return (kind == ".txt" || kind == ".jsonl") && !path.filename().string().starts_with('.');
}

}  // namespace

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, error), end;
  for (; !error && entries != end; entries.increment(error)) {
    std::error_code ignored;
    if (entries->is_directory(ignored) && entries->path().filename().string().starts_with('.')) {
      entries.disable_recursion_pending();
    } else if (entries->is_regular_file(ignored) && is_text_file(entries->path())) {
      found.push_back(entries->path().string());
    }
  }
  if (error) fail("cannot read ", quote(folder), ": ", error.message());
  if (found.empty()) fail("cannot read ", quote(folder), ": the folder holds no *.txt or *.jsonl, packed or not");
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<InputFile> find_inputs(const std::vector<std::string>& paths, bool validation) {
  std::vector<InputFile> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (path == "-") {
      for (const InputFile& file : files)
        if (file.path == "-") fail_usage("standard input is given twice");
      files.push_back({.path = "-", .validation = validation});
      continue;
    }
    for (const std::string& file : fs::is_directory(path, error) ? files_below(path) : std::vector{path}) {
      if (utf8_invalid_at(file) != file.npos)
        fail("cannot read ", quote(file), ": its name is not UTF-8, want one that is");
      const fs::file_status status = fs::status(file, error);
      if (error) fail("cannot read ", quote(file), ": ", error.message());
      const uint64_t bytes = fs::is_regular_file(status) ? fs::file_size(file, error) : 0;
      files.push_back({.path = file, .bytes = bytes, .validation = validation});
    }
  }
  if (files.size() > kMostFiles) fail(files.size(), " files, want at most ", kMostFiles, ": join them as .jsonl");
  return files;
}

DocumentReader::DocumentReader(std::vector<InputFile> files, DocumentOptions options,
                               std::shared_ptr<const Tokenizer> tokenizer)
    : files_(std::move(files)), options_(std::move(options)), tokenizer_(std::move(tokenizer)) {}

DocumentReader::~DocumentReader() = default;

std::optional<TextPart> DocumentReader::next() {
  while (ready_.empty()) {
    if (!stream_) {
      if (!open_next()) return std::nullopt;
    } else if (!(lines_ ? take_line() : take_text())) {
      summaries_.push_back({stream_->text_bytes(), stream_->text_hash()});
      finished_bytes_ += stream_->packed_bytes();
      stream_.reset();
    }
  }
  TextPart part = std::move(ready_.front());
  ready_.pop_front();
  return part;
}

bool DocumentReader::open_next() {
  if (file_ == files_.size()) return false;
  const std::string& path = files_[file_++].path;
  lines_ = options_.format == "jsonl" || (options_.format == "auto" && path != "-" && kind_of(path) == ".jsonl");
  stream_ = std::make_unique<InputStream>(path, &stopped_);
  buffer_.clear();
  begin_ = scanned_ = line_ = left_out_ = 0;
  part_size_ = kPartBytes;
  ended_ = inside_ = inside_line_ = false;
  return true;
}

void DocumentReader::read_more() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t before = buffer_.size();
  ended_ = !stream_->read(buffer_);
  const size_t zero = lines_ ? buffer_.npos : buffer_.find('\0', before);
  if (zero != buffer_.npos)
    fail("cannot use ", quote(files_[file_ - 1].path), ": a zero byte at offset ",
         stream_->text_bytes() - (buffer_.size() - zero), ", want text and not binary data");
}

void DocumentReader::drop(size_t bytes) {
  inside_line_ = bytes > scanned_;
  begin_ += bytes;
  scanned_ -= std::min(scanned_, bytes);
}

// Looks for the line between two documents behind `scanned_`, which it moves.
bool DocumentReader::text_ends(size_t& end, size_t& next) {
  const std::string_view text = held();
  while (true) {
    const size_t line_break = text.find('\n', scanned_);
    if (line_break == text.npos && !ended_) return false;
    if (scanned_ == text.size()) return false;
    const size_t line_end = std::min(line_break, text.size());
    std::string_view line = text.substr(scanned_, line_end - scanned_);
    if (line.ends_with('\r')) line.remove_suffix(1);
    next = std::min(line_end + 1, text.size());
    end = scanned_;
    if (line == *options_.separator && !inside_line_) return true;
    inside_line_ = inside_line_ && line_break == text.npos;
    scanned_ = next;
  }
}

// Takes a document, or a part of a long one; false when the file is used up.
bool DocumentReader::take_text() {
  while (true) {
    size_t end = 0, next = 0;
    if (options_.separator && text_ends(end, next)) {
      put_document(held().substr(0, end));
      drop(next);
      inside_line_ = false;
      return true;
    }
    const bool used_up = ended_;
    if (used_up) {
      put_document(held());
      drop(held().size());
      return !ready_.empty();
    }
    // A short line that has not ended may still become one that separates documents.
    const size_t line_bytes = held().size() - scanned_;
    const bool open = options_.separator && !inside_line_ && line_bytes <= options_.separator->size() + 1;
    const size_t known = open ? scanned_ : held().size();
    if (const size_t taken = put_parts(held().substr(0, known), false); taken > 0) {
      drop(taken);
      return true;
    }
    read_more();
  }
}

// Takes a line of JSON; false when the file is used up.
bool DocumentReader::take_line() {
  size_t line_break;
  while ((line_break = held().find('\n', scanned_)) == held().npos && !ended_) {
    scanned_ = held().size();
    if (scanned_ > kJsonBytes) break;  // parse_json says so
    read_more();
  }
  const std::string_view line = held().substr(0, line_break);
  if (held().empty() && ended_) return false;
  ++line_;
  if (line.find_first_not_of(" \t\r") != line.npos) {
    const std::string where =
        text(stream_ && files_[file_ - 1].path == "-" ? "standard input" : files_[file_ - 1].path, ":", line_);
    const nlohmann::json value = parse_json(line, where);
    if (!value.is_object() || !value.contains(options_.text_field) || !value[options_.text_field].is_string())
      fail(where, ": has no text ", quote(options_.text_field), ", want an object with it (--text-field)");
    put_document(value[options_.text_field].get_ref<const std::string&>());
  }
  drop(std::min(line.size() + 1, held().size()));
  scanned_ = 0;
  return true;
}

// All that is left of a document.
void DocumentReader::put_document(std::string_view text) {
  text.remove_prefix(put_parts(text, true));
  if (!text.empty()) put(text, text.size());
  inside_ = false;
  left_out_ = 0;
  part_size_ = kPartBytes;
}

// Takes parts from the front of a document as long as it is known to be long enough. Returns the bytes taken.
size_t DocumentReader::put_parts(std::string_view text, bool whole) {
  size_t taken = 0;
  while (text.size() - taken > part_size_ + kPartContext) {
    const PartCut cut = find_part_cut(*tokenizer_, text.substr(taken), part_size_);
    if (cut.end == 0) {
      part_size_ *= 2;
      continue;
    }
    put(text.substr(taken, cut.end), cut.end);
    left_out_ = cut.next - cut.end;
    taken += cut.next;
    part_size_ = kPartBytes;
    if (!whole) break;
  }
  return taken;
}

void DocumentReader::put(std::string_view text, uint64_t bytes) {
  if (!inside_) ++documents_;
  ready_.push_back({.text = std::string(text),
                    .bytes = bytes + left_out_,
                    .document = documents_ - 1,
                    .file = file_ - 1,
                    .begins = !inside_});
  inside_ = true;
}

}  // namespace motet
