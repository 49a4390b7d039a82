#include "motet/compare/sweep.h"

#include <gtest/gtest.h>

#include "motet/compare/compare.h"
#include "motet/compare/summary.h"
#include "motet/compare/table.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/mechanisms/mechanism.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

TEST(Sweep, SettingsAreNamedByTheirNumbers) {
  const Sweep sweep = parse_sweep("train.learning_rate=1e-3,2E-3,.5");
  EXPECT_EQ(sweep.values, (std::vector<double>{0.001, 0.002, 0.5}));
  EXPECT_EQ(sweep.setting(1), "train.learning_rate=0.002");
  EXPECT_EQ(sweep.text(), "train.learning_rate=0.001,0.002,0.5");
  EXPECT_EQ(parse_sweep(sweep.text()).values, sweep.values);
}

TEST(Sweep, AValueGoesToItsKey) {
  ModelConfig config;
  TrainOptions train;
  parse_sweep("train.beta2=0.9,0.99").apply(1, config, train);
  parse_sweep("model.norm_eps=1e-6,1e-3").apply(0, config, train);
  EXPECT_EQ(train.beta2, 0.99);
  EXPECT_EQ(config.options.norm_eps, 1e-6);
  EXPECT_EQ(train.beta1, TrainOptions().beta1);
}

TEST(Sweep, MistakesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"learning_rate", "'learning_rate', want SECTION.KEY=VALUE"},
      {"learning_rate=1,2", "want SECTION.KEY=VALUE"},
      {"data.validation=0.1,0.2", "data.validation: want a key of [train] or [model]"},
      {"train.learning_rte=1,2", "nearest is 'train.learning_rate'"},
      {"train.batch_size=8,16", "train.batch_size is no number, or changes the data, the budget"},
      {"train.seed=1,2", "train.seed is no number, or changes"},
      {"model.hidden_size=32,64", "model.hidden_size is no number, or changes"},
      {"train.schedule=cosine,wsd", "want one of train.learning_rate, train.muon_learning_rate"},
      {"train.learning_rate=0.1,fast", "--sweep: train.learning_rate: 'fast' is not"},
      {"train.learning_rate=0.1,11", "--sweep: train.learning_rate: '11' is above 10"},
      {"train.learning_rate=0.1,1e-1", "1e-1 stands there twice"},
      {"train.learning_rate=0.1", "has 1 value, want at least 2"}};
  for (const auto& [given, message] : cases) {
    const std::string got = message_of<UsageError>([&] { parse_sweep(given); });
    EXPECT_NE(got.find(message), std::string::npos) << given << ": " << got;
  }
}

// An option of attention with such a name would never reach it.
TEST(Sweep, NoMechanismHasAnOptionThatBelongsToTheTraining) {
  for (const MechanismEntry& mechanism : mechanism_registry())
    for (const Option& option : attention_options(mechanism))
      EXPECT_EQ(std::ranges::count(own_training(), option.name), 0) << mechanism.name << " " << option.name;
}

EndedRun with_loss(double loss) {
  EndedRun run;
  run.result.evals.push_back({{.loss = loss}, 1});
  return run;
}

TEST(Sweep, TheLowestLossIsChosenWhenAllHaveEnded) {
  const EndedRun diverged{.result = {}, .failure = "step 3: the loss is nan"};
  EXPECT_EQ(best_value({with_loss(3), with_loss(1), with_loss(1)}), 1u);
  EXPECT_EQ(best_value({diverged, with_loss(2)}), 1u);
  EXPECT_EQ(best_value({with_loss(3), std::nullopt, with_loss(1)}), std::nullopt);
  EXPECT_EQ(best_value({diverged, diverged}), std::nullopt);
}

struct Swept {
  RunConfig run = small_run({{"train.steps", "8"}, {"train.final_eval_windows", "20"}, {"model.hidden_size", "32"}});
  TextData data = load_text_data(run);
  CompareOptions options;

  Swept(const std::filesystem::path& folder, int64_t seeds, const char* sweep, const char* arms = "mha,dcmha") {
    options = {.arms = parse_arms(arms, json::object()),
               .seeds = seeds,
               .match = Match::none,
               .jobs = 2,
               .threads = 2,
               .folder = folder,
               .sweep = parse_sweep(sweep)};
  }
  Comparison made(Results before = {}) const {
    std::vector<Comparison> all = planned_comparisons(run, data, options);
    run_comparisons(all, run, data, options, std::move(before));
    return all.front();
  }
  // The last loss of a model that a trainer of its own trains.
  double alone(const ModelConfig& config, double rate, int64_t seed) const {
    TrainOptions train = run.train;
    train.seed = seed, train.data_seed = seed - run.train.seed + run.train.data_seed, train.learning_rate = rate;
    Model model(config);
    model->initialize(static_cast<uint64_t>(seed));
    Trainer trainer(model, data, train);
    return train_model(trainer, {}).evals.back().loss;
  }
};

