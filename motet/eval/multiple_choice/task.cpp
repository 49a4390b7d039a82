#include "motet/eval/multiple_choice/task.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr size_t kMostEndings = 1000;
constexpr size_t kLinesOfItem = 6;

// One item of a file, and where it stands.
struct Record {
  const json& value;
  const std::string& where;

  const json& member(const char* key) const {
    if (!value.contains(key)) fail(where, ": the member ", key, " is missing");
    return value[key];
  }
  std::string word(const char* key) const {
    if (!member(key).is_string()) fail(where, ": ", key, " is ", quote(value[key].dump()), ", want a text");
    return value[key].get<std::string>();
  }
  std::vector<std::string> words(const char* key) const {
    const json& list = member(key);
    if (!list.is_array() || list.size() < 2 || list.size() > kMostEndings)
      fail(where, ": ", key, " is ", quote(list.dump()), ", want a list of 2 to ", kMostEndings, " texts");
    std::vector<std::string> out;
    for (const json& one : list) {
      if (!one.is_string()) fail(where, ": ", key, " has ", quote(one.dump()), ", want texts");
      out.push_back(one.get<std::string>());
    }
    return out;
  }
  size_t index(const char* key, size_t count) const {
    const json& number = member(key);
    if (!number.is_number_integer() || number < 0 || number >= count)
      fail(where, ": ", key, " is ", quote(number.dump()), ", want 0 to ", count - 1);
    return number.get<size_t>();
  }
};

Question question_of(const ChoiceTask& task, const Record& record) {
  Question q;
  switch (task.form) {
    case QuestionForm::choices:
      q.contexts = {record.word("query") + task.after};
      q.endings = record.words("choices");
      q.gold = record.index("gold", q.endings.size());
      break;
    case QuestionForm::contexts:
      q.contexts = record.words("context_options");
      q.endings = {record.word("continuation")};
      q.gold = record.index("gold", q.contexts.size());
      break;
    case QuestionForm::ending:
      q.contexts = {record.word("context")};
      q.endings = {record.word("continuation")};
      break;
    case QuestionForm::pair:
      q.contexts = {""};
      q.endings = {record.word("sentence_good"), record.word("sentence_bad")};
      break;
    case QuestionForm::lines:
      break;  // no JSON
  }
  return q;
}

void check_endings(const Question& q, const std::string& where) {
  for (const std::string& ending : q.endings)
    if (ending.empty()) fail(where, ": an ending is empty");
}

std::vector<std::string_view> lines_of(std::string_view bytes) {
  std::vector<std::string_view> out;
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    out.push_back(bytes.substr(0, end));
    if (out.back().ends_with('\r')) out.back().remove_suffix(1);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return out;
}

std::vector<Question> questions_in_lines(std::string_view bytes, const std::string& where) {
  const std::vector<std::string_view> lines = lines_of(bytes);
  if (lines.size() % kLinesOfItem != 0)
    fail(where, ": has ", lines.size(), " lines, want ", kLinesOfItem, " for each item");
  std::vector<Question> out;
  for (size_t at = 0; at < lines.size(); at += kLinesOfItem) {
    const std::string_view gold = lines[at + 1];
    if (gold.size() != 1 || gold[0] < '0' || gold[0] > '3')
      fail(where, ":", at + 2, ": ", quote(gold), " is no number of an ending, want 0 to 3");
    Question q{.contexts = {std::string(lines[at])}, .gold = static_cast<size_t>(gold[0] - '0')};
    for (size_t i = 2; i < kLinesOfItem; ++i) q.endings.emplace_back(lines[at + i]);
    check_endings(q, text(where, ":", at + 1));
    out.push_back(q);
  }
  return out;
}

std::vector<Question> questions_in_json(const ChoiceTask& task, std::string_view bytes, const std::string& where) {
  std::vector<Question> out;
  size_t number = 0;
  for (const std::string_view line : lines_of(bytes)) {
    const std::string place = text(where, ":", ++number);
    if (line.find_first_not_of(" \t") == line.npos) continue;
    const json value = parse_json(line, place);
    if (!value.is_object()) fail(place, ": ", quote(line), " is no object");
    out.push_back(question_of(task, {value, place}));
    check_endings(out.back(), place);
  }
  return out;
}

}  // namespace

const std::vector<ChoiceTask>& choice_tasks() {
  using enum QuestionForm;
  static const std::vector<ChoiceTask> all{
      {"arc_easy", "school science, easy; choices", choices, "\nAnswer:"},
      {"arc_challenge", "school science, hard; choices", choices, "\nAnswer:"},
      {"hellaswag", "what happens next; six lines an item", lines},
      {"lambada", "the last word of a passage", ending, "", false, true},
      {"piqa", "everyday physics; choices", choices, "Answer:"},
      {"winogrande", "whom a pronoun means; contexts with one ending", contexts, "", false},
      {"blimp", "which of two sentences is grammatical", pair, "", false},
      {"openbook_qa", "facts of science; choices", choices},
      {"copa", "cause or effect; choices", choices},
      {"multiple-choice", "any file of {\"query\", \"choices\", \"gold\"} a line", choices},
  };
  return all;
}

std::vector<Question> read_questions(const ChoiceTask& task, std::string_view bytes, const std::string& where) {
  if (bytes.starts_with("BZh") || bytes.starts_with("PK\3\4") || bytes.starts_with("\x1f\x8b"))
    fail(where, ": is compressed, want the unpacked file");
  if (const size_t at = utf8_invalid_at(bytes); at != bytes.npos) fail(where, ": no UTF-8 at offset ", at);
  auto out =
      task.form == QuestionForm::lines ? questions_in_lines(bytes, where) : questions_in_json(task, bytes, where);
  if (out.empty()) fail(where, ": has no item");
  return out;
}

}  // namespace motet
