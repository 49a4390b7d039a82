// Which rate an arm trains with, and that verdicts and reports are about it.
#include "motet/experiments/rates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/experiments/report.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using testing::message_of;

const char* const kFile = R"(
claim = "composed heads lower the loss"
source = "a test"
kind = "train"

[[scale]]
name = "xs"
seeds = 3
rates = [0.5, 1, 2]
rate_seeds = 2
rate_by = "lowest loss"

[[arm]]
name = "mha"
mechanism = "mha"

[[arm]]
name = "dcmha"
mechanism = "dcmha"

[[arm]]
name = "untrained"
mechanism = "mha"
train = { steps = 1 }
rates = [1]

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

class RatesOfArms : public ::testing::Test {
 protected:
  const testing::TemporaryFolder place_;
  fs::path folder_ = place_.path() / "D4_ablation";

  void SetUp() override { fs::create_directories(folder_); }

  static std::string changed(std::string text, const std::string& from, const std::string& to) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  }
  Experiment with(const std::string& text = kFile) const {
    write_file_atomic(folder_ / "experiment.toml", text);
    return read_experiment(folder_);
  }
  std::string wrong(const std::string& from, const std::string& to) const {
    const std::string place = (folder_ / "experiment.toml").string();
    const std::string message = message_of<Error>([&] { with(changed(kFile, from, to)); });
    return message.starts_with(place + ": ") ? message.substr(place.size() + 2) : message;
  }
  // What these cells come to: `loss` of arm, rate and seed; NaN: it diverged.
  template <class Loss>
  static ExperimentResults of(const std::vector<ExperimentCell>& cells, const Loss& loss) {
    ExperimentResults out;
    for (const ExperimentCell& cell : cells) {
      CellResult result{.scale = cell.scale, .arm = cell.arm, .seed = cell.seed, .rate = cell.rate, .seconds = 6};
      if (const double number = loss(cell); std::isnan(number))
        result.failure = "diverged";
      else
        result.metrics["loss"] = number;
      out.cells[cell.hash] = result;
    }
    return out;
  }
  // At a rate of 1 mha is the better one; at their own best, 0.5 and 2, dcmha is, by 0.3 and a little for each seed.
  static double planted(const ExperimentCell& cell) {
    const std::map<std::string, std::map<double, double>> losses{{"mha", {{0.5, 3.0}, {1, 3.1}, {2, 3.5}}},
                                                                 {"dcmha", {{0.5, 3.4}, {1, 3.2}, {2, 2.7}}},
                                                                 {"untrained", {{1, 5}}}};
    const auto seed = static_cast<double>(cell.seed);
    return losses.at(cell.arm).at(cell.rate) + seed / 10 + (cell.arm == "dcmha" ? seed / 1000 : 0);
  }
};

TEST_F(RatesOfArms, AHashAtARateOfOneIsTheOneWithoutASweep) {
  const auto hashes = [&](const std::string& text) {
    std::map<std::string, double> all;
    const Experiment one = with(text);
    for (const ExperimentCell& cell : cells_of(one, one.scale("xs"))) all[cell.hash] = cell.rate;
    return all;
  };
  const std::map<std::string, double> swept = hashes(kFile);
  EXPECT_EQ(swept.size(), 3u * (3 + 3 + 1)) << "no two cells have one hash";
  const std::string plain = changed(
      changed(kFile, "rates = [0.5, 1, 2]\nrate_seeds = 2\nrate_by = \"lowest loss\"\n", ""), "rates = [1]", "");
  const std::map<std::string, double> without = hashes(plain);
  EXPECT_EQ(without.size(), 9u);
  for (const auto& [hash, rate] : without) EXPECT_TRUE(swept.contains(hash) && swept.at(hash) == 1 && rate == 1);
  EXPECT_EQ(hashes(changed(plain, "steps = 1 }", "steps = 1 }\nrates = [0.5]")), without)
      << "an arm's own rates are of a sweep";
}

