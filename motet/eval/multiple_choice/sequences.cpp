#include "motet/eval/multiple_choice/sequences.h"

#include <algorithm>

#include "motet/core/error.h"

namespace motet {
namespace {

ScoredSequence sequence_of(std::string context, std::string ending, const Tokenizer& tokenizer,
                           std::optional<int64_t> first) {
  ScoredSequence s;
  const auto append = [&](const std::string& text) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    s.tokens.insert(s.tokens.end(), ids.begin(), ids.end());
  };
  if (context.empty()) {
    if (first) s.tokens.push_back(*first);
    append(ending);
    s.scored = s.inputs();
    return s;
  }
  const size_t end = context.find_last_not_of(" \t\r\n");
  const size_t kept = end == context.npos ? 0 : end + 1;
  ending = context.substr(kept) + ending;
  context.resize(kept);
  append(context + ending);
  const auto before = static_cast<int64_t>(tokenizer.encode(context).size());
  // Where a merge takes in the context's last token, that token is scored; at least one always is.
  s.scored = std::clamp<int64_t>(s.inputs() + 1 - before, 1, std::max<int64_t>(s.inputs(), 1));
  return s;
}

}  // namespace

ScoredItem scored_item(const Question& q, const Tokenizer& tokenizer, std::optional<int64_t> first, int64_t context,
                       const std::string& where) {
  ScoredItem out{.gold = q.gold};
  for (size_t i = 0; i < q.choices(); ++i) {
    ScoredSequence s = sequence_of(q.context(i), " " + q.ending(i), tokenizer, first);
    if (s.inputs() < 1 || s.scored < 1) fail(where, ": ending ", i, " has one token and nothing before it");
    if (s.scored > context)
      fail(where, ": ending ", i, " has ", s.scored, " tokens, want at most the context of ", context);
    if (s.inputs() > context) {
      s.tokens.erase(s.tokens.begin(), s.tokens.end() - context - 1);
      out.cut = true;
    }
    out.choices.push_back(std::move(s));
    out.bytes.push_back(static_cast<int64_t>(q.ending(i).size()));
  }
  return out;
}

int64_t shared_inputs(const ScoredItem& item) {
  const ScoredSequence& first = item.choices.front();
  if (item.choices.size() == 1) return 0;
  int64_t shared = first.inputs() - first.scored;
  for (const ScoredSequence& other : item.choices) {
    shared = std::min(shared, other.inputs() - other.scored);
    const auto differ = std::mismatch(first.tokens.begin(), first.tokens.begin() + shared, other.tokens.begin()).first;
    shared = differ - first.tokens.begin();
  }
  return shared;
}

}  // namespace motet
