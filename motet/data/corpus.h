// Raw text from files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace motet {

struct Corpus {
  std::string text;
  std::string name;  // for tables: "tiny Shakespeare (built-in)", a file's name, or "3 files, the first is a.txt"
};

// The files behind each other, a line break between two where the first does not end in one; a folder stands for its
// files_below (data/documents.h); no path stands for the built-in text. Throws Error in one line that names the path:
// missing, not readable, empty, binary (holds a zero byte), lines of JSON or packed, in a folder too.
Corpus load_corpus(const std::vector<std::string>& paths);

// "lines of JSON" or "a packed file", by the name of a file that is there; "" of plain text. Their bytes are not what
// is to be learned.
std::string other_than_text(const std::string& file);

// Two views into one text.
struct Split {
  std::string_view train;
  std::string_view validation;  // the last part
};

// `fraction` of the bytes for validation, moved back to the beginning of a UTF-8 character (by 3 bytes at most). Throws
// UsageError when the fraction is not inside 0 <= fraction < 1.
Split split_text(std::string_view text, double fraction);

}  // namespace motet