TEST_F(RatesOfArms, AllSeedsTrainAtTheBestOfThem) {
  const Experiment one = with();
  const ExperimentScale& xs = one.scale("xs");
  EXPECT_EQ(planned_cells(one, xs), 7u + 7u + 3u);
  EXPECT_EQ(chosen_rates(one, xs, {}), (std::map<std::string, double>{{"untrained", 1}}));
  std::vector<ExperimentCell> open = open_cells(one, xs, {});
  EXPECT_EQ(open.size(), 6u + 6u + 3u);
  EXPECT_EQ(open[0].seed, 1);
  EXPECT_EQ(open[0].rate, 0.5);

  ExperimentResults results = of(open, planted);
  const std::map<std::string, double> wanted{{"mha", 0.5}, {"dcmha", 2}, {"untrained", 1}};
  EXPECT_EQ(chosen_rates(one, xs, results), wanted);
  open = open_cells(one, xs, results);
  ASSERT_EQ(open.size(), 2u);
  EXPECT_TRUE(open[0].arm == "mha" && open[0].rate == 0.5 && open[0].seed == 3);
  EXPECT_TRUE(open[1].arm == "dcmha" && open[1].rate == 2 && open[1].seed == 3);
  EXPECT_EQ(shown_scale(one, results), nullptr) << "seeds are missing";

  results.cells.merge(of(open, planted).cells);
  EXPECT_TRUE(open_cells(one, xs, results).empty());
  EXPECT_EQ(results.cells.size(), planned_cells(one, xs));
  const std::vector<Verdict> decided = verdicts(one, xs, results);
  EXPECT_EQ(decided[0].word, VerdictWord::confirmed) << decided[0].why;
  EXPECT_NEAR(decided[0].findings[0].difference.mean, -0.298, 1e-12);
  EXPECT_NEAR(numbers_of(one, xs, results, "loss")["mha"][2], 3.3, 1e-12);
}

TEST_F(RatesOfArms, TheChoiceWaitsForEverySeedAndLeavesOutWhatDiverged) {
  const Experiment one = with();
  const ExperimentScale& xs = one.scale("xs");
  const std::vector<ExperimentCell> open = open_cells(one, xs, {});
  for (const ExperimentCell& missing : open) {
    ExperimentResults results = of(open, planted);
    results.cells.erase(missing.hash);
    EXPECT_EQ(chosen_rates(one, xs, results).contains(missing.arm), missing.arm == "untrained") << missing.hash;
    EXPECT_EQ(chosen_rates(one, xs, results).size(), missing.arm == "untrained" ? 3u : 2u);
  }
  const auto chosen = [&](const auto& loss) { return chosen_rates(one, xs, of(open, loss)).at("dcmha"); };
  EXPECT_EQ(chosen([](const ExperimentCell& c) { return c.rate == 2 && c.seed == 2 ? NAN : planted(c); }), 1)
      << "one seed of the best rate diverged";
  EXPECT_EQ(chosen([](const ExperimentCell& c) { return c.rate == 2 && c.seed == 1 ? NAN : planted(c); }), 1);
  EXPECT_EQ(chosen([](const ExperimentCell&) { return NAN; }), 0.5) << "all did";
  EXPECT_EQ(chosen([](const ExperimentCell&) { return 3.0; }), 0.5) << "the smallest of equal ones";
  EXPECT_EQ(chosen([](const ExperimentCell& c) { return c.rate == 1 ? (c.seed == 1 ? 1.0 : 2.9) : 2.0; }), 1)
      << "the mean of both seeds";
  EXPECT_EQ(chosen([](const ExperimentCell& c) { return c.rate == 1 ? (c.seed == 1 ? 1.0 : 3.1) : 2.0; }), 0.5);
  ExperimentResults more = of(cells_of(one, xs), planted);  // a seed that is behind those that choose
  for (const ExperimentCell& cell : cells_of(one, xs))
    if (cell.seed == 3 && cell.rate == 1) more.cells[cell.hash].metrics["loss"] = -100;
  EXPECT_EQ(chosen_rates(one, xs, more).at("dcmha"), 2);
}

TEST_F(RatesOfArms, AnAccuracyIsBestWhereItIsHighest) {
  const Experiment one = with(changed(kFile, "lowest loss", "highest loss"));
  const ExperimentScale& xs = one.scale("xs");
  const std::map<std::string, double> wanted{{"mha", 2}, {"dcmha", 0.5}, {"untrained", 1}};
  EXPECT_EQ(chosen_rates(one, xs, of(open_cells(one, xs, {}), planted)), wanted);
  EXPECT_EQ(with(changed(kFile, "rate_by = \"lowest loss\"\n", "")).scale("xs").sweep.metric, "validation_loss");
  EXPECT_EQ(with(changed(kFile, "lowest loss", "highest accuracy{n=64, held out}")).scale("xs").sweep.metric,
            "accuracy{n=64, held out}");
}

