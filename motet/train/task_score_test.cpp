// The scorer against one episode at a time, token after token.
#include "motet/train/task_score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "motet/models/testing.h"
#include "motet/tasks/episodes.h"

namespace motet {
namespace {

using namespace testing;

// Few tokens, so that a model that has learned nothing is right now and then: three of text, one or two of answer, and
// of one a wrong answer that the text holds.
class Coins : public Task {
 public:
  explicit Coins(int64_t answer_length) : answer_length_(answer_length) {}
  int64_t vocabulary() const override { return 3; }
  int64_t length() const override { return 3; }
  int64_t answer_length() const override { return answer_length_; }
  int64_t answers() const override { return answer_length_ == 1 ? 3 : 9; }
  Episode episode(uint64_t seed, uint64_t number, bool test) const override {
    Draws draws(seed, number);
    const auto token = [&] { return static_cast<int32_t>(draws.below(3)); };
    Episode out{.ids = {token(), token(), token()}, .answer = {token()}};
    if (answer_length_ == 2) out.answer.push_back(token());
    if (draws.below(2) == 0) out.slices = {"even", "early"};
    if (answer_length_ == 1 && out.answer[0] > 0) out.others = {{0}};
    if (!test) out.answer.assign(out.answer.size(), 0);
    return out;
  }
  std::vector<std::string> kinds() const override { return {"question"}; }
  std::string word(int32_t id) const override { return std::to_string(id); }

 private:
  int64_t answer_length_;
};

Model model_of_three() { return fresh(tiny({{"initializer_range", 1.0}}, {{"num_heads", 2}}, 3)); }

// What greedy decoding says.
std::vector<int32_t> greedy(ModelImpl& model, const Episode& episode) {
  std::vector<int64_t> ids(episode.ids.begin(), episode.ids.end());
  std::vector<int32_t> said;
  for (size_t i = 0; i < episode.answer.size(); ++i) {
    const Tensor logits = model.forward(at::tensor(ids, at::kLong).unsqueeze(0));
    said.push_back(static_cast<int32_t>(logits[0][-1].argmax().item<int64_t>()));
    ids.push_back(said.back());
  }
  return said;
}

TEST(TaskScore, CountsWhatGreedyDecodingSaysOfTheTests) {
  at::NoGradGuard no_grad;
  Model model = model_of_three();
  for (const int64_t length : {1, 2}) {
    const Coins task(length);
    for (const auto& which : {std::vector<int64_t>{0, 2, 5, 8, 13, 21, 34, 55, 89, 144, 233}, first_episodes(300)}) {
      TaskScore::Counts all, even;
      std::set<std::vector<int32_t>> answers;
      for (const int64_t number : which) {
        const Episode e = task.episode(1'000'000, static_cast<uint64_t>(number), true);
        const std::vector<int32_t> said = greedy(*model, e);
        answers.insert(said);
        for (TaskScore::Counts* counts : {&all, &even}) {
          if (counts == &even && e.slices.empty()) continue;
          ++counts->episodes, counts->right += said == e.answer;
          counts->misattributed += !e.others.empty() && said == e.others[0];
          counts->chances += !e.others.empty() ? 0.5 : length == 1 ? 1.0 / 3 : 1.0 / 9;
        }
      }
      ASSERT_GT(answers.size(), 1u) << "a model that always says the same would not tell";
      if (which.size() == 300) {
        ASSERT_GT(all.right, 10);
        ASSERT_TRUE(length == 2 || all.misattributed > 10);
      }
      for (const int64_t at_once : {0, 1, 7}) {
        const TaskScore score = score_task(*model, task, which, at_once);
        EXPECT_EQ(score.all.episodes, std::ssize(which));
        EXPECT_EQ(score.all.right, all.right);
        EXPECT_EQ(score.all.misattributed, all.misattributed);
        EXPECT_EQ(score.all.fabricated(), std::ssize(which) - all.right - all.misattributed);
        EXPECT_NEAR(score.all.chances, all.chances, 1e-9);
        EXPECT_EQ(score.has_others, length == 1);
        ASSERT_EQ(score.slices.size(), 2u);
        for (const char* slice : {"even", "early"}) {
          EXPECT_EQ(score.slices.at(slice).episodes, even.episodes);
          EXPECT_EQ(score.slices.at(slice).right, even.right);
          EXPECT_EQ(score.slices.at(slice).misattributed, even.misattributed);
        }
      }
    }
  }
}

// Right first tokens are no right answer, and the second token is judged behind the right first one.
TEST(TaskScore, AnAnswerIsRightWhenAllOfItIs) {
  at::NoGradGuard no_grad;
  const Coins task(2);
  Model model = model_of_three();
  int firsts = 0, whole = 0;
  for (int64_t number = 0; number < 300; ++number) {
    const Episode e = task.episode(1'000'000, static_cast<uint64_t>(number), true);
    const std::vector<int32_t> said = greedy(*model, e);
    firsts += said[0] == e.answer[0], whole += said == e.answer;
  }
  ASSERT_GT(firsts, whole + 20);
  EXPECT_EQ(score_task(*model, task, first_episodes(300)).all.right, whole);
}

TEST(TaskScore, ErrorsAreThoseOfAShare) {
  const TaskScore::Counts counts{.episodes = 50, .right = 40, .misattributed = 4, .chances = 12.5};
  EXPECT_DOUBLE_EQ(counts.accuracy(), 0.8);
  EXPECT_DOUBLE_EQ(counts.error(), std::sqrt(0.8 * 0.2 / 49));
  EXPECT_DOUBLE_EQ(counts.chance(), 0.25);
  EXPECT_EQ(counts.fabricated(), 6);
  EXPECT_EQ((TaskScore::Counts{.episodes = 1, .right = 1}).error(), 0);
}

}  // namespace
}  // namespace motet
