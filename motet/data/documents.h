// Documents out of files: text, lines of JSON, folders of them, packed or not, standard input.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motet/data/input_stream.h"
#include "motet/text/tokenizer.h"

namespace motet {

struct DocumentOptions {
  std::string text_field = "text";       // of each line of .jsonl
  std::string format = "auto";           // "txt" or "jsonl"; "auto": by the file's name, txt for standard input
  std::optional<std::string> separator;  // the line between two documents of a text; "": blank lines
};

// A file to read.
struct InputFile {
  std::string path;    // "-": standard input
  uint64_t bytes = 0;  // on the disk; 0 for standard input
  bool validation = false;
};

// All *.txt, *.jsonl and their .gz and .zst below the folder, sorted, hidden ones left out. Throws Error for a folder
// without such files.
std::vector<std::string> files_below(const std::string& folder);

// The files that the paths stand for, a folder for its files_below. Throws Error for a path that is missing, UsageError
// for standard input given twice.
std::vector<InputFile> find_inputs(const std::vector<std::string>& paths, bool validation);

// A document, or a part of a long one.
struct TextPart {
  std::string text;
  uint64_t bytes = 0;     // of the document that it stands for: the text, and a space left out before it
  uint64_t document = 0;  // counts from 0 over all inputs; empty documents do not count
  uint64_t file = 0;
  bool begins = false;  // the document
};

// What a file held, known once it has been read.
struct InputSummary {
  uint64_t text_bytes = 0, text_hash = 0;  // unpacked
};

// Reads one file after the other. Parts depend on the content and the tokenizer alone.
class DocumentReader {
 public:
  DocumentReader(std::vector<InputFile> files, DocumentOptions options, std::shared_ptr<const Tokenizer> tokenizer);
  ~DocumentReader();

  // The next part; nothing at the end. Throws Error naming the file, and the line for JSON: not readable, a zero byte
  // in a text, a line that is no object with a string of the field's name; Interrupted.
  std::optional<TextPart> next();
  // From another thread: next() waits for no more bytes, and throws Interrupted where it would.
  void stop() { stopped_ = true; }

  uint64_t packed_bytes() const { return finished_bytes_ + (stream_ ? stream_->packed_bytes() : 0); }  // of all files
  const std::vector<InputSummary>& summaries() const { return summaries_; }                            // of read files

 private:
  bool open_next();
  void read_more();
  bool take_text();
  bool take_line();
  bool text_ends(size_t& end, size_t& next);
  std::string_view held() const { return std::string_view(buffer_).substr(begin_); }
  void drop(size_t bytes);
  void put_document(std::string_view text);
  size_t put_parts(std::string_view text, bool whole);
  void put(std::string_view text, uint64_t bytes);

  std::vector<InputFile> files_;
  DocumentOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::atomic<bool> stopped_ = false;
  size_t file_ = 0;  // the next to open
  std::unique_ptr<InputStream> stream_;
  bool lines_ = false, ended_ = false;
  std::string buffer_;
  size_t begin_ = 0;    // of what is not yet taken from the buffer
  size_t scanned_ = 0;  // bytes behind begin_ that hold no end of a document
  uint64_t line_ = 0, documents_ = 0, finished_bytes_ = 0;
  bool inside_ = false;       // the next part continues a document
  bool inside_line_ = false;  // what is not yet taken begins in the middle of a line
  size_t part_size_ = 0;      // at which the next cut is looked for
  uint64_t left_out_ = 0;     // bytes before the next part
  std::deque<TextPart> ready_;
  std::vector<InputSummary> summaries_;
};

}  // namespace motet