TEST_F(RatesOfArms, ResultsAndReportsSayWhatWasChosen) {
  const Experiment one = with();
  const ExperimentScale& xs = one.scale("xs");
  for (int round = 0; round < 2; ++round)
    for (const ExperimentCell& cell : open_cells(one, xs, read_results(one))) add_results(one, of({cell}, planted));
  const std::string stored = read_file(folder_ / "results.json");
  EXPECT_NE(stored.find(R"("rates": {
"xs": {"dcmha":2.0,"mha":0.5,"untrained":1.0})"),
            std::string::npos)
      << stored;
  const ExperimentResults results = read_results(one);
  EXPECT_EQ(results.cells.size(), planned_cells(one, xs));
  for (const ExperimentCell& cell : counted_cells(one, xs, results))
    EXPECT_EQ(results.cells.at(cell.hash).rate, cell.rate);
  const std::string text = results_text(one, results);
  EXPECT_NE(text.find("| dcmha     |          - |   2 (edge) | 2.902 ± 0.1 | 3 of 3 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| untrained |          - |          1 |"), std::string::npos) << text;
  EXPECT_NE(text.find("of 0.5, 1, 2 times the learning rate, with the lowest mean loss over its first 2 seeds"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("2 min of one job"), std::string::npos) << "17 cells of 6 s, not only the 9 that count: " << text;
}

TEST_F(RatesOfArms, CellsOfRatesThatAreGoneAreVoid) {
  const Experiment one = with();
  const ExperimentResults results = of(cells_of(one, one.scale("xs")), planted);
  EXPECT_TRUE(void_cells(one, results).empty());
  EXPECT_TRUE(void_cells(with(changed(kFile, "[0.5, 1, 2]", "[0.25, 0.5, 1, 2, 4]")), results).empty());
  const std::map<std::string, size_t> gone{{"dcmha", 3}, {"mha", 3}};
  EXPECT_EQ(void_cells(with(changed(kFile, "[0.5, 1, 2]", "[1, 2]")), results), gone);
}

TEST_F(RatesOfArms, MistakesAreNamed) {
  EXPECT_EQ(wrong("[0.5, 1, 2]", "[1]"), "scale xs: rates: has 1, want at least 2");
  EXPECT_EQ(wrong("[0.5, 1, 2]", "[]"), "scale xs: rates: has 0, want at least 2");
  EXPECT_EQ(wrong("[0.5, 1, 2]", "[2, 1]"), "scale xs: rates: want factors that rise, as in [0.5, 1, 2]");
  EXPECT_EQ(wrong("[0.5, 1, 2]", "[0, 1]"), "scale xs: rates: want factors that rise, as in [0.5, 1, 2]");
  EXPECT_EQ(wrong("[0.5, 1, 2]", "[1, 1]"), "scale xs: rates: want factors that rise, as in [0.5, 1, 2]");
  EXPECT_EQ(wrong("[0.5, 1, 2]", "[\"1\", 2]"), "scale: rates: want a list of numbers");
  EXPECT_EQ(wrong("[0.5, 1, 2]", "2"), "scale: rates: want a list");
  EXPECT_EQ(wrong("rates = [1]", "rates = [-1]"), "arm 'untrained': rates: want factors that rise, as in [0.5, 1, 2]");
  EXPECT_EQ(wrong("rate_seeds = 2", "rate_seeds = 4"), "scale xs: rate_seeds is 4, want 1 to its 3 seeds");
  EXPECT_EQ(wrong("rate_seeds = 2", "rate_seeds = 1.5"), "scale xs: rate_seeds is 1.5, want 1 to its 3 seeds");
  EXPECT_EQ(wrong("rate_seeds = 2", "rate_seeds = 0"), "scale xs: rate_seeds is 0, want 1 to its 3 seeds");
  EXPECT_EQ(wrong("rates = [0.5, 1, 2]\n", ""), "scale xs: rate_seeds and rate_by want rates");
  EXPECT_EQ(wrong("lowest loss", "loss"),
            "scale xs: rate_by is 'loss', want lowest or highest and a metric, as in \"lowest validation_loss\"");
  EXPECT_EQ(wrong("lowest loss", "least loss"),
            "scale xs: rate_by is 'least loss', want lowest or highest and a metric, as in \"lowest validation_loss\"");
  EXPECT_EQ(wrong("kind = \"train\"", "kind = \"bench\""),
            "scale xs: rates: cells of kind bench have none, want kind train");
}

}  // namespace
}  // namespace motet
