#include "motet/compare/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motet/checkpoints/model_folder.h"
#include "motet/compare/report.h"
#include "motet/compare/table.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/ops/other_device.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

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

RunConfig small_run() {
  json request{{"set", json::array()}};
  return read_run_config(request, {{"model", {{"hidden_size", 32}}},
                                   {"train", {{"context", 16}, {"batch_size", 4}, {"steps", 6}, {"eval_windows", 8}}}});
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

// What every run must have been: computed here by a trainer of its own from the seeds.
TEST(Comparison, EveryRunIsTheOneOfItsSeeds) {
  const TemporaryFolder folder;
  RunConfig run = small_run();
  run.train.seed = 3, run.train.data_seed = 11;
  const TextData data = load_text_data(run);
  const CompareOptions options{.arms = parse_arms("dcmha,mha,softmax,mha:learning_rate=1e-2", json::object()),
                               .seeds = 2,
                               .match = Match::parameters,
                               .jobs = 2,
                               .threads = 2,
                               .folder = folder.path()};
  Comparison all = planned_comparison(run, data, options);
  run_comparison(all, run, data, options);
  EXPECT_FALSE(all.interrupted);
  for (const ArmResult& arm : all.arms)
    for (size_t i = 0; i < 2; ++i) {
      TrainOptions train = run.train;
      train.seed = 3 + i, train.data_seed = 11 + i;
      if (arm.arm.label.ends_with("1e-2")) train.learning_rate = 0.01;
      Model model(arm.config);
      model->initialize(3 + i);
      Trainer trainer(model, data, train);
      const TrainResult alone = train_model(trainer, {});
      ASSERT_EQ(arm.runs[i].steps.size(), 6u);
      for (size_t step = 0; step < 6; ++step)
        EXPECT_NEAR(arm.runs[i].steps[step].loss, alone.steps[step].loss, 1e-5) << arm.arm.label << " " << i;
      EXPECT_NEAR(arm.losses[i], alone.evals.back().loss, 1e-5) << arm.arm.label << " " << i;
      const std::string saved =
          text("models/", arm.arm.label == "mha:learning_rate=1e-2" ? "mha-learning_rate-1e-2" : arm.arm.label, "-seed",
               3 + i);
      const Model stored = load_model_folder(folder.path() / saved);
      const Tensor mine = model->named_parameters()["lm_head.weight"];
      EXPECT_TRUE(at::allclose(stored->named_parameters()["lm_head.weight"], mine, 1e-4, 1e-5)) << saved;
    }
  EXPECT_EQ(all.arms[1].losses, all.arms[2].losses) << "two arms of one model";
  EXPECT_NE(all.arms[1].losses[0], all.arms[1].losses[1]) << "two seeds";
  EXPECT_NE(all.arms[1].runs[0].steps[0].loss, all.arms[1].runs[1].steps[0].loss);
}

TEST(Comparison, ArmsShareTheStartOfEqualTensors) {
  const RunConfig run = small_run();
  const auto arms = parse_arms("mha,dcmha,talking_heads,differential_v1", json::object());
  Model mha = testing::fresh(arm_config(run, arms[0], 40), 5);
  for (size_t i = 1; i < arms.size(); ++i) {
    Model other = testing::fresh(arm_config(run, arms[i], 40), 5);
    for (const auto& item : mha->named_parameters()) {
      const Tensor* same = other->named_parameters().find(item.key());
      if (same && same->sizes() == item.value().sizes()) EXPECT_TRUE(same->equal(item.value())) << item.key();
    }
  }
  const auto first = [](const Model& m, const char* name) { return m.ptr()->named_parameters()[name]; };
  EXPECT_FALSE(
      first(mha, "model.layers.0.self_attn.q_proj.weight").equal(first(mha, "model.layers.1.self_attn.q_proj.weight")));
  EXPECT_FALSE(
      first(mha, "model.layers.0.self_attn.q_proj.weight").equal(first(mha, "model.layers.0.self_attn.k_proj.weight")));
}

TEST(Comparison, TrainsAllArmsAndReports) {
  const TemporaryFolder folder;
  RunConfig run = small_run();
  run.train.eval_every = 4;
  const TextData data = load_text_data(run);
  const CompareOptions options{
      .arms = parse_arms("mha,dcmha", json::object()), .seeds = 2, .jobs = 2, .threads = 2, .folder = folder.path()};
  Comparison all = planned_comparison(run, data, options);
  run_comparison(all, run, data, options);
  ASSERT_EQ(all.arms[1].losses.size(), 2u);
  EXPECT_EQ(verdict(all, all.arms[0]), "baseline");
  EXPECT_GT(all.arms[1].tokens_per_second, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "models/dcmha-seed2/model.safetensors"));
  const json rows = json::parse(render(comparison_table(all, run, data, Match::parameters), TableFormat::json));
  for (size_t i = 0; i < 2; ++i) {
    const ArmResult& arm = all.arms[i];
    EXPECT_EQ(rows[i]["mechanism"], arm.arm.label);
    EXPECT_DOUBLE_EQ(rows[i]["validation_loss"], (arm.losses[0] + arm.losses[1]) / 2);
    EXPECT_DOUBLE_EQ(rows[i]["bits_per_byte"], (arm.losses[0] + arm.losses[1]) / 2 / std::log(2.0));
    EXPECT_EQ(rows[i]["parameters"], arm.cost.parameters);
    EXPECT_EQ(rows[i]["ffn_width"], arm.config.intermediate_size());
    EXPECT_EQ(rows[i]["flops_per_token"], arm.cost.flops_per_token);
    EXPECT_EQ(rows[i]["tokens_per_second"], arm.tokens_per_second);
    EXPECT_EQ(rows[i]["kv_bytes_per_token"], arm.cost.cache_bytes_per_token);
  }
  const ReportData report = comparison_report(all, run, data, {"motet compare", "a", {"x", "y"}, Match::parameters});
  EXPECT_EQ(report.curves.size(), 4u);
  bool before = false, after = false;
  for (const AttentionPicture& p : report.pictures)
    before |= p.kind == "before", after |= p.mechanism == "dcmha" && p.kind == "after";
  EXPECT_TRUE(before && after);
  for (size_t arm = 0; arm < 2; ++arm) {
    for (size_t seed = 0; seed < 2; ++seed) {
      const Curve& curve = report.curves[2 * arm + seed];
      const TrainResult& own = all.arms[arm].runs[seed];
      EXPECT_EQ(curve.mechanism, all.arms[arm].arm.label);
      EXPECT_EQ(curve.seed, 1 + seed);
      EXPECT_EQ(curve.step, (std::vector<double>{1, 2, 3, 4, 5, 6}));
      EXPECT_EQ(curve.loss.back(), own.steps.back().loss);
      EXPECT_EQ(curve.eval_step, (std::vector<double>{4, 6}));
      EXPECT_EQ(curve.eval_loss.back(), own.evals.back().loss);
      EXPECT_EQ(curve.tokens_per_step, 64);
      EXPECT_DOUBLE_EQ(curve.seconds_per_step * all.arms[arm].tokens_per_second, 64);
    }
    const CostPoint& point = report.points[arm];
    ASSERT_EQ(report.cost_axes.size(), 4u);
    const ModelCost& cost = all.arms[arm].cost;
    EXPECT_EQ(point.costs, (std::vector<double>{cost.flops_per_token, all.arms[arm].tokens_per_second,
                                                static_cast<double>(cost.parameters),
                                                static_cast<double>(cost.cache_bytes_per_token)}));
    EXPECT_EQ(report.cost_axes[1].name, "Training speed");
    EXPECT_TRUE(report.cost_axes[1].more_is_better);
    EXPECT_EQ(report.cost_axes[0].name, "FLOPs per token");
    EXPECT_EQ(report.cost_axes[2].name, "Parameters");
    EXPECT_EQ(report.cost_axes[3].name, "KV cache");
  }
}

