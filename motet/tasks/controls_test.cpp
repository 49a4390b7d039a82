// What holds of every task: the same episodes everywhere, nothing that gives an answer away, names for everything.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/tasks/task.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;

std::unique_ptr<Task> task(const json& options) { return make_task(options, "task"); }

uint64_t fnv(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char c : bytes) hash = (hash ^ c) * 0x100000001b3u;
  return hash;
}

std::string joined_ids(const std::vector<int32_t>& ids) {
  std::string line;
  for (const int32_t id : ids) line += text(id, " ");
  return line;
}

// A line each of a thousand episodes of training and as many tests.
std::string written(const Task& task) {
  std::string lines;
  for (uint64_t n = 0; n < 1000; ++n)
    for (const bool test : {false, true}) {
      const Episode e = task.episode(test ? 1'000'000 : 1, n, test);
      lines += joined_ids(e.ids) + "| " + joined_ids(e.answer) + "|";
      for (const std::string& slice : e.slices) lines += " " + slice;
      if (e.slices.empty()) lines += " ";
      lines += " |";
      for (const int64_t kind : e.kinds) lines += text(" ", kind);
      for (const auto& other : e.others) lines += text(" not ", joined_ids(other));
      lines += "\n";
    }
  return lines;
}

// Committed results are of these episodes: numbers and options stay as they are. Those of where-select and noisy-recall
// are of the commit that froze D6.
TEST(Tasks, EpisodesAreThoseOnRecord) {
  struct Record {
    json options;
    const char* resolved;
    uint64_t hash;
  };
  const Record records[] = {
      {{{"name", "where-select"}},
       R"({"fields":6,"held_out":6,"items":6,"name":"where-select","values":4})",
       0x0a32ab9fc57a5e6cu},
      {{{"name", "where-select"}, {"fields", 4}, {"values", 8}, {"held_out", 3}},
       R"({"fields":4,"held_out":3,"items":6,"name":"where-select","values":8})",
       0xcaa496c18e10aae7u},
      {{{"name", "noisy-recall"}},
       R"({"fewer":true,"keys":64,"name":"noisy-recall","needles":8,"noise":128,"tokens":64,"values":8})",
       0xdf89a2390ec0c43au},
      {{{"name", "noisy-recall"}, {"tokens", 512}, {"needles", 8}, {"fewer", false}},
       R"({"fewer":false,"keys":64,"name":"noisy-recall","needles":8,"noise":128,"tokens":512,"values":8})",
       0xa306b427e6569980u},
      {{{"name", "passkey"}},
       R"({"digits":3,"filler":"sentences","name":"passkey","tokens":128,"trained":128})",
       0xc5a8983e3bf8e750u},
      {{{"name", "passkey"}, {"tokens", 300}, {"trained", 128}, {"filler", "words"}, {"digits", 5}},
       R"({"digits":5,"filler":"words","name":"passkey","tokens":300,"trained":128})",
       0xc34a2d515a5c0886u},
      {{{"name", "episodes"}},
       R"({"common":8,"fewer":true,"labels":8,"name":"episodes","order":"random","orders":1,"shots":2,)"
       R"("typical":2,"vocabulary":16,"ways":4,"words":2})",
       0x949acb52d43650adu},
      {{{"name", "episodes"}, {"order", "by_class"}, {"orders", 10}, {"fewer", false}},
       R"({"common":8,"fewer":false,"labels":8,"name":"episodes","order":"by_class","orders":10,"shots":2,)"
       R"("typical":2,"vocabulary":16,"ways":4,"words":2})",
       0xf5ba1553f3eebd99u},
      {{{"name", "facts"}},
       R"({"entities":4,"facts":4,"fewest":2,"name":"facts","noise":8,"relations":2,"tokens":16,"values":8})",
       0x28ada187d7c417fcu},
  };
  for (const Record& record : records) {
    EXPECT_EQ(resolved_task(record.options, "task").dump(), record.resolved);
    EXPECT_EQ(fnv(written(*task(record.options))), record.hash) << record.resolved;
  }
}

