// The key stands once, anywhere, and tells the answer; what else stands in the text does not.
#include <gtest/gtest.h>

#include <map>

#include "motet/core/error.h"
#include "motet/tasks/task.h"

namespace motet {
namespace {

using nlohmann::json;

std::unique_ptr<Task> task(const json& options) { return make_task(options, "task"); }

std::string words_of(const Task& task, const std::vector<int32_t>& ids) {
  std::string all;
  for (const int32_t id : ids) all += (all.empty() ? "" : " ") + task.word(id);
  return all;
}

constexpr int kEpisodes = 4000;

TEST(Passkey, IsTheTemplateInWordsOfAClosedVocabulary) {
  const auto own = task({{"name", "passkey"}, {"tokens", 63}});
  EXPECT_EQ(own->vocabulary(), 60);
  const std::string beginning =
                        "there is an important info hidden inside a lot of irrelevant text . find it and memorize them "
                        ". i will quiz you about the important information there .",
                    filler = " the grass is green . the sky is blue . the sun";
  for (uint64_t n = 0; n < 50; ++n) {
    const Episode e = own->episode(1, n, false);
    const std::string key = words_of(*own, e.answer), shown = words_of(*own, e.ids);
    const std::string sentence = " the passkey is " + key + " . remember it . " + key + " is the passkey .";
    const size_t at = shown.find(sentence);
    ASSERT_NE(at, shown.npos) << shown;
    ASSERT_TRUE(shown.starts_with(beginning) && shown.ends_with(" what is the passkey ?")) << shown;
    const std::string before = shown.substr(beginning.size(), at - beginning.size()),
                      behind = shown.substr(at + sentence.size(), shown.rfind(" what") - at - sentence.size());
    EXPECT_TRUE(filler.starts_with(before) && filler.starts_with(behind)) << shown;
  }
}

// The first digits of the text, wherever they stand, are the answer.
TEST(Passkey, OnlyTheKeyHasDigitsAndSlicesSayWhereItStands) {
  for (const char* filler : {"sentences", "words"}) {
    const auto own = task({{"name", "passkey"}, {"tokens", 200}, {"trained", 100}, {"filler", filler}});
    std::map<std::string, int> slices;
    for (int n = 0; n < kEpisodes; ++n) {
      const Episode e = own->episode(1, static_cast<uint64_t>(n), true);
      std::vector<int32_t> digits;
      size_t first = 0;
      for (size_t i = 0; i < e.ids.size(); ++i)
        if (e.ids[i] < 10) {
          if (digits.empty()) first = i;
          digits.push_back(e.ids[i]);
          EXPECT_EQ(e.kinds[i], 0);
        }
      ASSERT_EQ(digits.size(), 6u);
      EXPECT_EQ((std::vector<int32_t>{digits.begin(), digits.begin() + 3}), e.answer);
      EXPECT_EQ((std::vector<int32_t>{digits.begin() + 3, digits.end()}), e.answer);
      const size_t before = first - 32, all = 200 - 51;  // words of filler, of how many
      EXPECT_EQ(e.slices, (std::vector<std::string>{199 - first < 100 ? "distance < T" : "distance >= T",
                                                    text("depth ", 1 + 4 * before / (all + 1), "/4")}));
      for (const std::string& slice : e.slices) ++slices[slice];
      for (size_t i = 0; i < e.ids.size(); ++i)
        if (e.kinds[i] == 2 && filler == std::string("words") && i >= 29) {
          EXPECT_GE(e.ids[i], 18) << "words of the question and of the key's sentence are no noise";
        }
    }
    for (const char* depth : {"depth 1/4", "depth 2/4", "depth 3/4", "depth 4/4"})
      EXPECT_NEAR(slices[depth], kEpisodes / 4, 130) << depth;
    EXPECT_NEAR(slices["distance < T"], kEpisodes * 82.0 / 150, 150);
    EXPECT_EQ(slices.size(), 6u);
  }
}

TEST(Passkey, TheTrainedLengthStaysThatOfTheTraining) {
  const json trained = resolved_task({{"name", "passkey"}, {"tokens", 96}}, "task");
  EXPECT_EQ(trained["trained"], 96);
  json longer = trained;
  longer["tokens"] = 400;
  EXPECT_EQ(resolved_task(longer, "task")["trained"], 96);
  const auto own = task(longer);
  int far = 0;
  for (uint64_t n = 0; n < 1000; ++n) far += own->episode(1, n, true).slices[0] == "distance >= T";
  EXPECT_NEAR(far, 1000 * 272.0 / 350, 60);
}

}  // namespace
}  // namespace motet