TEST(Comparison, AnArmThatDivergesEndsNoOther) {
  const TemporaryFolder folder;
  const RunConfig run = small_run();
  const TextData data = load_text_data(run);
  const CompareOptions options{.arms = parse_arms("mha,differential_v1:lambda_std=10,dcmha", json::object()),
                               .seeds = 2,
                               .match = Match::none,
                               .jobs = 2,
                               .threads = 2,
                               .folder = folder.path()};
  Comparison all = planned_comparison(run, data, options);
  run_comparison(all, run, data, options);
  EXPECT_EQ(all.arms[0].losses.size(), 2u);
  EXPECT_EQ(all.arms[2].losses.size(), 2u);
  EXPECT_TRUE(all.arms[1].losses.empty());
  EXPECT_EQ(verdict(all, all.arms[1]), "diverged");
  EXPECT_EQ(all.failures().find("differential_v1:lambda_std=10 diverged: seed "), 0u) << all.failures();
  EXPECT_NE(all.failures().find("the loss is "), std::string::npos) << all.failures();
  EXPECT_NE(comparison_summary(all).find(all.failures()), std::string::npos);
  const json rows = json::parse(render(comparison_table(all, run, data, Match::none), TableFormat::json));
  EXPECT_EQ(rows[1]["verdict"], "diverged");
  EXPECT_TRUE(rows[1]["validation_loss"].is_null());
  EXPECT_TRUE(rows[2]["validation_loss"].is_number());
  const ReportData report = comparison_report(all, run, data, {"motet compare", "a", {"x", "", "y"}, Match::none});
  EXPECT_EQ(report.samples.size(), 2u);
  EXPECT_EQ(report.points.size(), 2u);
}

