// experiment.toml, its cells, results.json and what a report says of them.
#include "motet/experiments/experiment.h"

#include <gtest/gtest.h>

#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/experiments/report.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using testing::message_of;

const char* const kFile = R"(
claim = "composed heads lower the loss"
source = "arXiv:2405.08553"
kind = "train"
options = { train = { tokens = 1000 }, model = { hidden_size = 64 } }

[[scale]]
name = "xs"
seeds = 3

[[scale]]
name = "s"
seeds = 2
model = { hidden_size = 128 }

[[arm]]
name = "mha"
mechanism = "mha"

[[arm]]
name = "dcmha"
mechanism = "dcmha"
model = { num_layers = 4 }

[[control]]
name = "learns"
arm = "mha"
metric = "loss"
below = 4

[[verdict]]
says = "dcmha below mha"
metric = "loss"
less = ["dcmha", "mha"]
)";

class ExperimentFile : public ::testing::Test {
 protected:
  const testing::TemporaryFolder place_;
  const fs::path root_ = place_.path();
  fs::path folder_ = root_ / "D4_ablation";

  void SetUp() override { fs::create_directories(folder_); }

  Experiment with(const std::string& text = kFile) const {
    write_file_atomic(folder_ / "experiment.toml", text);
    return read_experiment(folder_);
  }
  // What is wrong with the file in which `from` is `to`.
  std::string wrong(const std::string& from, const std::string& to) const {
    std::string text = kFile;
    text.replace(text.find(from), from.size(), to);
    const std::string place = (folder_ / "experiment.toml").string();
    const std::string message = message_of<Error>([&] { with(text); });
    return message.starts_with(place + ": ") ? message.substr(place.size() + 2) : message;
  }
  static CellResult ended(const ExperimentCell& cell, double loss) {
    return {.scale = cell.scale,
            .arm = cell.arm,
            .seed = cell.seed,
            .metrics = {{"loss", loss}},
            .seconds = 60,
            .machine = "a processor"};
  }
  // All cells of a scale: mha 3 + seed / 10, dcmha 0.1 less and a little that differs by seed.
  static void run_all(const Experiment& experiment, const ExperimentScale& scale) {
    for (const ExperimentCell& cell : cells_of(experiment, scale)) {
      const double seed = static_cast<double>(cell.seed),
                   loss = 3 + seed / 10 - (cell.arm == "dcmha" ? 0.1 + seed / 1000 : 0);
      add_results(experiment, {.cells = {{cell.hash, ended(cell, loss)}}, .configurations = {}});
    }
  }
};

TEST_F(ExperimentFile, OptionsOfExperimentScaleAndArmLieOverEachOther) {
  const Experiment one = with();
  EXPECT_EQ(one.id, "D4");
  EXPECT_EQ(one.title, "ablation");
  const std::vector<ExperimentCell> cells = cells_of(one, one.scale("s"));
  ASSERT_EQ(cells.size(), 4u);
  EXPECT_EQ(cells[1].options.dump(),
            R"({"mechanism":"dcmha","model":{"hidden_size":128,"num_layers":4},"train":{"tokens":1000}})");
  EXPECT_EQ(cells[1].baseline, cells[0].options);
  std::string text = kFile;
  text.replace(text.find("num_layers = 4"), 14, "hidden_size = 256");
  const Experiment other = with(text);
  EXPECT_EQ(cells_of(other, other.scale("s"))[1].options["model"]["hidden_size"], 256) << "an arm wins over its scale";
  EXPECT_EQ(cells[0].seed, 1);
  EXPECT_EQ(cells[2].arm, "mha");
  EXPECT_EQ(cells[2].seed, 2);
}

TEST_F(ExperimentFile, AHashIsOfWhatIsComputedAndOfNothingElse) {
  const auto hashes = [&](const std::string& text) {
    std::vector<std::string> all;
    const Experiment one = with(text);
    for (const ExperimentCell& cell : cells_of(one, one.scale("xs"))) all.push_back(cell.hash);
    return all;
  };
  const std::vector<std::string> own = hashes(kFile);
  EXPECT_EQ(std::set(own.begin(), own.end()).size(), 6u);
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = kFile;
    text.replace(text.find(from), from.size(), to);
    const std::vector<std::string> other = hashes(text);
    size_t differ = 0;
    for (size_t i = 0; i < other.size(); ++i) differ += other[i] != own[i];
    return differ;
  };
  EXPECT_EQ(changed("lower the loss", "raise the loss"), 0u);
  EXPECT_EQ(changed("below = 4", "below = 5"), 0u);
  EXPECT_EQ(changed("hidden_size = 128", "hidden_size = 256"), 0u) << "of another scale";
  EXPECT_EQ(changed("num_layers = 4", "num_layers = 3"), 3u) << "of one arm";
  EXPECT_EQ(changed("mechanism = \"mha\"", "mechanism = \"key_size\""), 6u) << "all are matched with the first arm";
  EXPECT_EQ(changed("tokens = 1000", "tokens = 2000"), 6u);
  EXPECT_EQ(own[0], "3d7cfb10be9fb2da") << "results that are committed are found by it";
}

