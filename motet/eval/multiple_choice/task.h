#pragma once
#include <string>
#include <string_view>
#include <vector>

// Questions with several endings, and the tasks that such files are of.
namespace motet {

/// One question: its text and the endings of which `gold` is right. One context stands for all endings; several, one
/// for each, have one ending in common (WinoGrande).
struct Question {
  std::vector<std::string> contexts, endings;
  size_t gold = 0;

  size_t choices() const { return std::max(contexts.size(), endings.size()); }
  const std::string& context(size_t choice) const { return contexts[contexts.size() == 1 ? 0 : choice]; }
  const std::string& ending(size_t choice) const { return endings[endings.size() == 1 ? 0 : choice]; }
};

/// How the items of a file are written.
enum class QuestionForm {
  choices,   // {"query": ..., "choices": [...], "gold": 0} a line
  contexts,  // {"context_options": [...], "continuation": ..., "gold": 0} a line
  ending,    // {"context": ..., "continuation": ...} a line
  pair,      // {"sentence_good": ..., "sentence_bad": ...} a line
  lines,     // six lines an item: the context, the number of the right ending, four endings
};

/// A row of the table of tasks: form of the file and convention of the prompt.
struct ChoiceTask {
  std::string name, summary;
  QuestionForm form;
  std::string after = {};   // stands between query and ending; a blank follows
  bool by_length = true;    // the endings differ in length, so accuracy by length means something
  bool one_ending = false;  // there is nothing to choose from: right when each token is the likeliest
};

const std::vector<ChoiceTask>& choice_tasks();

/// The questions of a file's bytes. Throws Error in one line that begins with `where` and the line: no JSON, a member
/// that is missing or of another type, an empty ending, a gold that names no ending, fewer than two endings, no item.
std::vector<Question> read_questions(const ChoiceTask&, std::string_view bytes, const std::string& where);

}  // namespace motet