TEST(Comparison, WithoutABaselineNothingIsBetterOrWorse) {
  Comparison all;
  all.arms = {{.arm = {"mha", {}}, .failure = "seed 1, step 1: the loss is nan"},
              {.arm = {"dcmha", {}}, .losses = {1.0, 1.1}},
              {.arm = {"coca", {}}, .losses = {2.0, 2.1}}};
  judge(all);
  EXPECT_EQ(verdict(all, all.arms[0]), "diverged");
  EXPECT_EQ(verdict(all, all.arms[1]), "no baseline");
  EXPECT_EQ(
      comparison_summary(all),
      "dcmha has the lowest validation loss, 1.0500 nats a token. mha diverged: seed 1, step 1: the loss is nan.");
  all.arms.resize(1);
  EXPECT_EQ(all.lowest(), nullptr);
  EXPECT_EQ(comparison_summary(all), "mha diverged: seed 1, step 1: the loss is nan.");
}

TEST(Comparison, SummaryNamesTheBaselineThatIsThere) {
  Comparison all;
  all.arms = {{.arm = {"dcmha", {}}, .losses = {1.0}}};
  EXPECT_EQ(comparison_summary(all),
            "dcmha has a validation loss of 1.0000 nats a token; there is nothing to compare with.");
  all.arms.push_back({.arm = {"coca", {}}, .losses = {2.0}});
  EXPECT_NE(comparison_summary(all).find("no other mechanism beats dcmha here"), std::string::npos);
}

TEST(Comparison, ABudgetOfMinutesShowsTheStepsOfEachArm) {
  RunConfig run = small_run();
  run.train.steps = 0, run.train.minutes = 2.0;
  Comparison all;
  for (const auto& [label, steps] : {std::pair("mha", 10), std::pair("dcmha", 4)}) {
    const Arm arm = parse_arms(label, json::object())[0];
    TrainResult result;
    result.steps.resize(static_cast<size_t>(steps));
    all.arms.push_back({.arm = arm, .config = arm_config(run, arm, 40), .runs = {result}, .losses = {2.0}});
  }
  const Table table = comparison_table(all, run, TextData{}, Match::none);
  const json rows = json::parse(render(table, TableFormat::json));
  EXPECT_EQ(rows[0]["steps"], 10);
  EXPECT_EQ(rows[0]["tokens"], 10 * 4 * 16);
  EXPECT_EQ(rows[1]["steps"], 4);
  EXPECT_EQ(table.note.find("10 steps"), std::string::npos) << table.note;
  EXPECT_NE(table.note.find("2 minutes of training steps for each model"), std::string::npos) << table.note;
}

// Two arms of one model must show one memory, wherever they stand in the list.
TEST(Comparison, MemoryDoesNotDependOnTheOrderOfTheArms) {
  const TemporaryFolder folder;
  RunConfig run = small_run();
  run.train.context = 128, run.train.batch_size = 16, run.train.steps = 1;
  const TextData data = load_text_data(run);
  const CompareOptions options{.arms = parse_arms("mha,dcmha,softmax", json::object()),
                               .match = Match::none,
                               .threads = 2,
                               .folder = folder.path()};
  Comparison all = planned_comparison(run, data, options);
  run_comparison(all, run, data, options);
  if (all.arms[0].peak_bytes == 0) GTEST_SKIP() << "the kernel does not tell";
  const double first = static_cast<double>(all.arms[0].peak_bytes), last = static_cast<double>(all.arms[2].peak_bytes);
  EXPECT_NEAR(first / last, 1, 0.08) << first << " " << last;
}

