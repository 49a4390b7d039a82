#include "motet/compare/comparison.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

RunConfig small_run() {
  json request{{"set", json::array()}};
  return read_run_config(request, {{"model", {{"hidden_size", 32}}},
                                   {"train", {{"context", 16}, {"batch_size", 4}, {"steps", 6}, {"eval_windows", 8}}}});
}

TEST(Arms, DefaultIsTheMainSeven) {
  std::vector<std::string> labels;
  for (const Arm& arm : parse_arms("", json::object())) labels.push_back(arm.label);
  EXPECT_EQ(labels, (std::vector<std::string>{"mha", "key_size", "talking_heads", "dcmha", "differential_v1",
                                              "differential_v2", "coca"}));
}

TEST(Arms, OptionsStandBehindColons) {
  const auto arms = parse_arms("mha,dcmha:rank=1:sides=query", {{"num_heads", 8}, {"rank", 4}});
  EXPECT_EQ(arms[1].attention["rank"], "1");
  EXPECT_EQ(arms[1].attention["num_heads"], 8);
  EXPECT_FALSE(arms[0].attention.contains("rank"));
}

TEST(Arms, MistakesAreNamed) {
  const auto says = [](const char* list, json common, const char* message) {
    const std::string got = message_of<UsageError>([&] { parse_arms(list, common); });
    EXPECT_NE(got.find(message), std::string::npos) << got;
  };
  says("mha,dcmah", json::object(), "unknown mechanism 'dcmah': nearest is 'dcmha'");
  says("mha,mha", json::object(), "appears twice");
  says("dcmha:rank", json::object(), "want key=value");
  says("mha", {{"num_haeds", 4}}, "num_heads");
  says("mha", {{"mechanism", "dcmha"}}, "--mechanisms instead");
  says("mha,dcmha:learning_rate=fast", json::object(), "dcmha:learning_rate=fast: learning_rate: 'fast' is not");
  says("mha,dcmha:mechanism=coca", json::object(), "'mechanism=coca' in 'dcmha:mechanism=coca': the mechanism stands");
}

TEST(Arms, ALearningRateBelongsToTheArmsTraining) {
  const auto arms = parse_arms("mha,dcmha:learning_rate=1e-4:rank=1,coca:weight_decay=0", json::object());
  EXPECT_EQ(arms[1].train, json({{"learning_rate", 1e-4}}));
  EXPECT_EQ(arms[1].attention, json({{"mechanism", "dcmha"}, {"rank", "1"}}));
  const RunConfig run = read_run_config(
      json::object(), {{"train", {{"steps", 1}, {"learning_rate", 0.5}, {"seed", 7}, {"data_seed", 30}}}});
  EXPECT_EQ(arm_train(run, arms[1], 0).learning_rate, 1e-4);
  EXPECT_EQ(arm_train(run, arms[0], 0).learning_rate, 0.5);
  EXPECT_EQ(arm_train(run, arms[2], 0).weight_decay, 0.0);
  for (const Arm& arm : arms) {
    EXPECT_EQ(arm_train(run, arm, 2).seed, 9);
    EXPECT_EQ(arm_train(run, arm, 2).data_seed, 32);
    EXPECT_EQ(arm_train(run, arm, 2).steps, 1);
  }
}

