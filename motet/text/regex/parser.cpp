#include <algorithm>
#include <cctype>
#include <utility>

#include "motet/core/error.h"
#include "motet/text/regex/set_reader.h"

namespace motet {
namespace {

constexpr size_t kMostSteps = 20000;
constexpr uint32_t kMostRepeats = 1000;

// Recursive descent that emits steps as it reads.
class Parser : public SetReader {
 public:
  using SetReader::SetReader;

  RegexProgram run() {
    alternatives(0);
    if (at_ < pattern_.size()) stop("has a ')' too many");
    emit({.op = RegexOp::accept});
    for (CharacterSet& set : program_.sets) set.close();
    return std::move(program_);
  }

 private:
  int here() const { return static_cast<int>(program_.steps.size()); }
  int emit(RegexStep step) {
    if (program_.steps.size() == kMostSteps) stop("is too long once its repeats are written out");
    program_.steps.push_back(step);
    return here() - 1;
  }
  int add_set(CharacterSet set) {
    program_.sets.push_back(std::move(set));
    return static_cast<int>(program_.sets.size()) - 1;
  }

  void alternatives(int depth) {
    if (depth > kDeepest) stop("is too deep");
    const bool outer_case = ignore_case_;
    std::vector<int> ends;
    while (true) {
      const int begin = here();
      sequence(depth);
      if (!take("|")) break;
      ends.push_back(emit({.op = RegexOp::jump}));
      insert(begin, {.op = RegexOp::split, .x = begin + 1, .y = here() + 1});
      ends.back() += 1;
    }
    for (const int end : ends) program_.steps[static_cast<size_t>(end)].x = here();
    ignore_case_ = outer_case;
  }

  // Steps that follow move by one, and so do the targets among them; what led to the place leads to the new step.
  void insert(int place, RegexStep step) {
    for (int at = 0; at < here(); ++at) {
      RegexStep& other = program_.steps[static_cast<size_t>(at)];
      other.x += at < place ? other.x > place : other.x >= place;
      other.y += at < place ? other.y > place : other.y >= place;
    }
    if (program_.steps.size() == kMostSteps) stop("is too long once its repeats are written out");
    program_.steps.insert(program_.steps.begin() + place, step);
  }

  void sequence(int depth) {
    while (more() && !is("|") && !is(")")) {
      const int begin = here();
      const bool single = atom(depth);
      repeat(begin, single);
    }
  }

  // True when the atom is one set.
  bool atom(int depth) {
    if (take("(")) return group(depth);
    if (take("^")) return emit({.op = RegexOp::line_begin}), false;
    if (take("$")) return emit({.op = RegexOp::line_end}), false;
    if (take("\\A")) return emit({.op = RegexOp::text_begin}), false;
    if (take("\\z")) return emit({.op = RegexOp::text_end}), false;
    for (const char* sign : {"*", "+", "?"}) {
      if (is(sign)) stop("repeats nothing");
    }
    emit({.op = RegexOp::set, .set = add_set(one_set())});
    return true;
  }

  bool group(int depth) {
    if (take("?:")) return close(depth);
    if (take("?i:")) {
      const bool outer = std::exchange(ignore_case_, true);
      close(depth);
      ignore_case_ = outer;
      return false;
    }
    if (take("?i)")) {
      ignore_case_ = true;  // until the enclosing group ends
      return false;
    }
    if (is("?=") || is("?!")) {
      const bool negated = pattern_[at_ + 1] == '!';
      at_ += 2;
      const int look = emit({.op = RegexOp::ahead, .negated = negated});
      close(depth);
      emit({.op = RegexOp::accept});
      program_.steps[static_cast<size_t>(look)].y = here();
      return false;
    }
    if (is("?<=") || is("?<!")) {
      const bool negated = pattern_[at_ + 2] == '!';
      at_ += 3;
      const int set = add_set(one_set());
      if (!take(")")) stop("looks behind at more than one character");
      emit({.op = RegexOp::behind, .negated = negated, .set = set});
      return false;
    }
    if (is("?")) stop("has an unsupported group " + quote(pattern_.substr(at_ - 1, 4)));
    return close(depth);
  }

  bool close(int depth) {
    alternatives(depth + 1);
    if (!take(")")) stop("lacks a ')'");
    return false;
  }

