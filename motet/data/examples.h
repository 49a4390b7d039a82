// Examples of which the answers alone are learned: lines of JSON with a prompt and its completion, or a conversation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motet/data/tokens.h"
#include "motet/text/chat/template.h"
#include "motet/text/tokenizer.h"

namespace motet {

// How a text is made of an example.
struct ExampleForm {
  std::shared_ptr<const ChatTemplate> messages;                         // null: there is none
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // what it may use beside the messages
  std::optional<int32_t> end;                                           // the token behind a completion
};

// Tokens, and which of them are learned.
struct Example {
  std::vector<int32_t> ids;
  std::vector<bool> learned;
};

// Whether the path is a file of examples: a .jsonl (.gz, .zst) whose first line has "prompt" or "messages" and no
// "text". Throws Error when it cannot be read, or is a pipe, which would give its lines to this look.
bool is_examples(const std::string& path);

// A line with "prompt" and "completion" is the one behind the other and the token that ends it; one with "messages" is
// the conversation as the template writes it. Learned are the completion and its end, and what the template writes of
// each answer of the role "assistant" behind the words that ask for it; not of one that comes first, which nothing asks
// for. The tokens of a prompt are those that a generation would begin with.
// Throws Error that names file and line: no JSON, other fields, no template, a template whose text of a conversation
// does not begin with that of its beginning; and for a file without examples.
std::vector<Example> read_examples(const std::string& path, const Tokenizer&, const ExampleForm&);

// How many of so many examples, the last ones, are for validation. Throws Error that begins with `where` for none.
size_t num_validation_examples(size_t examples, double fraction, const std::string& where);

// Rows of `context` tokens of whole examples, one behind another in their order, filled up with the last token; every
// example is a document. What is longer than a row is cut at its end.
class ExampleRows : public TokenSequence {
 public:
  // Throws Error that begins with `where` when no example has a learned token among its first `context`.
  ExampleRows(const std::vector<Example>& examples, int64_t context, const std::string& where);

  uint64_t size() const override { return tokens_.size(); }
  void read(uint64_t begin, std::span<int64_t> out) const override { tokens_.read(begin, out); }
  std::vector<uint64_t> document_starts(uint64_t begin, uint64_t end) const override {
    return tokens_.document_starts(begin, end);
  }
  uint64_t row_length() const override { return context_; }
  void leave_out(uint64_t begin, std::span<int64_t> targets) const override;

  uint64_t learned() const { return learned_count_; }  // targets in all rows
  uint64_t cut() const { return cut_; }                // examples that did not fit a row
  uint64_t without() const { return without_; }        // left out: nothing of them that is learned fits a row
  uint64_t unanswered() const { return unanswered_; }  // left out: nothing of them is learned
  std::string remark() const;                          // what was cut and left out, in one line; "" for nothing

 private:
  uint64_t context_, learned_count_ = 0, cut_ = 0, without_ = 0, unanswered_ = 0;
  std::vector<bool> learned_;  // as a target: never the first token of an example
  MemoryTokens tokens_;
};

}  // namespace motet