TEST(Sweep, TheFirstSeedChoosesAndTheOthersAreReported) {
  const TemporaryFolder folder;
  const Swept swept(folder.path(), 3, "train.learning_rate=1e-5,1e-2");
  const Comparison all = swept.made();
  const json results = read_json((folder.path() / "results.json").string());
  for (size_t i = 0; i < 2; ++i) {
    const ArmResult& arm = all.arms[i];
    EXPECT_EQ(arm.chosen, 1u);
    ASSERT_EQ(arm.losses.size(), 2u);
    for (size_t value = 0; value < 2; ++value) {
      const double loss = swept.alone(arm.config, value == 0 ? 1e-5 : 1e-2, 1);
      EXPECT_NEAR(arm.swept[value]->loss(), loss, 1e-5);
      EXPECT_NEAR(results["sweep"][i]["values"][value]["validation_loss"].get<double>(), loss, 1e-5);
    }
    for (int64_t seed : {2, 3}) EXPECT_NEAR(arm.losses[seed - 2], swept.alone(arm.config, 1e-2, seed), 1e-5);
    EXPECT_EQ(results["sweep"][i]["mechanism"], arm.arm.label);
    EXPECT_EQ(results["sweep"][i]["chosen"], 1e-2);
    EXPECT_TRUE(
        std::filesystem::exists(folder.path() / "models" / (arm.arm.label + "-train.learning_rate-1e-05-seed1")));
  }
  EXPECT_EQ(results["runs"].size(), 8u);
  EXPECT_EQ(all.arms[1].difference.pairs, 2u);
  const Table table = comparison_table({all}, swept.run, swept.data, Match::none);
  const json rows = json::parse(render(table, TableFormat::json));
  EXPECT_EQ(rows[1]["learning_rate"], 1e-2);
  EXPECT_EQ(rows[1]["validation_loss"], mean(all.arms[1].losses));
  const std::string lost = fixed(all.arms[1].swept[0]->loss(), 4), won = fixed(all.arms[1].swept[1]->loss(), 4);
  EXPECT_NE(table.note.find(text("dcmha 1e-05: ", lost, ", 0.01: ", won, " (chosen).")), std::string::npos)
      << table.note;
  EXPECT_NE(table.note.find("\n2 seeds; "), std::string::npos) << table.note;
  EXPECT_EQ(table.note.find("not tuned"), std::string::npos) << table.note;
  EXPECT_NE(comparison_summary(all).find("train.learning_rate by the loss of the first seed: 0.01 (at the edge of the "
                                         "sweep) for mha, 0.01 (at the edge of the sweep) for dcmha."),
            std::string::npos)
      << comparison_summary(all);
}

TEST(Sweep, SeedsAreAddedWithTheValueThatWasChosen) {
  const TemporaryFolder folder, whole_folder;
  Swept swept(folder.path(), 2, "train.learning_rate=1e-5,1e-2", "mha");
  swept.made();
  swept.options.seeds = 3, swept.options.arms = parse_arms("mha,dcmha", json::object());
  const Comparison grown = swept.made(read_results(folder.path()));
  const Comparison whole = Swept(whole_folder.path(), 3, "train.learning_rate=1e-5,1e-2").made();
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(grown.arms[i].losses, whole.arms[i].losses);
  const auto without_times = [](json results) {
    results.erase("measured");
    for (json& run : results["runs"]) run.erase("seconds");
    return results;
  };
  EXPECT_EQ(without_times(read_json((folder.path() / "results.json").string())),
            without_times(read_json((whole_folder.path() / "results.json").string())));
}

