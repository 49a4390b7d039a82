#include "motet/data/examples.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/data/batches.h"

namespace motet {
namespace {

using testing::message_of;

class Examples : public ::testing::Test {
 protected:
  std::string file(const std::string& lines, const char* name = "a.jsonl") {
    const std::string path = (folder_.path() / name).string();
    std::ofstream(path) << lines;
    return path;
  }
  std::vector<Example> read(const std::string& lines) { return read_examples(file(lines), bytes_, form_); }
  // The text, with what is learned between < and >.
  std::string shown(const Example& example) {
    std::string all;
    for (size_t i = 0; i < example.ids.size(); ++i) {
      const bool before = i > 0 && example.learned[i - 1];
      if (example.learned[i] != before) all += example.learned[i] ? '<' : '>';
      all += static_cast<char>(example.ids[i]);
    }
    return all + (!example.learned.empty() && example.learned.back() ? ">" : "");
  }

  testing::TemporaryFolder folder_;
  ByteTokenizer bytes_;
  ExampleForm form_{.messages = std::make_shared<ChatTemplate>(
                        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
                        "{% if add_generation_prompt %}[assistant]{% endif %}"),
                    .variables = {{"bos_token", "^"}, {"eos_token", "$"}},
                    .end = '$'};
};

TEST_F(Examples, ACompletionAndItsEndAreLearned) {
  const auto all = read("{\"prompt\": \"2+2=\", \"completion\": \"4\"}\n\n{\"prompt\": \"\", \"completion\": \"ab\"}");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(shown(all[0]), "2+2=<4$>");
  EXPECT_EQ(shown(all[1]), "<ab$>");
  form_.end = std::nullopt;
  EXPECT_EQ(shown(read("{\"prompt\": \"a\", \"completion\": \"b\"}\n")[0]), "a<b>");
}

TEST_F(Examples, EveryAnswerOfAConversationIsLearned) {
  const std::string line =
      R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", )"
      R"("content": "A"}, {"role": "user", "content": "v"}, {"role": "assistant", "content": "B"}]})";
  EXPECT_EQ(shown(read(line)[0]), "^[system]s$[user]u$[assistant]<A$>[user]v$[assistant]<B$>");
}

TEST_F(Examples, AnAnswerThatNothingAsksForIsNotLearned) {
  const std::string line = R"({"messages": [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "u"}, )"
                           R"({"role": "assistant", "content": "A"}]})";
  EXPECT_EQ(shown(read(line)[0]), "^[assistant]Hi$[user]u$[assistant]<A$>");
}

// Puts _ before a text, as Llama 2 does, and knows "=4" as one token, #.
class PrefixTokenizer : public ByteTokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text) const override {
    std::string whole = "_" + std::string(text);
    if (const size_t at = whole.find("=4"); at != whole.npos) whole.replace(at, 2, "#");
    return {whole.begin(), whole.end()};
  }
};

TEST_F(Examples, APromptHasTheTokensOfAGenerationAndAnAnswerNoPrefix) {
  const PrefixTokenizer prefix;
  const auto read_one = [&](const std::string& line) { return shown(read_examples(file(line), prefix, form_).at(0)); };
  EXPECT_EQ(read_one(R"({"prompt": "a:", "completion": "b"})"), "_a:<b$>");
  EXPECT_EQ(read_one(R"({"prompt": "2+2=", "completion": "4"})"), "_2+2=<_4$>") << "a token would lie across both";
  EXPECT_EQ(read_one(R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "A"}]})"),
            "_^[user]u$[assistant]<A$>");
}

TEST_F(Examples, MistakesNameFileAndLine) {
  const auto wrong = [&](const std::string& line) {
    const std::string good = "{\"prompt\": \"a\", \"completion\": \"b\"}\n", path = file(good + line);
    const std::string message = message_of<Error>([&] { read_examples(path, bytes_, form_); });
    EXPECT_TRUE(message.starts_with(path + ": line 2: ")) << message;
    return message.substr(std::min(message.size(), path.size() + 10));
  };
  EXPECT_EQ(wrong("{"), "is no JSON object");
  EXPECT_EQ(wrong("[1]"), "is no JSON object");
  EXPECT_EQ(wrong("{\"prompt\": \"a\"}"), "want a string 'completion'");
  EXPECT_EQ(wrong("{\"prompt\": 1, \"completion\": \"b\"}"), "want a string 'prompt'");
  EXPECT_EQ(wrong("{\"messages\": []}"), "want a list \"messages\"");
  EXPECT_EQ(wrong("{\"messages\": [{\"role\": \"user\"}]}"), "want a string 'content'");
  form_.messages = std::make_shared<ChatTemplate>("{{ messages | length }}{{ messages[0].content }}");
  EXPECT_EQ(wrong(R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "A"}]})"),
            "the chat template writes a conversation otherwise when it goes on, so its answers cannot be told");
  form_.messages = nullptr;
  EXPECT_EQ(wrong("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"),
            "has messages and the model has no chat template, want --init with one that has");
  EXPECT_EQ(message_of<Error>([&] { read_examples(file("\n \n"), bytes_, form_); }), file("") + ": has no examples");
}