TEST(Tasks, AnEpisodeIsAFunctionOfItsNumber) {
  for (const TaskEntry& entry : task_registry()) {
    const auto own = task({{"name", entry.name}});
    EXPECT_EQ(own->episode(5, 9, true).ids, task({{"name", entry.name}})->episode(5, 9, true).ids) << entry.name;
    EXPECT_NE(own->episode(5, 9, true).ids, own->episode(5, 10, true).ids) << entry.name;
    EXPECT_NE(own->episode(5, 9, true).ids, own->episode(6, 9, true).ids) << entry.name;
  }
}

TEST(Tasks, EpisodesHaveTheSizesAndTheTokensThatTheyAreSaidToHave) {
  for (const TaskEntry& entry : task_registry()) {
    const auto own = task({{"name", entry.name}});
    std::set<int32_t> seen;
    for (uint64_t n = 0; n < 1000; ++n) {
      const Episode e = own->episode(2, n, n % 2 == 0);
      ASSERT_EQ(std::ssize(e.ids), own->length()) << entry.name;
      ASSERT_EQ(std::ssize(e.kinds), own->length()) << entry.name;
      ASSERT_EQ(std::ssize(e.answer), own->answer_length()) << entry.name;
      for (const int64_t kind : e.kinds) ASSERT_TRUE(kind >= 0 && kind < std::ssize(own->kinds())) << entry.name;
      for (const auto* ids : {&e.ids, &e.answer})
        for (const int32_t id : *ids) {
          ASSERT_TRUE(id >= 0 && id < own->vocabulary()) << entry.name;
          seen.insert(id);
        }
      ASSERT_TRUE(own->answer_length() == 1 || e.others.empty()) << entry.name;
      std::set<std::vector<int32_t>> answers(e.others.begin(), e.others.end());
      answers.insert(e.answer);
      ASSERT_EQ(answers.size(), e.others.size() + 1) << entry.name << ": others are different and wrong";
      ASSERT_EQ(std::set(e.slices.begin(), e.slices.end()).size(), e.slices.size()) << entry.name;
    }
    EXPECT_GT(seen.size(), 0.6 * static_cast<double>(own->vocabulary())) << entry.name;
  }
}

TEST(Tasks, EachTokenHasAWordOfItsOwn) {
  for (const TaskEntry& entry : task_registry()) {
    const auto own = task({{"name", entry.name}});
    std::set<std::string> words;
    for (int32_t id = 0; id < own->vocabulary(); ++id) words.insert(own->word(id));
    EXPECT_EQ(std::ssize(words), own->vocabulary()) << entry.name;
    EXPECT_FALSE(words.contains("")) << entry.name;
  }
  const auto where = task({{"name", "where-select"}, {"fields", 3}, {"values", 4}, {"held_out", 1}});
  EXPECT_EQ(where->word(4 + 2), "field 2");
  EXPECT_EQ(where->word(4 + 3 + 1 + 2 * 4 + 3), "field 2 is 3");
  EXPECT_EQ(where->word(4 + 3 + 1 + 12 + 16 * 3 + 4 * 0 + 2), "(3 0 2)");
}