// Counted from the tensors, and from the matrices' elements by hand: neither is what match_size goes by.
TEST(Match, EqualParametersOrFlopsThroughTheFeedForward) {
  const RunConfig run = small_run();
  const TextData data = load_text_data(run);
  const auto elements = [](const ModelConfig& config) {
    int64_t count = 0;
    for (const Tensor& p : Model(config)->parameters()) count += p.numel();
    return static_cast<double>(count);
  };
  const auto feed_forward = [](const ModelConfig& c) {  // three matrices a layer
    return static_cast<double>(c.num_layers() * 3 * c.hidden_size());
  };
  for (const char* list : {"talking_heads,mha,coca", "coca,key_size,mha", "dcmha,mha", "differential_v2,key_size"}) {
    const auto arms = parse_arms(list, json::object());
    const auto planned = [&](Match match) { return planned_comparison(run, data, {.arms = arms, .match = match}); };
    const Comparison free = planned(Match::none), equal = planned(Match::parameters), work = planned(Match::flops);
    const size_t baseline = equal.baseline;
    for (size_t i = 0; i < arms.size(); ++i) {
      const std::string what = arms[i].label + " of " + list;
      EXPECT_EQ(equal.arms[i].cost.parameters, elements(equal.arms[i].config)) << what;
      EXPECT_LE(std::abs(elements(equal.arms[i].config) - elements(equal.arms[baseline].config)),
                feed_forward(equal.arms[i].config) / 2)
          << what;
      EXPECT_LE(std::abs(work.arms[i].cost.flops_per_token - work.arms[baseline].cost.flops_per_token),
                feed_forward(work.arms[i].config))
          << what;
      EXPECT_EQ(free.arms[i].config.intermediate_size(), 86) << what;
      const bool same = i == baseline || arms[i].label == "coca" || arms[i].label == "talking_heads";
      EXPECT_EQ(equal.arms[i].config.intermediate_size() == 86, same) << what;
    }
  }
}

TEST(Comparison, TheBaselineIsTheFirstPlainSoftmax) {
  const RunConfig run = small_run();
  const TextData data = load_text_data(run);
  const auto baseline = [&](const char* list) {
    return planned_comparison(run, data, {.arms = parse_arms(list, json::object())}).baseline;
  };
  EXPECT_EQ(baseline("dcmha,mha,coca"), 1u);
  EXPECT_EQ(baseline("mha:num_heads=2,mha"), 0u);
  EXPECT_EQ(baseline("dcmha,coca"), 0u);
}

TEST(Comparison, AnArmThatCannotBeIsNamed) {
  const RunConfig run = small_run();
  const TextData data = load_text_data(run);
  const std::string message = message_of<UsageError>([&] {
    planned_comparison(run, data, {.arms = parse_arms("mha,dcmha:num_heads=3", json::object()), .match = Match::none});
  });
  EXPECT_EQ(message.find("dcmha:num_heads=3: model.attention.num_heads: 3 heads do not divide"), 0u) << message;
}

TEST(Match, ImpossibleMatchIsRefused) {
  ModelConfig config = arm_config(small_run(), parse_arms("key_size:key_dim=512", json::object())[0], 40);
  EXPECT_NE(message_of<UsageError>([&] { match_size(config, Match::parameters, 20000); }).find("--match none"),
            std::string::npos);
}

TEST(Comparison, ArmsShareTheStartOfEqualTensors) {
  const RunConfig run = small_run();
  const auto arms = parse_arms("mha,dcmha,talking_heads,differential_v1", json::object());
  Model mha = testing::fresh(arm_config(run, arms[0], 40), 5);
  for (size_t i = 1; i < arms.size(); ++i) {
    Model other = testing::fresh(arm_config(run, arms[i], 40), 5);
    const auto others = other->named_parameters();
    for (const auto& item : mha->named_parameters()) {
      const Tensor* same = others.find(item.key());
      EXPECT_TRUE(!same || same->sizes() != item.value().sizes() || same->equal(item.value())) << item.key();
    }
  }
  const auto first = [](const Model& m, const char* name) { return m.ptr()->named_parameters()[name]; };
  EXPECT_FALSE(
      first(mha, "model.layers.0.self_attn.q_proj.weight").equal(first(mha, "model.layers.1.self_attn.q_proj.weight")));
  EXPECT_FALSE(
      first(mha, "model.layers.0.self_attn.q_proj.weight").equal(first(mha, "model.layers.0.self_attn.k_proj.weight")));
}

}  // namespace
}  // namespace motet