TEST(Sweep, AValueThatDivergesIsNotChosen) {
  const TemporaryFolder folder;
  const Swept swept(folder.path(), 2, "train.learning_rate=1e-3,1e-5");
  Results before;
  for (const char* setting : {"train.learning_rate=0.001", "train.learning_rate=1e-05"})
    before.ended[{"dcmha", "", setting, 1}].failure = "step 3: the loss is nan";
  before.ended[{"mha", "", "train.learning_rate=0.001", 1}].failure = "step 3: the loss is nan";
  const Comparison all = swept.made(before);
  EXPECT_EQ(all.arms[0].chosen, 1u);
  EXPECT_EQ(all.arms[0].failure, "");
  EXPECT_EQ(all.arms[0].losses.size(), 1u);
  EXPECT_EQ(all.failures(), "dcmha diverged: every value of the sweep, step 3: the loss is nan");
  const json results = read_json((folder.path() / "results.json").string());
  EXPECT_EQ(results["sweep"][0]["values"][0]["failure"], "step 3: the loss is nan");
  EXPECT_FALSE(results["sweep"][1].contains("chosen"));
  const Table table = comparison_table({all}, swept.run, swept.data, Match::none);
  EXPECT_NE(table.note.find("mha 0.001: diverged, 1e-05: "), std::string::npos) << table.note;
  EXPECT_NE(table.note.find("dcmha 0.001: diverged, 1e-05: diverged."), std::string::npos) << table.note;
}

TEST(Sweep, WhatItCannotDoIsRefused) {
  const TemporaryFolder folder;
  const auto says = [&](int64_t seeds, const char* arms, const char* message) {
    const Swept swept(folder.path(), seeds, "train.learning_rate=1e-5,1e-2", arms);
    EXPECT_EQ(message_of<UsageError>([&] { planned_comparisons(swept.run, swept.data, swept.options); }), message);
  };
  says(1, "mha", "--sweep: --seeds is 1, want at least 2: the first seed chooses, the others are reported");
  says(2, "mha,dcmha:learning_rate=1e-3", "--sweep: dcmha:learning_rate=1e-3 has a learning_rate of its own");
}

TEST(Sweep, AKeyThatThisTrainingDoesNotReadIsRefused) {
  const auto said = [](const Overrides& set, const char* sweep, const char* arms = "mha") {
    const RunConfig run = small_run(set);
    CompareOptions options{.arms = parse_arms(arms, json::object()), .seeds = 2};
    if (*sweep) options.sweep = parse_sweep(sweep);
    try {
      planned_comparisons(run, two_texts(), options);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::pair<std::string, std::string> adamw{"train.optimizer", "adamw"}, muon{"train.optimizer", "muon"},
      sgd{"train.optimizer", "sgd"}, wsd{"train.schedule", "wsd"}, constant{"train.schedule", "constant"};
  EXPECT_EQ(said({adamw}, "train.momentum=0.3,0.9"),
            "--sweep: train.momentum: has no effect with optimizer = adamw, want optimizer = sgd or muon");
  EXPECT_EQ(said({sgd}, "train.momentum=0.3,0.9"), "");
  EXPECT_EQ(said({muon}, "train.momentum=0.3,0.9"), "");
  EXPECT_EQ(said({adamw}, "train.muon_learning_rate=0.01,0.02"),
            "--sweep: train.muon_learning_rate: has no effect with optimizer = adamw, want optimizer = muon");
  EXPECT_EQ(said({muon}, "train.muon_learning_rate=0.01,0.02"), "");
  for (const char* key : {"beta1", "beta2", "epsilon"}) {
    const std::string sweep = text("train.", key, "=0.1,0.2");
    EXPECT_EQ(
        said({sgd}, sweep.c_str()),
        text("--sweep: train.", key, ": has no effect with optimizer = sgd, want optimizer = adamw or adam or muon"));
    EXPECT_EQ(said({muon}, sweep.c_str()), "");
  }
  EXPECT_EQ(said({}, "train.decay=0.1,0.2"),
            "--sweep: train.decay: has no effect with schedule = cosine, want schedule = wsd");
  EXPECT_EQ(said({wsd}, "train.decay=0.1,0.2"), "");
  EXPECT_EQ(said({constant}, "train.final_learning_rate=0,0.1"),
            "--sweep: train.final_learning_rate: has no effect with schedule = constant, want schedule = cosine or "
            "linear or wsd");
  EXPECT_EQ(said({constant}, "train.warmup=0.1,0.2"), "");
  EXPECT_EQ(said({adamw}, "", "mha,mha:momentum=0.3"),
            "mha:momentum=0.3: train.momentum: has no effect with optimizer = adamw, want optimizer = sgd or muon");
  EXPECT_EQ(said({sgd}, "", "mha,mha:momentum=0.3"), "");
}

}  // namespace
}  // namespace motet