  // {n} {n,} {n,m}; false when there is none.
  bool braces(uint32_t& least, uint32_t& most) {
    const size_t begin = at_;
    const auto number = [&](uint32_t& value) {
      const size_t first = at_;
      uint32_t out = 0;
      while (more() && std::isdigit(static_cast<unsigned char>(pattern_[at_]))) {
        out = std::min(out * 10 + static_cast<uint32_t>(pattern_[at_++] - '0'), kMostRepeats + 1);
      }
      if (at_ == first) return false;
      value = out;
      return true;
    };
    if (!take("{") || (!number(least) && !is(","))) return at_ = begin, false;
    most = least;
    if (take(",")) {
      most = UINT32_MAX;
      number(most);
    }
    if (!take("}")) return at_ = begin, false;
    if (least > kMostRepeats || (most != UINT32_MAX && most > kMostRepeats)) stop("repeats more than 1000 times");
    if (most < least) stop("repeats at most fewer times than at least");
    return true;
  }

  void repeat(int begin, bool single) {
    while (more()) {
      uint32_t least = 0, most = UINT32_MAX;
      bool from_braces = false;
      if (take("+")) {
        least = 1;
      } else if (take("?")) {
        most = 1;
      } else if (!take("*")) {
        if (!braces(least, most)) return;
        from_braces = true;
      }
      RepeatKind kind = RepeatKind::greedy;
      if (take("?")) kind = RepeatKind::lazy;
      if (!from_braces && take("+")) kind = RepeatKind::possessive;
      if (here() == begin) stop("repeats nothing");
      if (single) {
        RegexStep& step = program_.steps.back();
        step = {.op = RegexOp::loop, .kind = kind, .set = step.set, .least = least, .most = most};
        single = false;
      } else {
        repeat_group(begin, least, most, kind);
      }
    }
  }

  void repeat_group(int begin, uint32_t least, uint32_t most, RepeatKind kind) {
    if (kind == RepeatKind::possessive) stop("has an unsupported possessive repeat of a group");
    const std::vector<RegexStep> body(program_.steps.begin() + begin, program_.steps.end());
    program_.steps.resize(static_cast<size_t>(begin));
    const auto append_body = [&] {
      const int shift = here() - begin;
      for (RegexStep step : body) {
        step.x += shift;
        step.y += shift;
        emit(step);
      }
    };
    const auto split = [&] { return emit({.op = RegexOp::split}); };
    const auto aim = [&](int at, int inside, int outside) {
      RegexStep& step = program_.steps[static_cast<size_t>(at)];
      step.x = kind == RepeatKind::lazy ? outside : inside;
      step.y = kind == RepeatKind::lazy ? inside : outside;
    };
    for (uint32_t i = 0; i < least; ++i) append_body();
    if (most == UINT32_MAX) {
      const int at = split();
      append_body();
      if (can_be_empty(at + 1)) stop("repeats a group that can be empty");
      emit({.op = RegexOp::jump, .x = at});
      aim(at, at + 1, here());
      return;
    }
    std::vector<int> splits;
    for (uint32_t i = least; i < most; ++i) {
      splits.push_back(split());
      append_body();
    }
    for (const int at : splits) aim(at, at + 1, here());
  }

  // Whether the end of the program can be reached from a step without a character.
  bool can_be_empty(int from) const {
    std::vector<int> open = {from};
    std::vector<bool> seen(program_.steps.size() + 1);
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      if (at >= here()) return true;
      if (seen[static_cast<size_t>(at)]) continue;
      seen[static_cast<size_t>(at)] = true;
      const RegexStep& step = program_.steps[static_cast<size_t>(at)];
      switch (step.op) {
        case RegexOp::set:
          break;
        case RegexOp::loop:
          if (step.least == 0) open.push_back(at + 1);
          break;
        case RegexOp::split:
          open.push_back(step.x);
          open.push_back(step.y);
          break;
        case RegexOp::jump:
          open.push_back(step.x);
          break;
        case RegexOp::ahead:
          open.push_back(step.y);
          break;
        default:
          open.push_back(at + 1);
      }
    }
    return false;
  }

  RegexProgram program_;
};

}  // namespace

RegexProgram compile_regex(std::string_view pattern, const std::string& where) { return Parser(pattern, where).run(); }

}  // namespace motet
