#include "motet/train/run_config.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/mechanisms/contender.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

TEST(RunConfig, MistakesAreNamedWithTheNearestKey) {
  const auto says = [](const char* key, const char* value, const char* message) {
    const std::string got = message_of<UsageError>([&] { small_run({{key, value}}).model_config(10); });
    EXPECT_NE(got.find(message), std::string::npos) << got;
  };
  says("train.learning_rat", "1", "learning_rate");
  says("trian.steps", "1", "nearest is 'train'");
  says("model.hidden_size", "-3", "model.hidden_size: '-3' is below 1");
  says("train.steps", "many", "train.steps: 'many' is not");
  says("model.attention.rank", "2", "unknown");
  says("model.attention", "3", "'model.attention' is a section, want one of its keys");
  says("train.steps", "0", "no budget");
  says("steps", "3", "is no key");
}

TEST(RunConfig, BudgetOfTheCommandLineReplacesThatOfTheFileAndThatTheDefault) {
  const TemporaryFolder folder;
  const json defaults{{"train", {{"steps", 40}}}};
  const auto budgets = [&](const std::string& file, const Overrides& set) {
    write_file_atomic(folder / "a.toml", file);
    json request = request_of(set);
    request["config"] = folder / "a.toml";
    const TrainOptions t = read_run_config(request, defaults).train;
    return json::array({t.steps, t.tokens, t.minutes});
  };
  EXPECT_EQ(budgets("", {}), json({40, 0, 0}));
  EXPECT_EQ(budgets("[train]\ntokens = 300", {}), json({0, 300, 0}));
  EXPECT_EQ(budgets("[train]\ntokens = 300", {{"train.steps", "2"}}), json({2, 0, 0}));
  EXPECT_EQ(budgets("[train]\nsteps = 3\ntokens = 0", {{"train.minutes", "1"}}), json({0, 0, 1}));
  const std::string both = message_of<UsageError>([&] { budgets("", {{"train.steps", "2"}, {"train.tokens", "5"}}); });
  EXPECT_NE(both.find("more than one of steps, tokens and minutes"), std::string::npos) << both;
  message_of<UsageError>([&] { budgets("[train]\nsteps = 3\ntokens = 5", {}); });
}

TEST(RunConfig, AttentionThatIsNoSectionIsRefused) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a.toml", "[model]\nattention = 3\n");
  json request = request_of({{"model.attention.num_heads", "2"}});
  request["config"] = folder / "a.toml";
  EXPECT_EQ(message_of<UsageError>([&] { read_run_config(request); }),
            (folder / "a.toml") + ": model.attention: want a section");
}

TEST(RunConfig, OverridesAreShownInTheTypeOfTheirOption) {
  const json given = small_run({{"model.attention.num_heads", "2"},
                                {"model.attention.mechanism", "dcmha"},
                                {"model.attention.static", "true"},
                                {"model.attention.rope_base", "1e5"}})
                         .as_given()["model"]["attention"];
  EXPECT_EQ(given, json({{"num_heads", 2}, {"mechanism", "dcmha"}, {"static", true}, {"rope_base", 1e5}}));
}

TEST(RunConfig, TheListOfOptionsReadsBackAsTheDefaults) {
  const TemporaryFolder folder;
  const json defaults{{"train", {{"steps", 500}}}};
  const std::string all = describe_options(defaults);
  write_file_atomic(folder / "all.toml", all);
  const RunConfig read = read_run_config({{"config", folder / "all.toml"}}),
                  plain = read_run_config(json::object(), defaults);
  EXPECT_EQ(read.resolved(), plain.resolved());
  const auto listed = [&](const OptionTable& table) {
    for (const Option& o : table) {
      EXPECT_NE(all.find("\n" + o.name + " = "), std::string::npos) << o.name;
      EXPECT_NE(all.find(o.sentence), std::string::npos) << o.name;
    }
  };
  listed(model_options().table());
  listed(data_options().table());
  listed(train_options().table());
  listed(common_attention_options().table());
  for (const MechanismEntry& entry : mechanism_registry())
    for (const Option& o : entry.options) EXPECT_NE(all.find("\n# " + o.name + " = "), std::string::npos) << o.name;
  for (const std::string& name : contender_names()) EXPECT_NE(all.find(name), std::string::npos) << name;
}