TEST_F(ExperimentFile, MistakesAreNamed) {
  EXPECT_EQ(wrong("source", "sourze"), "want a string 'source'");
  EXPECT_EQ(wrong("source = \"arXiv:2405.08553\"", "source = \"x\"\npublishd = \"y\""),
            "unknown key 'publishd': nearest is 'published'; known: claim, source, published, deviations, not_run, "
            "kind, arm, scale, "
            "control, verdict, options");
  EXPECT_EQ(wrong("less = [\"dcmha\", \"mha\"]", "less = [\"dcmh\", \"mha\"]"),
            "verdict 'dcmha below mha': unknown arm 'dcmh': nearest is 'dcmha'; known: mha, dcmha");
  EXPECT_EQ(wrong("arm = \"mha\"", "arm = \"mqa\""),
            "control 'learns': unknown arm 'mqa': nearest is 'mha'; known: mha, dcmha");
  EXPECT_EQ(wrong("name = \"dcmha\"", "name = \"mha\""), "arm 'mha' is there twice");
  EXPECT_EQ(wrong("less = ", "lesser = "),
            "verdict 'dcmha below mha': want one of less, equal, falls, rises, above, below");
  EXPECT_EQ(wrong("less = [\"dcmha\", \"mha\"]", "falls = [\"dcmha\", \"mha\"]\nplaces = [1]"),
            "verdict 'dcmha below mha': has 1 places, want one for each of its 2 arms");
  EXPECT_EQ(
      wrong("less = [\"dcmha\", \"mha\"]", "falls = [\"dcmha\", \"mha\"]\nplaces = [1, 1]"),
      "verdict 'dcmha below mha': places: want numbers that rise, or that fall, from arm to arm, as in [1, 2, 4]");
  EXPECT_EQ(wrong("less = [\"dcmha\", \"mha\"]", "less = [\"dcmha\", \"dcmha\"]"),
            "verdict 'dcmha below mha': names 'dcmha' twice, want other arms");
  EXPECT_EQ(wrong("less = [\"dcmha\", \"mha\"]", "less = [\"dcmha\"]"),
            "verdict 'dcmha below mha': want at least 2 arms");
  EXPECT_EQ(wrong("less = ", "equal = "), "verdict 'dcmha below mha': to be equal wants a margin above 0");
  EXPECT_EQ(wrong("below = 4", ""), "control: want one of below and above");
  EXPECT_EQ(wrong("seeds = 3", "seeds = 0"), "scale xs: seeds is 0, want 1 to 24");
  EXPECT_EQ(wrong("[[control]]\nname = \"learns\"\narm = \"mha\"\nmetric = \"loss\"\nbelow = 4", ""),
            "its arms have no control, want a [[control]]: what must hold for it to mean anything");
  EXPECT_EQ(message_of<UsageError>([&] { with().scale("m"); }), "D4: unknown scale 'm': nearest is 's'; known: xs, s");
}

