// Regular expressions as tokenizer files write them, on valid UTF-8: alternatives in order, groups, sets with
// \p{..} \s \d \w, greedy, lazy and possessive repeats, look-ahead, one-character look-behind, (?i:..).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace motet {

struct RegexProgram;
class RegexMatcher;

class Regex {
 public:
  // Throws Error in one line that begins with `where` and names what is not understood.
  explicit Regex(std::string_view pattern, const std::string& where = "regular expression");

  const std::string& pattern() const { return pattern_; }
  const RegexProgram& program() const { return *program_; }

 private:
  std::string pattern_;
  std::shared_ptr<const RegexProgram> program_;
};

// The matches in a text from left to right. Regex and text must outlive the object.
class RegexSearch {
 public:
  RegexSearch(const Regex& regex, std::string_view text);
  ~RegexSearch();
  RegexSearch(const RegexSearch&) = delete;
  RegexSearch& operator=(const RegexSearch&) = delete;

  struct Found {
    size_t begin, end;
  };

  // The next match; an empty one where no match ends, and none of an empty text. Throws Error when all of them together
  // take more than a million steps and 256 for each byte of the text.
  std::optional<Found> next();

 private:
  const Regex& regex_;
  std::string_view text_;
  size_t at_ = 0, last_end_ = SIZE_MAX;
  std::unique_ptr<RegexMatcher> matcher_;
};

}  // namespace motet
