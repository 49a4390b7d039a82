#include "motet/data/examples.h"

#include <algorithm>
#include <filesystem>

#include "motet/core/error.h"
#include "motet/data/input_stream.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

using nlohmann::ordered_json;

// The lines of a file that are not empty, with their numbers from 1.
template <class F>
void each_line(const std::string& path, const F& f) {
  InputStream stream(path);
  std::string held;
  uint64_t number = 0;
  for (bool more = true; more;) {
    const size_t searched = held.size();  // a long line is searched once
    more = stream.read(held);
    size_t begin = 0;
    for (size_t end = held.find('\n', searched); end != held.npos || (!more && begin < held.size());
         end = held.find('\n', begin)) {
      const size_t last = std::min(end, held.size());
      ++number;
      if (held.find_first_not_of(" \t\r", begin) < last && !f(held.substr(begin, last - begin), number)) return;
      begin = std::min(last + 1, held.size());
    }
    held.erase(0, begin);
  }
}

std::string place(const std::string& path, uint64_t line) { return text(path, ": line ", line); }

ordered_json object_of(const std::string& line, const std::string& where) {
  ordered_json read = ordered_json::parse(line, nullptr, false);
  if (!read.is_object()) fail(where, ": is no JSON object");
  return read;
}

const std::string& string_in(const ordered_json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) fail(where, ": want a string ", quote(key));
  return found->get_ref<const std::string&>();
}

void append(Example& example, std::span<const int32_t> ids, bool learned) {
  example.ids.insert(example.ids.end(), ids.begin(), ids.end());
  example.learned.resize(example.ids.size(), learned);
}

// Appends the tokens of `more`, which stands behind the text that the example has. Those of the whole text where they
// begin with the example's, for some tokenizers put a space before a text; where a token would lie across both, those
// of `more` alone, for a generation begins with the tokens of its prompt.
void append_text(Example& example, const std::string& before, const std::string& more, const Tokenizer& tokenizer,
                 bool learned) {
  const std::vector<int32_t> whole = tokenizer.encode(before + more);
  if (whole.size() >= example.ids.size() && std::equal(example.ids.begin(), example.ids.end(), whole.begin()))
    append(example, std::span(whole).subspan(example.ids.size()), learned);
  else
    append(example, tokenizer.encode(more), learned);
}

Example of_completion(const ordered_json& line, const Tokenizer& tokenizer, const ExampleForm& form,
                      const std::string& where) {
  Example example;
  const std::string &prompt = string_in(line, "prompt", where), &completion = string_in(line, "completion", where);
  append_text(example, "", prompt, tokenizer, false);
  append_text(example, prompt, completion, tokenizer, true);
  if (form.end) append(example, std::span(&*form.end, 1), true);
  return example;
}

Example of_messages(const ordered_json& messages, const Tokenizer& tokenizer, const ExampleForm& form,
                    const std::string& where) {
  if (!form.messages) fail(where, ": has messages and the model has no chat template, want --init with one that has");
  if (!messages.is_array() || messages.empty()) fail(where, ": want a list \"messages\"");
  Example example;
  std::string written;
  ordered_json said = ordered_json::array();
  // Encodes what the template writes behind what is written.
  const auto go_on = [&](bool asks, bool learned) {
    ordered_json variables = form.variables;
    variables["messages"] = said;
    variables["add_generation_prompt"] = asks;
    const std::string whole = form.messages->render(variables);
    if (!whole.starts_with(written))
      fail(where, ": the chat template writes a conversation otherwise when it goes on, so its answers cannot be told");
    append_text(example, written, whole.substr(written.size()), tokenizer, learned);
    written = whole;
  };
  for (const ordered_json& message : messages) {
    if (!message.is_object()) fail(where, ": want messages with \"role\" and \"content\"");
    string_in(message, "content", where);
    const bool answer = string_in(message, "role", where) == "assistant";
    if (answer && !said.empty()) go_on(true, false);
    said.push_back(message);
    if (answer) go_on(false, said.size() > 1);
  }
  return example;
}

}  // namespace

