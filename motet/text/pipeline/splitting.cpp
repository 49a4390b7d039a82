#include "motet/text/pipeline/splitting.h"

#include <cctype>

#include "motet/core/error.h"

namespace motet {

SplitBehavior split_behavior(const std::string& name, const std::string& where) {
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  fail(where, ": ",
       unknown_name("behavior", name, {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}));
}

void Splitter::add(size_t begin, size_t end, bool match) {
  if (invert_) match = !match;
  switch (behavior_) {
    case SplitBehavior::removed:
      if (!match) emit(begin, end);
      return;
    case SplitBehavior::isolated:
      emit(begin, end);
      return;
    case SplitBehavior::contiguous:
      if (match == previous_ || end_ == begin_) {
        if (end_ == begin_) begin_ = begin;
        end_ = end;
      } else {
        emit(begin_, end_);
        begin_ = begin;
        end_ = end;
      }
      break;
    case SplitBehavior::merged_with_previous:
      if (!(match && !previous_ && end_ > begin_)) {
        emit(begin_, end_);
        begin_ = begin;
      }
      end_ = end;
      break;
    case SplitBehavior::merged_with_next:  // a match waits for what follows
      if (!(previous_ && !match)) {
        emit(begin_, end_);
        begin_ = begin;
      }
      end_ = end;
      break;
  }
  previous_ = match;
}

void Splitter::finish() {
  if (at_ < piece_.text.size()) add(at_, piece_.text.size(), false);
  emit(begin_, end_);
}

}  // namespace motet