TEST(RunConfig, AMechanismIsNamedAsAContenderIs) {
  const auto attention = [](const Overrides& set) { return small_run(set).resolved()["model"]["attention"]; };
  EXPECT_EQ(attention({{"model.attention.mechanism", "mha"}})["mechanism"], "softmax");
  const json second = attention({{"model.attention.mechanism", "differential_v2"}});
  EXPECT_EQ(second["mechanism"], "differential");
  EXPECT_EQ(second["version"], "v2");
  const json given =
      attention({{"model.attention.mechanism", "dcmha:rank=3:num_heads=2"}, {"model.attention.rank", "1"}});
  EXPECT_EQ(given["num_heads"], 2);
  EXPECT_EQ(given["rank"], 1) << "a key of its own wins";
  const auto says = [](const char* name, const char* message) {
    const std::string got = message_of<UsageError>([&] { small_run({{"model.attention.mechanism", name}}); });
    EXPECT_NE(got.find(message), std::string::npos) << got;
  };
  says("dcmah", "model.attention.mechanism: unknown mechanism 'dcmah': nearest is 'dcmha'");
  says("dcmha:rank", "'rank' in 'dcmha:rank' is no option, want key=value");
  says("dcmha:rank=1:rank=2", "'rank' stands twice in 'dcmha:rank=1:rank=2', want it once");
}

TEST(RunConfig, TheModelComputesAsTrainDtypeSays) {
  EXPECT_TRUE(small_run({{"train.dtype", "bfloat16"}}).model_config(10).autocast);
  EXPECT_FALSE(small_run({{"train.dtype", "float64"}}).model_config(10).autocast);
  EXPECT_FALSE(small_run().model_config(10).autocast);
}

TEST(RunConfig, AMixtureReplacesTextsAndTextsAMixture) {
  const nlohmann::json budget{{"train", {{"steps", 1}}}};
  const auto read = [&](const nlohmann::json& data, const nlohmann::json& request = nlohmann::json::object()) {
    nlohmann::json base = budget;
    base["data"] = data;
    return read_run_config(request, base);
  };
  const nlohmann::json two = nlohmann::json::parse(R"([["a", 0.7], ["b", 1]])");
  const RunConfig mixed = read({{"mixture", two}});
  ASSERT_EQ(mixed.mixture.size(), 2u);
  EXPECT_EQ(mixed.mixture[1].path, "b");
  EXPECT_EQ(mixed.mixture[0].weight, 0.7);
  EXPECT_EQ(read_run_config(nlohmann::json::object(), mixed.resolved()).resolved(), mixed.resolved());
  const RunConfig given = read({{"mixture", two}}, {{"texts", {"c.txt"}}});
  EXPECT_TRUE(given.mixture.empty());
  EXPECT_EQ(given.texts, std::vector<std::string>{"c.txt"});
  EXPECT_EQ(message_of<UsageError>([&] { read({{"mixture", two}, {"text", "a"}}); }),
            "data.text and data.mixture: want one of them");
  EXPECT_EQ(message_of<UsageError>([&] { read({{"text", nlohmann::json::array()}}); }),
            "data.text: a list without a path, want a path or a list of paths");
  EXPECT_EQ(read({{"text", nlohmann::json::array()}}, {{"texts", {"c.txt"}}}).texts, std::vector<std::string>{"c.txt"});
  const std::string want = "data.mixture: want a list of paths with weights, [[\"data/a\", 0.7], [\"data/b\", 0.3]]";
  for (const char* wrong : {"3", "[]", "[1]", "[[\"a\"]]", "[[\"a\", \"b\"]]", "[[1, 0.5]]", "[[\"a\", 1, 2]]"})
    EXPECT_EQ(message_of<UsageError>([&] { read({{"mixture", nlohmann::json::parse(wrong)}}); }), want) << wrong;
}

}  // namespace
}  // namespace motet
