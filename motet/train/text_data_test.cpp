#include "motet/train/text_data.h"

#include <fstream>

#include "motet/core/testing.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using testing::message_of;

std::string written(const testing::TemporaryFolder& folder, const char* name, const std::string& bytes) {
  const std::string path = (folder.path() / name).string();
  std::ofstream(path) << bytes;
  return path;
}

RunConfig run_of(std::vector<MixtureSource> mixture) {
  RunConfig run = testing::small_run();
  run.mixture = std::move(mixture);
  return run;
}

TEST(TextData, AMixtureHasOneTokenizerAndItsSourcesOneAfterAnother) {
  const testing::TemporaryFolder folder;
  const std::string first = written(folder, "first.txt", std::string(300, 'a')),
                    second = written(folder, "second.txt", std::string(200, 'b'));
  const TextData data = load_text_data(run_of({{first, 0.75}, {second, 0.25}}));
  EXPECT_EQ(data.name, "first.txt + second.txt");
  EXPECT_EQ(data.tokenizer->vocabulary_size(), 2);
  ASSERT_EQ(data.parts.size(), 2u);
  EXPECT_EQ(data.parts[1].name, "second.txt");
  EXPECT_EQ(data.parts[1].rows.begin, 270u);
  EXPECT_EQ(data.parts[1].rows.size, 180u);
  EXPECT_EQ(data.parts[1].rows.weight, 0.25);
  EXPECT_EQ(data.train->size(), 450u);
  EXPECT_EQ(data.train->slice(268, 4), (std::vector<int64_t>{0, 0, 1, 1}));
  EXPECT_EQ(data.validation->size(), 50u);
  EXPECT_EQ(data.validation->slice(29, 2), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(data.hashes.size(), 2u);
  EXPECT_NE(data.hashes.at(first + ": text"), data.hashes.at(second + ": text"));
}

TEST(TextData, TheTrainerReadsAMixtureByItsWeights) {
  const testing::TemporaryFolder folder;
  RunConfig run = run_of({{written(folder, "first.txt", std::string(300, 'a')), 0.75},
                          {written(folder, "second.txt", std::string(200, 'b')), 0.25}});
  const std::vector<PartUse> use = use_of_parts(load_text_data(run), run.train, 10);
  ASSERT_EQ(use.size(), 2u);
  EXPECT_EQ(use[0].tokens, 10u * 3 * 16);
  EXPECT_EQ(use[1].tokens, 10u * 1 * 16);
}

TEST(TextData, ASourceThatIsTooShortIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string first = written(folder, "first.txt", std::string(300, 'a')),
                    second = written(folder, "second.txt", std::string(100, 'b'));
  EXPECT_EQ(message_of<Error>([&] { load_text_data(run_of({{first, 1}, {second, 1}})); }),
            "second.txt: the validation part has 10 tokens, want at least 17 for a context of 16");
  RunConfig apart = run_of({{first, 1}});
  apart.data.documents = Documents::apart;
  EXPECT_EQ(message_of<UsageError>([&] { load_text_data(apart); }),
            "data.documents: 'apart' needs documents, want prepared data (motet data prepare)");
}

}  // namespace
}  // namespace motet
