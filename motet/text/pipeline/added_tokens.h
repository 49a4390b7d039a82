// Tokens that are found in the text itself, before anything else happens to it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "motet/text/pipeline/normalizer.h"

namespace motet {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;                 // left out of decoded text on request
  bool single_word = false;             // only where no word character touches it
  bool lstrip = false, rstrip = false;  // takes the white space beside it
  bool normalized = false;              // is searched in the normalised text
};

// Finds tokens: the leftmost, of those the longest.
class AddedTokenSearch {
 public:
  AddedTokenSearch() = default;
  // Those tokens whose `normalized` is the given one, each as the normalizers write it.
  AddedTokenSearch(const std::vector<AddedToken>& tokens, bool normalized, const Normalizers& normalizers);

  struct Part {
    const AddedToken* token;  // null: text between tokens
    size_t begin, end;
  };

  // Cuts the text; all parts together are the text. Special tokens are text when `special` is false. The tokens given
  // to the constructor must still be alive.
  std::vector<Part> split(std::string_view text, bool special) const;

  bool empty() const { return contents_.empty(); }

 private:
  struct Node {
    std::map<unsigned char, uint32_t> next;
    const AddedToken* token = nullptr;
  };
  const AddedToken* longest(std::string_view text, size_t at, size_t& end) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<bool> first_ = std::vector<bool>(256);
  std::vector<std::string> contents_;
};

}  // namespace motet