// A count of what answers followed each token of the question, and the question as a whole, in 20,000 episodes: as good
// as a guess on others, or the text need not be read.
TEST(Tasks, TheQuestionAloneDoesNotTellTheAnswer) {
  constexpr uint64_t kTrained = 20000, kTests = 4000;
  for (const TaskEntry& entry : task_registry()) {
    const auto own = task({{"name", entry.name}});
    const int64_t question = std::ssize(own->kinds()) - 1;
    ASSERT_EQ(own->kinds().back(), "question");
    const auto features = [&](const Episode& e) {
      std::vector<std::string> all{""};
      for (size_t i = 0; i < e.ids.size(); ++i)
        if (e.kinds[i] == question) all.push_back(text(e.ids[i])), all[0] += text(e.ids[i], " ");
      return all;
    };
    std::map<std::string, std::map<int32_t, double>> counts;
    std::map<int32_t, double> answers;
    for (uint64_t n = 0; n < kTrained; ++n) {
      const Episode e = own->episode(1, n, false);
      for (const std::string& feature : features(e)) ++counts[feature][e.answer[0]];
      ++answers[e.answer[0]];
    }
    const double guess = 1 / static_cast<double>(answers.size());
    double right = 0;
    for (uint64_t n = 0; n < kTests; ++n) {
      const Episode e = own->episode(2, n, false);
      std::pair<double, int32_t> best{-1e9, -1};
      for (const auto& [answer, all] : answers) {
        double likelihood = std::log(all);
        for (const std::string& feature : features(e)) {
          const auto found = counts[feature].find(answer);
          likelihood += std::log(1 + (found == counts[feature].end() ? 0 : found->second));
        }
        best = std::max(best, {likelihood, answer});
      }
      right += best.second == e.answer[0];
    }
    EXPECT_NEAR(right / kTests, guess, 4 * std::sqrt(guess / kTests)) << entry.name;
    for (const auto& [answer, all] : answers)
      EXPECT_NEAR(all / kTrained, guess, 5 * std::sqrt(guess / kTrained)) << entry.name << ", answer " << answer;
    const double first = static_cast<double>(own->answers());
    EXPECT_NEAR(std::pow(static_cast<double>(answers.size()), static_cast<double>(own->answer_length())), first, 0.5)
        << entry.name << ": a guess is right once in so many";
  }
}

TEST(Tasks, MistakesAreNamed) {
  const auto wrong = [](const json& options) { return message_of<UsageError>([&] { make_task(options, "task"); }); };
  EXPECT_EQ(wrong({{"name", "where-selekt"}}),
            "task: unknown task 'where-selekt': nearest is 'where-select'; known: where-select, noisy-recall, "
            "passkey, episodes, facts");
  EXPECT_EQ(wrong(json::object()), "task: want a table with the name of a task");
  EXPECT_EQ(wrong({{"name", "where-select"}, {"held_out", 30}}),
            "task: held_out is 30 of 30 pairs, want fewer: each field has to be trained as what is looked for and as "
            "what is asked for");
  EXPECT_EQ(wrong({{"name", "where-select"}, {"fields", 16}}),
            "task: 16 fields of 4 values make 4.29497e+09 items, want at most a million");
  EXPECT_EQ(wrong({{"name", "noisy-recall"}, {"needles", 65}}),
            "task: needles is 65, want at most the 64 keys and 64 tokens");
  EXPECT_EQ(wrong({{"name", "passkey"}, {"tokens", 50}}),
            "task: tokens is 50, want at least 55 for the sentences and some filler");
  EXPECT_EQ(wrong({{"name", "episodes"}, {"ways", 9}}),
            "task: ways is 9, want at most the 8 labels and 8 times the 2 typical words of a class in the vocabulary");
  EXPECT_EQ(wrong({{"name", "episodes"}, {"vocabulary", 1000}, {"labels", 1000}}),
            "task: 1008 words and 1000 labels make 1008000 tokens, want at most a million");
  EXPECT_EQ(wrong({{"name", "episodes"}, {"order", "class"}}),
            "task.order: 'class' is not known, want one of random, alternating, by_class");
  EXPECT_EQ(wrong({{"name", "facts"}, {"facts", 33}, {"tokens", 200}}),
            "task: facts is 33, want at most the 200 tokens, the 8 values and twice the 4 entities");
  EXPECT_EQ(wrong({{"name", "facts"}, {"entities", 1000}, {"relations", 1001}, {"values", 9}}),
            "task: 1000 entities, 1001 relations and 9 values make 9009000 facts, want at most a million");
  EXPECT_EQ(wrong({{"name", "facts"}, {"fewest", 17}}), "task: fewest is 17, want at most the 4 facts");
}

}  // namespace
}  // namespace motet