TEST_F(Examples, AFileOfExamplesIsToldByItsFirstLine) {
  EXPECT_TRUE(is_examples(file("{\"prompt\": \"a\", \"completion\": \"b\"}\n")));
  EXPECT_TRUE(is_examples(file("\n{\"messages\": []}")));
  EXPECT_FALSE(is_examples(file("{\"text\": \"a\"}\n")));
  EXPECT_FALSE(is_examples(file("")));
  EXPECT_FALSE(is_examples(file("{\"prompt\": \"a\"}", "a.json")));
  const std::string pipe = file("", "unused") + ".jsonl";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int writer = ::open(pipe.c_str(), O_RDWR);
  ASSERT_EQ(::write(writer, "{}\n{}\n", 6), 6);
  EXPECT_EQ(message_of<Error>([&] { is_examples(pipe); }),
            "cannot read '" + pipe + "': no regular file, want one: it is looked at before it is read");
  ::close(writer);
}

Example example(const std::string& ids, const std::string& learned) {
  Example made;
  for (const char c : ids) made.ids.push_back(c);
  for (const char c : learned) made.learned.push_back(c == '+');
  return made;
}

// Each row's inputs and, below the learned targets, themselves.
std::pair<std::string, std::string> row(const TokenSequence& rows, int64_t number, int64_t context) {
  const Batch batch = windows_at(rows, context, std::vector<int64_t>{number});
  std::string inputs, targets;
  for (const int64_t id : batch.inputs) inputs += static_cast<char>(id);
  for (const int64_t id : batch.targets) targets += id == kLeftOut ? '.' : static_cast<char>(id);
  return {inputs, targets};
}

TEST(ExampleRows, WholeExamplesStandOneBehindAnother) {
  using Row = std::pair<std::string, std::string>;
  // Nothing asks for the l: it is no answer to the k before it.
  const ExampleRows rows({example("abcd", "--++"), example("efg", "--+"), example("hijk", "---+"), example("lm", "++")},
                         8, "x");
  EXPECT_EQ(rows.size(), 17u);
  EXPECT_EQ(rows.row_length(), 8u);
  EXPECT_EQ(num_eval_windows(rows, 8), 2);
  EXPECT_EQ(row(rows, 0, 8), Row("abcdefgg", ".cd..g.."));
  EXPECT_EQ(row(rows, 1, 8), Row("hijklmmm", "..k.m..."));
  EXPECT_EQ(rows.document_starts(0, 16), (std::vector<uint64_t>{4, 7, 8, 12, 14}));
  EXPECT_EQ(rows.learned(), 5u);
  EXPECT_EQ(rows.cut(), 0u);
}

TEST(ExampleRows, WhatIsTooLongIsCutAndLeftOutWithoutAnAnswer) {
  const ExampleRows rows({example("abcdef", "--++++"), example("ghijkl", "-----+"), example("m", "+")}, 4, "x");
  EXPECT_EQ(rows.size(), 5u);
  EXPECT_EQ(row(rows, 0, 4), (std::pair<std::string, std::string>("abcd", ".cd.")));
  EXPECT_EQ(rows.cut(), 2u);
  EXPECT_EQ(rows.without(), 2u);
  EXPECT_EQ(message_of<Error>([] { ExampleRows({example("abc", "--+")}, 2, "f.jsonl"); }),
            "f.jsonl: no example has an answer that begins among its first 2 tokens, want a larger context");
}

TEST(ExampleRows, ATrainingReadsRowsAsTheyStand) {
  std::vector<Example> all;
  for (int i = 0; i < 20; ++i) all.push_back(example(std::string(8, static_cast<char>('a' + i)), "----++++"));
  const ExampleRows rows(all, 8, "x");
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Batches batches(rows, {.batch_size = 4, .context = 8, .seed = seed, .documents = true});
    std::set<int64_t> seen;
    for (int64_t step = 0; step < 5; ++step) {
      const Batch batch = batches.batch(step);
      EXPECT_EQ(batch.learned(), 16) << seed;
      for (size_t i = 0; i < 4; ++i) {
        for (size_t j = 1; j < 8; ++j) EXPECT_EQ(batch.inputs[i * 8 + j], batch.inputs[i * 8]) << seed;
        seen.insert(batch.inputs[i * 8]);
      }
    }
    EXPECT_EQ(seen.size(), 20u) << seed;  // a pass has each row once
  }
}

}  // namespace
}  // namespace motet