// The trend is counted from the first place to the last: of equal ones it would be none, whatever the numbers are.
TEST_F(ExperimentFile, PlacesOfATrendRiseOrFall) {
  const auto said = [&](const std::string& places) {
    std::string file = kFile;
    file.replace(file.find("less = ["), 23, "falls = [\"dcmha\", \"mha\", \"third\"]\nplaces = " + places);
    file += "\n[[arm]]\nname = \"third\"\nmechanism = \"coca\"\n";
    try {
      with(file);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(said("[1, 2, 4]"), "");
  EXPECT_EQ(said("[4, 2.5, -1]"), "");
  for (const char* places : {"[1, 2, 1]", "[1, 2, 2]", "[1, 3, 2]", "[2, 1, 3]"})
    EXPECT_TRUE(
        said(places).ends_with(": places: want numbers that rise, or that fall, from arm to arm, as in [1, 2, 4]"))
        << places << said(places);
}

TEST_F(ExperimentFile, IdsAreInOrderAndTheNearestIsNamed) {
  for (const char* name : {"S2_a", "S10_b", "C1_c"}) {
    fs::create_directories(root_ / name);
    write_file_atomic(root_ / name / "experiment.toml", kFile);
  }
  fs::create_directories(root_ / "notes");
  std::string ids;
  const std::vector<Experiment> all = read_experiments(root_);
  for (const Experiment& one : all) ids += one.id + " ";
  EXPECT_EQ(ids, "C1 S2 S10 ");
  EXPECT_EQ(find_experiment(all, "S10").title, "b");
  EXPECT_EQ(message_of<UsageError>([&] { find_experiment(all, "S20"); }),
            "unknown experiment 'S20': nearest is 'S2'; known: C1, S2, S10");
  fs::create_directories(root_ / "S2_again");
  write_file_atomic(root_ / "S2_again/experiment.toml", kFile);
  EXPECT_NE(message_of<Error>([&] { read_experiments(root_); }).find("two experiments of one id"), std::string::npos);
}

TEST_F(ExperimentFile, AnExperimentThatIsNotRunSaysWhy) {
  const Experiment one = with("claim = \"c\"\nsource = \"s\"\nnot_run = \"it wants 400 GPUs\"");
  EXPECT_EQ(results_text(one, {}), "Not run here, which is no verdict: it wants 400 GPUs\n");
  EXPECT_EQ(experiments_table({{one, {}}}).rows[0][2].shown, "not run here");
}

TEST_F(ExperimentFile, CellsThatEndedAreFoundAgainAndVerdictsFollow) {
  const Experiment one = with();
  const ExperimentScale& xs = one.scale("xs");
  EXPECT_EQ(open_cells(one, xs, read_results(one)).size(), 6u);
  EXPECT_TRUE(verdicts(one, xs, read_results(one)).empty());
  run_all(one, xs);
  const ExperimentResults results = read_results(one);
  EXPECT_TRUE(open_cells(one, xs, results).empty());
  ExperimentResults some = results;
  some.cells.erase(some.cells.begin());
  EXPECT_EQ(shown_scale(one, some), nullptr) << "what has not ended says nothing yet";
  EXPECT_EQ(experiments_table({{one, some}}).rows[0][2].shown, "begun");
  EXPECT_EQ(summary_text({{one, some}}), "");
  EXPECT_EQ(open_cells(one, one.scale("s"), results).size(), 4u);
  const std::vector<Verdict> decided = verdicts(one, xs, results);
  ASSERT_EQ(decided.size(), 1u);
  EXPECT_EQ(decided[0].word, VerdictWord::confirmed);
  EXPECT_NEAR(decided[0].findings[0].difference.mean, -0.102, 1e-12);
  EXPECT_EQ(shown_scale(one, results)->name, "xs");
  const std::string text = read_file(folder_ / "results.json");
  add_results(one, {});
  EXPECT_EQ(read_file(folder_ / "results.json"), text) << "written anew it is the same";
  EXPECT_NE(text.find(R"("verdict":"confirmed")"), std::string::npos);
}

TEST_F(ExperimentFile, AChangedFileMakesItsCellsVoid) {
  run_all(with(), with().scale("xs"));
  std::string text = kFile;
  text.replace(text.find("num_layers = 4"), 14, "num_layers = 3");
  const Experiment changed = with(text);
  const std::map<std::string, size_t> gone{{"dcmha", 3}};
  EXPECT_EQ(void_cells(changed, read_results(changed)), gone);
  EXPECT_EQ(verdicts(changed, changed.scale("xs"), read_results(changed))[0].word, VerdictWord::undecided);
  drop_void(changed);
  EXPECT_EQ(read_results(changed).cells.size(), 3u);
}

TEST_F(ExperimentFile, WhatHasEndedStaysAndANumberThatIsNoneIsNoDamage) {
  const Experiment one = with();
  const ExperimentCell first = cells_of(one, one.scale("xs"))[0];
  add_results(one, {.cells = {{first.hash, ended(first, 3)}}, .configurations = {}});
  add_results(one, {.cells = {{first.hash, ended(first, 4)}}, .configurations = {}});
  EXPECT_EQ(read_results(one).cells.at(first.hash).metrics.at("loss"), 3);
  std::string text = read_file(folder_ / "results.json");
  text.replace(text.find("\"loss\":3.0"), 10, "\"loss\":null");
  write_file_atomic(folder_ / "results.json", text);
  EXPECT_TRUE(read_results(one).cells.at(first.hash).metrics.empty());
}

TEST_F(ExperimentFile, AFileOfAnotherVersionIsRefused) {
  const Experiment one = with();
  write_file_atomic(folder_ / "results.json", R"({"version": 7})");
  EXPECT_EQ(message_of<Error>([&] { read_results(one); }),
            (folder_ / "results.json").string() + ": is of version 7, want 1: of another Motet");
  write_file_atomic(folder_ / "results.json", R"({"version": 1, "cells": {"x": {}}, "configurations": {}})");
  EXPECT_NE(message_of<Error>([&] { read_results(one); }).find("is damaged"), std::string::npos);
}

TEST(ChangedKey, IsTheFirstThatDiffersAndNotWhatIsNew) {
  const nlohmann::json stored{{"train", {{"steps", 3}, {"warmup", 0.05}}}};
  nlohmann::json now = stored;
  now["train"]["dropout"] = 0;
  EXPECT_EQ(changed_key(stored, now), "");
  now["train"]["warmup"] = 0.1;
  EXPECT_EQ(changed_key(stored, now), "train.warmup was 0.05 and is 0.1");
  now["train"].erase("steps");
  EXPECT_EQ(changed_key(stored, now), "train.steps is gone");
}

TEST_F(ExperimentFile, TheReadmeHasWhatTheResultsSay) {
  const Experiment one = with();
  EXPECT_NE(readme_with("", one, {}, "x").find("Not run yet: `motet experiment run D4`."), std::string::npos);
  run_all(one, one.scale("xs"));
  const std::string made = readme_with("", one, read_results(one), "x");
  EXPECT_NE(made.find("# D4: ablation\n\ncomposed heads lower the loss (arXiv:2405.08553)."), std::string::npos)
      << made;
  EXPECT_NE(made.find("- **confirmed**: dcmha below mha (loss: dcmha - mha = -0.102 ["), std::string::npos) << made;
  EXPECT_NE(made.find("| dcmha |          - | 3.098 ± 0.099 | 3 of 3 |"), std::string::npos) << made;
  EXPECT_NE(made.find("6 min of one job on a processor."), std::string::npos) << made;
  EXPECT_EQ(readme_with(made, one, read_results(one), "x"), made);
  EXPECT_EQ(readme_with("own words\n" + made, one, read_results(one), "x"), "own words\n" + made)
      << "a person may add text";
  EXPECT_EQ(message_of<Error>([&] { readme_with("# D4\n", one, {}, "D4/README.md"); }),
            "D4/README.md: want the marks <!-- claim --> and <!-- /claim -->");
}

TEST_F(ExperimentFile, WhatFailedIsInTheTable) {
  const Experiment one = with();
  run_all(one, one.scale("xs"));
  ExperimentResults results = read_results(one);
  EXPECT_EQ(results_text(one, results).find("failed"), std::string::npos);
  CellResult& cell = results.cells.at(cells_of(one, one.scale("xs"))[1].hash);
  cell.metrics.clear(), cell.failure = "step 4: the loss is nan; the batch has tokens 1-9";
  const std::string text = results_text(one, results);
  EXPECT_NE(text.find("| 3 of 3 | step 4: the loss is nan |"), std::string::npos) << text;
}

TEST_F(ExperimentFile, ScalesThatDisagreeAreNamedAndTheLargestIsShown) {
  const Experiment one = with();
  run_all(one, one.scale("xs"));
  for (const ExperimentCell& cell : cells_of(one, one.scale("s")))
    add_results(one, {.cells = {{cell.hash, ended(cell, 3 + 0.1 * static_cast<double>(cell.seed == 1) *
                                                                (cell.arm == "mha" ? 1 : -1))}},
                      .configurations = {}});
  const ExperimentResults results = read_results(one);
  EXPECT_NE(results_text(one, results).find("Scales disagree: 'dcmha below mha' is confirmed at xs, undecided at s."),
            std::string::npos)
      << results_text(one, results);
  EXPECT_EQ(experiments_table({{one, results}}).rows[0][4].shown, "s");
  EXPECT_NE(summary_text({{one, results}}).find("- D4, **undecided**: dcmha below mha (dcmha - mha -0.1 ["),
            std::string::npos)
      << summary_text({{one, results}});
}

}  // namespace
}  // namespace motet