// Its allocator counts every byte; a thread of autograd may drop a gradient late.
TEST(Comparison, MemoryIsThatOfTheDevice) {
  const TemporaryFolder folder;
  RunConfig run = small_run();
  run.train.steps = 1, run.train.device = other_name();
  const TextData data = two_texts();
  const CompareOptions options{.arms = parse_arms("mha,dcmha,softmax", json::object()),
                               .match = Match::none,
                               .threads = 1,
                               .folder = folder.path()};
  Comparison all = planned_comparison(run, data, options);
  run_comparison(all, run, data, options);
  const double first = static_cast<double>(all.arms[0].peak_bytes), last = static_cast<double>(all.arms[2].peak_bytes);
  EXPECT_NEAR(first / last, 1, 0.05) << first << " " << last;
  EXPECT_GT(all.arms[0].peak_bytes, 4 * 4 * all.arms[0].cost.parameters);
  EXPECT_LT(all.arms[0].peak_bytes, 32 * 4 * all.arms[0].cost.parameters);
  EXPECT_GT(all.arms[1].peak_bytes, all.arms[0].peak_bytes);
}

// Losses of mha and of one other arm, judged.
Comparison judged(std::vector<double> baseline, std::vector<double> other, double margin = 0.01) {
  Comparison all;
  all.margin = margin;
  all.arms = {{.arm = {"mha", {}}, .losses = std::move(baseline)}, {.arm = {"dcmha", {}}, .losses = std::move(other)}};
  for (ArmResult& arm : all.arms) arm.runs.resize(arm.losses.size());
  judge(all);
  return all;
}

std::string verdict_of(const Comparison& all) { return verdict(all, all.arms[1]); }

TEST(Comparison, OneSeedGivesNoVerdict) {
  const Comparison all = judged({2.0}, {1.0});
  EXPECT_EQ(verdict_of(all), "one seed");
  EXPECT_EQ(
      comparison_summary(all),
      "dcmha has the lowest validation loss, 1.0000 nats a token, 1.0000 below mha. One seed gives no verdict: the "
      "difference may be noise.");
}

TEST(Comparison, FewSeedsGiveAVerdictBeyondTheMarginAlone) {
  // Differences -1, -1.01, -1.02 and their mirror.
  const Comparison better = judged({2, 2.01, 2.02}, {1, 1, 1}), worse = judged({1, 1, 1}, {2, 2.01, 2.02});
  EXPECT_EQ(verdict_of(better), "better");
  EXPECT_EQ(verdict_of(worse), "worse");
  EXPECT_LT(better.arms[1].difference.mean, 0);
  EXPECT_NE(comparison_summary(better).find("1.0100 below mha (95 % interval 0.9852 to 1.0348, p = 0.000): the best"),
            std::string::npos)
      << comparison_summary(better);
  EXPECT_NE(comparison_summary(worse).find("mha has the lowest validation loss, 1.0000 nats a token; no other"),
            std::string::npos);
  // The interval of -1 +- .0248 lies beyond .98, not beyond .99.
  EXPECT_EQ(verdict_of(judged({2, 2.01, 2.02}, {1, 1, 1}, 0.98)), "better");
  EXPECT_EQ(verdict_of(judged({2, 2.01, 2.02}, {1, 1, 1}, 0.99)), "n too small");
  EXPECT_EQ(verdict_of(judged({1, 1, 1}, {2, 2.01, 2.02}, 0.98)), "worse");
  EXPECT_EQ(verdict_of(judged({1, 1, 1}, {2, 2.01, 2.02}, 0.99)), "n too small");
  const Comparison noise = judged({2.0, 2.1, 2.2}, {1.9, 2.15, 2.1});
  EXPECT_EQ(verdict_of(noise), "n too small");
  EXPECT_NE(comparison_summary(noise).find("3 seeds give no verdict"), std::string::npos);
}

