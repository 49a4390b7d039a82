#include "motet/eval/multiple_choice/sequences.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;

std::string bytes_of(const ScoredSequence& s) { return {s.tokens.begin(), s.tokens.end()}; }

ScoredItem item(std::vector<std::string> contexts, std::vector<std::string> endings, std::optional<int64_t> first = {},
                int64_t context = 100) {
  return scored_item({std::move(contexts), std::move(endings), 0}, ByteTokenizer(), first, context, "f:1");
}

TEST(Sequences, ABlankStandsBetweenContextAndEnding) {
  const ScoredItem made = item({"To be"}, {"or", "not!"});
  EXPECT_EQ(bytes_of(made.choices[0]), "To be or");
  EXPECT_EQ(made.choices[0].scored, 3);  // the blank is the ending's
  EXPECT_EQ(made.choices[1].scored, 5);
  EXPECT_EQ(made.bytes, (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(shared_inputs(made), 4);  // "To b": the ending's first token is predicted from "e"
}

TEST(Sequences, BlanksAtTheEndOfTheContextAreTheEndings) {
  const ScoredItem made = item({"To be \n"}, {"or"});
  EXPECT_EQ(bytes_of(made.choices[0]), "To be \n or");
  EXPECT_EQ(made.choices[0].scored, 5);
}

TEST(Sequences, LengthsAreInBytesWhateverTheCharacters) {
  EXPECT_EQ(item({"a"}, {"ü", "日本"}).bytes, (std::vector<int64_t>{2, 6}));
}

TEST(Sequences, SeveralContextsHaveOneEnding) {
  const ScoredItem made = item({"Ann ran so Ann", "Ann ran so Bea"}, {"won."});
  EXPECT_EQ(bytes_of(made.choices[1]), "Ann ran so Bea won.");
  EXPECT_EQ(shared_inputs(made), 11);  // "Ann ran so "
}

TEST(Sequences, AnEmptyContextIsTheFirstTokenIfThereIsOne) {
  EXPECT_EQ(item({""}, {"ab", "cd"}, 7).choices[0].tokens, (std::vector<int64_t>{7, ' ', 'a', 'b'}));
  EXPECT_EQ(item({""}, {"ab", "cd"}, 7).choices[0].scored, 3);
  EXPECT_EQ(item({""}, {"ab", "cd"}).choices[0].scored, 2);  // the blank has no probability
  EXPECT_EQ(bytes_of(item({"a"}, {"b"}, 7).choices[0]), "a b");
}

TEST(Sequences, TheBeginningIsCutWhereTheContextOfTheModelEnds) {
  const ScoredItem made = item({"0123456789"}, {"ab", "c"}, {}, 5);
  EXPECT_TRUE(made.cut);
  EXPECT_EQ(bytes_of(made.choices[0]), "789 ab");
  EXPECT_EQ(made.choices[0].scored, 3);
  EXPECT_EQ(bytes_of(made.choices[1]), "6789 c");
  EXPECT_EQ(message_of<Error>([] { item({"a"}, {"bc", "too long"}, {}, 5); }),
            "f:1: ending 1 has 9 tokens, want at most the context of 5");
}

TEST(Sequences, WhatJustFitsTheContextIsNotCut) {
  EXPECT_FALSE(item({"0123"}, {"ab"}, {}, 6).cut);  // seven bytes, of which six are inputs
  EXPECT_TRUE(item({"0123"}, {"ab"}, {}, 5).cut);
  EXPECT_EQ(item({"0123"}, {"abcd"}, {}, 5).choices[0].scored, 5);  // the whole context
}

// ---- files

std::string refused(const char* task, const std::string& bytes) {
  for (const ChoiceTask& one : choice_tasks())
    if (one.name == task) return message_of<Error>([&] { read_questions(one, bytes, "f"); });
  return "no such task";
}

TEST(Questions, FilesThatAreWrongAreRefusedWithTheLine) {
  const std::string good = R"({"query": "q", "choices": ["a", "b"], "gold": 1})";
  EXPECT_EQ(refused("arc_easy", ""), "f: has no item");
  EXPECT_EQ(refused("arc_easy", "BZh9..."), "f: is compressed, want the unpacked file");
  EXPECT_EQ(refused("arc_easy", "\x1f\x8b..."), "f: is compressed, want the unpacked file");
  EXPECT_EQ(refused("arc_easy", good + "\n[1]\n"), "f:2: '[1]' is no object");
  EXPECT_EQ(refused("arc_easy", good + "\n \n[1]\n"), "f:3: '[1]' is no object");
  EXPECT_EQ(refused("arc_easy", R"({"query": "q"})"), "f:1: the member choices is missing");
  EXPECT_EQ(refused("arc_easy", R"({"query": 3})"), "f:1: query is '3', want a text");
  EXPECT_EQ(refused("arc_easy", R"({"query": "q", "choices": ["a"], "gold": 0})"),
            "f:1: choices is '[\"a\"]', want a list of 2 to 1000 texts");
  EXPECT_EQ(refused("arc_easy", R"({"query": "q", "choices": ["a", 2], "gold": 0})"),
            "f:1: choices has '2', want texts");
  EXPECT_EQ(refused("arc_easy", R"({"query": "q", "choices": ["a", "b"], "gold": 2})"),
            "f:1: gold is '2', want 0 to 1");
  EXPECT_EQ(refused("arc_easy", R"({"query": "q", "choices": ["a", "b"], "gold": -1})"),
            "f:1: gold is '-1', want 0 to 1");
  EXPECT_EQ(refused("arc_easy", R"({"query": "q", "choices": ["a", ""], "gold": 0})"), "f:1: an ending is empty");
  EXPECT_EQ(refused("hellaswag", "a\n0\nb\nc\nd\n"), "f: has 5 lines, want 6 for each item");
  EXPECT_EQ(refused("hellaswag", "a\n4\nb\nc\nd\ne\n"), "f:2: '4' is no number of an ending, want 0 to 3");
  EXPECT_EQ(refused("lambada", "\xff"), "f: no UTF-8 at offset 0");
}

TEST(Questions, EachFormIsRead) {
  const auto first = [](const char* task, const std::string& bytes) {
    for (const ChoiceTask& one : choice_tasks())
      if (one.name == task) return read_questions(one, bytes, "f").at(0);
    return Question{};
  };
  EXPECT_EQ(first("arc_easy", R"({"query": "Question: q", "choices": ["a", "b"], "gold": 1})").contexts[0],
            "Question: q\nAnswer:");
  EXPECT_EQ(first("winogrande", R"({"context_options": ["a", "b"], "continuation": "c", "gold": 1})").choices(), 2u);
  EXPECT_EQ(first("lambada",
                  "\n"
                  R"({"context": "a", "continuation": "b"})"
                  "\r\n")
                .endings[0],
            "b");
  EXPECT_EQ(first("blimp", R"({"sentence_good": "a", "sentence_bad": "b", "UID": "x"})").endings[1], "b");
  const Question q = first("hellaswag", "c\n2\nw\nx\ny\nz");
  EXPECT_EQ(q.gold, 2u);
  EXPECT_EQ(q.endings[3], "z");
}

TEST(Questions, AThousandEndingsAreAllowed) {
  const auto with = [](size_t count) {
    const nlohmann::json item{{"query", "q"}, {"choices", std::vector<std::string>(count, "a")}, {"gold", count - 1}};
    return item.dump();
  };
  EXPECT_EQ(read_questions(choice_tasks().back(), with(1000), "f").at(0).gold, 999u);
  EXPECT_NE(refused("piqa", with(1001)).find("want a list of 2 to 1000 texts"), std::string::npos);
}

// The conventions under which the numbers of these tasks are published.
TEST(Questions, EachTaskHasItsPromptAndItsMeasures) {
  std::string table;
  for (const ChoiceTask& t : choice_tasks())
    table += t.name + "|" + t.after + (t.by_length ? "|norm" : "") + (t.one_ending ? "|greedy" : "") + ";";
  EXPECT_EQ(table,
            "arc_easy|\nAnswer:|norm;arc_challenge|\nAnswer:|norm;hellaswag||norm;lambada||greedy;piqa|Answer:|norm;"
            "winogrande|;blimp|;openbook_qa||norm;copa||norm;multiple-choice||norm;");
}

}  // namespace
}  // namespace motet