bool is_examples(const std::string& path) {
  std::string name = path;
  for (const char* packed : {".gz", ".zst"})
    if (name.ends_with(packed)) name.resize(name.size() - std::string_view(packed).size());
  std::error_code missing;
  const std::filesystem::file_status status = std::filesystem::status(path, missing);
  if (!name.ends_with(".jsonl") || is_directory(status)) return false;
  if (exists(status) && !is_regular_file(status))
    fail("cannot read ", quote(path), ": no regular file, want one: it is looked at before it is read");
  bool found = false;
  each_line(path, [&](const std::string& line, uint64_t) {
    const ordered_json first = ordered_json::parse(line, nullptr, false);
    found = first.is_object() && !first.contains("text") && (first.contains("prompt") || first.contains("messages"));
    return false;
  });
  return found;
}

std::vector<Example> read_examples(const std::string& path, const Tokenizer& tokenizer, const ExampleForm& form) {
  std::vector<Example> all;
  each_line(path, [&](const std::string& line, uint64_t number) {
    const std::string where = place(path, number);
    const ordered_json read = object_of(line, where);
    try {
      all.push_back(read.contains("messages") ? of_messages(read["messages"], tokenizer, form, where)
                                              : of_completion(read, tokenizer, form, where));
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with(where)) throw;
      fail(where, ": ", error.what());
    }
    return true;
  });
  if (all.empty()) fail(path, ": has no examples");
  return all;
}

size_t num_validation_examples(size_t examples, double fraction, const std::string& where) {
  const auto kept = static_cast<size_t>(static_cast<double>(examples) * fraction);
  if (kept == 0) fail(where, ": has ", examples, " examples, want enough for a validation part of ", fraction);
  return kept;
}

ExampleRows::ExampleRows(const std::vector<Example>& examples, int64_t context, const std::string& where)
    : context_(static_cast<uint64_t>(context)), tokens_({}) {
  std::vector<int32_t> ids;
  std::vector<uint64_t> starts;
  const auto fill_up = [&] {
    if (ids.size() % context_ == 0) return;
    starts.push_back(ids.size());
    ids.resize((ids.size() / context_ + 1) * context_, ids.back());
  };
  for (const Example& example : examples) {
    const size_t length = std::min<size_t>(example.ids.size(), context_);
    uint64_t learned = 0;
    for (size_t i = 1; i < length; ++i) learned += example.learned[i];
    cut_ += length < example.ids.size();
    if (learned == 0) {
      ++(std::ranges::find(example.learned, true) == example.learned.end() ? unanswered_ : without_);
      continue;
    }
    if (ids.size() % context_ + length > context_) fill_up();
    starts.push_back(ids.size());
    learned_.resize(ids.size(), false);
    ids.insert(ids.end(), example.ids.begin(), example.ids.begin() + static_cast<std::ptrdiff_t>(length));
    for (size_t i = 0; i < length; ++i) learned_.push_back(i > 0 && example.learned[i]);
    learned_count_ += learned;
  }
  if (learned_count_ == 0 && unanswered_ == examples.size())
    fail(where, ": no example has an answer, want a completion that is not empty or a message of the role 'assistant' ",
         "behind another");
  if (learned_count_ == 0)
    fail(where, ": no example has an answer that begins among its first ", context, " tokens, want a larger context");
  fill_up();
  ids.push_back(ids.back());  // the target behind the last row
  learned_.resize(ids.size(), false);
  tokens_ = MemoryTokens(std::move(ids), std::move(starts));
}

std::string ExampleRows::remark() const {
  std::string said;
  const auto add = [&](uint64_t count, const std::string& what) {
    if (count > 0) said += text(said.empty() ? "" : "; ", count, " examples ", what);
  };
  add(cut_, text("are longer than ", context_, " tokens and cut"));
  add(without_, "have no answer left and are left out");
  add(unanswered_, "have no answer and are left out");
  return said;
}

void ExampleRows::leave_out(uint64_t begin, std::span<int64_t> targets) const {
  for (size_t i = 0; i < targets.size(); ++i)
    if (!learned_[begin + i]) targets[i] = kLeftOut;
}

}  // namespace motet