TEST(Comparison, FromFiveSeedsOnTheCorrectedTestDecides) {
  const std::vector<double> base{2, 2.1, 1.9, 2, 2.05};
  const auto shifted = [&](std::vector<double> by) {
    for (size_t i = 0; i < by.size(); ++i) by[i] += base[i];
    return by;
  };
  EXPECT_EQ(verdict_of(judged(base, shifted({-.004, -.005, -.006, -.005, -.005}))), "better") << "inside of the margin";
  EXPECT_EQ(verdict_of(judged(base, shifted({.004, .005, .006, .005, .005}))), "worse");
  const Comparison noise = judged(base, shifted({-.3, .2, -.1, .25, -.3}));
  EXPECT_EQ(verdict_of(noise), "within noise");
  EXPECT_NE(comparison_summary(noise).find("the difference is within noise"), std::string::npos);
}

// p = .015 alone is .10 among seven.
TEST(Comparison, ManyArmsAreCorrectedFor) {
  Comparison all = judged({2, 2, 2, 2, 2}, {1.93, 1.97, 1.95, 1.99, 1.94});
  ASSERT_EQ(verdict_of(all), "better");
  const double alone = all.arms[1].p_value;
  EXPECT_EQ(alone, all.arms[1].difference.p);
  for (int i = 0; i < 6; ++i) {
    all.arms.push_back({.arm = {text("other", i), {}}, .losses = {2.1, 1.9, 2.05, 1.96, 2.0}});
    all.arms.back().runs.resize(5);
  }
  judge(all);
  EXPECT_NEAR(all.arms[1].p_value, 7 * alone, 1e-12);
  EXPECT_EQ(verdict_of(all), "within noise");
}

TEST(Comparison, TheTableShowsDifferenceIntervalAndP) {
  Comparison all = judged({2, 2.01, 2.02}, {1, 1, 1});
  const RunConfig run = small_run();
  for (ArmResult& arm : all.arms) arm.config = arm_config(run, parse_arms("mha", json::object())[0], 40);
  const Table table = comparison_table(all, run, TextData{}, Match::none);
  const json rows = json::parse(render(table, TableFormat::json));
  EXPECT_EQ(rows[0]["difference"], 0);
  EXPECT_TRUE(rows[0]["interval"].is_null());
  EXPECT_NEAR(rows[1]["difference"].get<double>(), -1.01, 1e-12);
  EXPECT_NEAR(rows[1]["interval"][0].get<double>(), -1.03484, 1e-5);
  EXPECT_NEAR(rows[1]["interval"][1].get<double>(), -0.98516, 1e-5);
  EXPECT_NEAR(rows[1]["p"].get<double>(), 3.3e-5, 1e-6);
  EXPECT_EQ(rows[1]["verdict"], "better");
  EXPECT_EQ(table.note.find("pairs of heads"), std::string::npos);
  all.arms[1].config = arm_config(run, parse_arms("differential_v1:num_heads=8", json::object())[0], 40);
  EXPECT_NE(comparison_table(all, run, TextData{}, Match::none)
                .note.find("dcmha has 4 pairs of heads, and its authors use 8 or more."),
            std::string::npos);
  EXPECT_NE(render(table, TableFormat::table).find("-1.0348 to -0.9852"), std::string::npos);
  EXPECT_NE(table.note.find("3 seeds"), std::string::npos) << table.note;
  EXPECT_NE(table.note.find("This shows no verdict but where the 95 % interval lies beyond +-0.01"), std::string::npos);
  EXPECT_NE(table.note.find("Learning rate 0.003 for all, not tuned for any."), std::string::npos) << table.note;
  all.arms[1].arm.train["learning_rate"] = 0.001;
  EXPECT_NE(comparison_table(all, run, TextData{}, Match::none)
                .note.find("Learning rate 0.001 for dcmha, 0.003 for the others."),
            std::string::npos);
}

TEST(Comparison, WhatAnInterruptedOneHasFinishedIsCompared) {
  Comparison all = judged({2, 2, NAN}, {1, NAN, NAN});
  all.interrupted = true;
  EXPECT_EQ(verdict_of(all), "one seed");
  EXPECT_NE(comparison_summary(all).find("Stopped before all seeds had finished: mha (2 of 3), dcmha (1 of 3)."),
            std::string::npos)
      << comparison_summary(all);
  EXPECT_EQ(verdict_of(judged({2, 2}, {NAN, NAN})), "not finished");
}

}  // namespace
}  // namespace motet
