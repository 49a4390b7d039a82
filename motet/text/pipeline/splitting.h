// Cutting a piece at the matches of a pattern.
#pragma once

#include "motet/text/pipeline/pre_tokenizer.h"

namespace motet {

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// "Isolated" and so on, as tokenizer.json writes them. Throws Error for another name.
SplitBehavior split_behavior(const std::string& name, const std::string& where);

// Collects the matches of one piece from left to right and gives the parts on as the behaviour says.
class Splitter {
 public:
  Splitter(const TextPiece& piece, SplitBehavior behavior, bool invert, PieceSink& out)
      : piece_(piece), behavior_(behavior), invert_(invert), out_(out) {}

  // A match at begin .. end, which may be nothing, behind the one before.
  void match(size_t begin, size_t end) {
    if (begin > at_) add(at_, begin, false);
    add(begin, end, true);
    at_ = end;
  }
  void finish();

 private:
  void add(size_t begin, size_t end, bool match);
  void emit(size_t begin, size_t end) {
    if (end > begin) out_.piece(piece_.part(begin, end));
  }

  const TextPiece& piece_;
  SplitBehavior behavior_;
  bool invert_;
  PieceSink& out_;
  size_t at_ = 0;
  // The part that may still grow.
  size_t begin_ = 0, end_ = 0;
  bool previous_ = false;
};

}  // namespace motet
