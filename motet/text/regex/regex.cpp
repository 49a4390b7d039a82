#include "motet/text/regex/regex.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/text/regex/program.h"

namespace motet {

// A choice to come back to: continue with `step` at `at`; of a loop, also at each character boundary down to `low`.
struct RegexChoice {
  int step;
  size_t low, at;
  bool lazy;
};

class RegexMatcher {
 public:
  RegexMatcher(const RegexProgram& program, std::string_view text, size_t budget)
      : program_(program), text_(text), budget_(budget) {}

  bool exhausted() const { return budget_ == 0; }

  // The end of the match at `at`, or npos.
  size_t run(int step, size_t at) {
    const size_t floor = choices_.size();
    while (true) {
      if (!advance(step, at)) {
        if (step_is_accept_) return choices_.resize(floor), at;
        if (!back(floor, step, at)) return std::string_view::npos;
      }
    }
  }

 private:
  // One step; false when it fails or is the end.
  bool advance(int& at_step, size_t& at) {
    const RegexStep& step = program_.steps[static_cast<size_t>(at_step)];
    step_is_accept_ = false;
    switch (step.op) {
      case RegexOp::set: {
        if (at == text_.size()) return false;
        const CodePoint c = code_point(text_, at);
        if (!set(step).contains(c.value)) return false;
        at += c.size;
        ++at_step;
        return true;
      }
      case RegexOp::loop:
        return loop(step, at_step, at);
      case RegexOp::split:
        if (step.x_any || can_begin(step, at)) {
          choices_.push_back({step.y, at, at, false});
          at_step = step.x;
        } else {
          at_step = step.y;
        }
        return true;
      case RegexOp::jump:
        at_step = step.x;
        return true;
      case RegexOp::ahead: {
        const size_t end = run(at_step + 1, at);
        step_is_accept_ = false;
        if ((end != std::string_view::npos) == step.negated || exhausted()) return false;
        at_step = step.y;
        return true;
      }
      case RegexOp::behind: {
        const bool found = at > 0 && set(step).contains(code_point(text_, character_before(text_, at)).value);
        ++at_step;
        return found != step.negated;
      }
      case RegexOp::accept:
        step_is_accept_ = true;
        return false;
      case RegexOp::text_begin:
        ++at_step;
        return at == 0;
      case RegexOp::text_end:
        ++at_step;
        return at == text_.size();
      case RegexOp::line_begin:
        ++at_step;
        return at == 0 || (text_[at - 1] == '\n' && at < text_.size());  // no line begins at the end
      case RegexOp::line_end:
        ++at_step;
        return at == text_.size() || text_[at] == '\n';
    }
    return false;
  }

  bool loop(const RegexStep& step, int& at_step, size_t& at) {
    const CharacterSet& wanted = set(step);
    uint32_t count = 0;
    size_t low = at;
    const uint32_t most = step.kind == RepeatKind::lazy ? step.least : step.most;
    while (count < most && at < text_.size()) {
      const CodePoint c = code_point(text_, at);
      if (!wanted.contains(c.value)) break;
      at += c.size;
      if (++count == step.least) low = at;
    }
    budget_ -= std::min<size_t>(budget_, count / 2);
    if (count < step.least || exhausted()) return false;
    if (step.kind == RepeatKind::lazy) {
      if (step.least < step.most) choices_.push_back({at_step, count, at, true});
    } else if (step.kind == RepeatKind::greedy && at > low) {
      choices_.push_back({at_step + 1, low, at, false});
    }
    ++at_step;
    return true;
  }

  bool back(size_t floor, int& step, size_t& at) {
    while (choices_.size() > floor) {
      if (budget_ == 0 || --budget_ == 0) return false;
      RegexChoice& choice = choices_.back();
      if (choice.lazy) {  // one character more
        const RegexStep& loop = program_.steps[static_cast<size_t>(choice.step)];
        if (choice.low < loop.most && choice.at < text_.size()) {
          const CodePoint c = code_point(text_, choice.at);
          if (set(loop).contains(c.value)) {
            choice.at += c.size;
            ++choice.low;
            step = choice.step + 1;
            at = choice.at;
            return true;
          }
        }
        choices_.pop_back();
        continue;
      }
      step = choice.step;
      if (choice.low == choice.at) {  // a split
        at = choice.at;
        choices_.pop_back();
        return true;
      }
      at = choice.at = character_before(text_, choice.at);
      if (choice.at == choice.low) choices_.pop_back();
      return true;
    }
    return false;
  }

  const CharacterSet& set(const RegexStep& step) const { return program_.sets[static_cast<size_t>(step.set)]; }

  bool can_begin(const RegexStep& split, size_t at) const {
    if (at == text_.size()) return false;
    const auto byte = static_cast<unsigned char>(text_[at]);
    return split.x_first[byte < 128 ? byte : 128];
  }

  const RegexProgram& program_;
  std::string_view text_;
  size_t budget_;
  bool step_is_accept_ = false;
  std::vector<RegexChoice> choices_;
};

namespace {

// With which bytes a match from `from` on can begin; `any` when it can match nothing.
void first_bytes(const RegexProgram& program, int from, std::bitset<129>& first, bool& any) {
  std::vector<int> open = {from};
  std::vector<bool> seen(program.steps.size());
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    if (seen[static_cast<size_t>(at)]) continue;
    seen[static_cast<size_t>(at)] = true;
    const RegexStep& step = program.steps[static_cast<size_t>(at)];
    if (step.op == RegexOp::set || step.op == RegexOp::loop) {
      const CharacterSet& set = program.sets[static_cast<size_t>(step.set)];
      for (size_t c = 0; c < 128; ++c) first[c] = first[c] || set.ascii[c];
      first[128] = true;
      if (step.op == RegexOp::loop && step.least == 0) open.push_back(at + 1);
    } else if (step.op == RegexOp::split) {
      open.push_back(step.x);
      open.push_back(step.y);
    } else if (step.op == RegexOp::jump) {
      open.push_back(step.x);
    } else {
      any = true;  // assertions and the end: no byte is excluded
    }
  }
}

}  // namespace

Regex::Regex(std::string_view pattern, const std::string& where) : pattern_(pattern) {
  RegexProgram program = compile_regex(pattern, where);
  for (RegexStep& step : program.steps) {
    if (step.op == RegexOp::split) first_bytes(program, step.x, step.x_first, step.x_any);
  }
  program_ = std::make_shared<const RegexProgram>(std::move(program));
}

RegexSearch::RegexSearch(const Regex& regex, std::string_view text)
    : regex_(regex),
      text_(text),
      matcher_(std::make_unique<RegexMatcher>(regex.program(), text, 1'000'000 + 256 * text.size())) {}

RegexSearch::~RegexSearch() = default;

std::optional<RegexSearch::Found> RegexSearch::next() {
  while (at_ <= text_.size() && !text_.empty()) {
    const size_t begin = at_;
    const size_t end = matcher_->run(0, begin);
    if (matcher_->exhausted()) fail("the pattern ", quote(regex_.pattern()), " takes too many steps on this text");
    if (end != std::string_view::npos && (end > begin || begin != last_end_)) {
      at_ = last_end_ = end;
      return Found{begin, end};
    }
    at_ += begin < text_.size() ? code_point(text_, begin).size : 1;
  }
  return std::nullopt;
}

}  // namespace motet
