#include "motet/report/html.h"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "motet/report/html_data.h"

namespace motet {
namespace {

size_t occurrences(std::string_view page, std::string_view what) {
  size_t count = 0;
  for (size_t at = page.find(what); at != std::string_view::npos; at = page.find(what, at + what.size())) ++count;
  return count;
}

bool contains(std::string_view page, std::string_view what) { return page.find(what) != std::string_view::npos; }

AttentionPicture picture(const std::string& kind, int head, int side) {
  AttentionPicture out{"mha", 0, "head " + std::to_string(head + 1), kind, head, side, side, {}};
  for (int row = 0; row < side; ++row)
    for (int column = 0; column < side; ++column)
      out.values.push_back(
          column > row ? 0.0f : (kind == "after" && column == 0 ? -0.25f : 1.0f / static_cast<float>(row + 1)));
  return out;
}

ReportData small() {
  ReportData data;
  data.title = "Two mechanisms";
  data.summary = "dcmha is lower.";
  data.facts = {{"Seeds", "2"}};
  data.command = "motet compare --seeds 2";
  data.configuration = "[train]\nsteps = 3\n";
  data.version = "0.1.0";
  data.baseline = "mha";
  data.columns = {{"Mechanism", "", "", false}, {"Loss", "nats", "Validation loss"}};
  data.rows = {{{"mha"}, {"2.00", 2.0}}, {{"dcmha"}, {"-1.90", -1.9}}};
  data.notes = {"Both have 1,000 parameters."};
  data.curves = {{"mha", 1, {1, 2, 3}, {3, 2.5, 2}, {3}, {2}, 0, 0},
                 {"dcmha", 1, {1, 2, 3}, {3, 2.4, 1.9}, {3}, {1.9}, 0, 0}};
  data.traces = {{"Learning rate", "", "", false, {{"", {1, 2, 3}, {0.1, 0.2, 0.1}}}},
                 {"Entropy", "nats", "Of weights.", true, {{"layer 1", {3}, {1.5}}, {"layer 2", {3}, {NAN}}}}};
  data.further_commands = {{"Evaluate", "motet eval -m 'a b'"}};
  data.sample_prompt = "O ";
  data.samples = {{"mha", "Romeo"}, {"dcmha", "Juliet"}};
  data.sample_tokens = {"O", " ", "R"};
  data.pictures = {picture("before", 0, 3), picture("after", 0, 3)};
  data.matrices = {{"dcmha", 0, "static", 2, 2, {1, 0, 0, 1}}};
  data.cost_axes = {{"Parameters", ""}};
  data.points = {{"mha", 2.0, 0.1, {1000}}, {"dcmha", 1.9, 0.1, {1000}}};
  return data;
}

TEST(HtmlReport, HasEverySectionThatHasContent) {
  const std::string page = html_report(small());
  for (const char* id : {"table", "loss", "course", "cost", "attention", "mixing", "texts", "reproduce"})
    EXPECT_EQ(occurrences(page, "<section id=\"" + std::string(id) + "\""), 1u) << id;
  for (const char* said : {"Two mechanisms", "dcmha is lower.", "motet compare --seeds 2", "steps = 3",
                           "<h3>Evaluate</h3>", "motet eval -m &#39;a b&#39;", "Both have 1,000 parameters.",
                           "<b>O </b>Juliet", "&minus;1.90", "data-value=\"-1.9\""})
    EXPECT_TRUE(contains(page, said)) << said;
}

TEST(HtmlReport, EveryMinusOfANumberIsOne) {
  ReportData data = small();
  data.rows[0][1] = {"-"}, data.rows[1][1] = {"-0.2 to -0.1"};
  const std::string page = html_report(data);
  EXPECT_TRUE(contains(page, ">-</td>") && contains(page, ">&minus;0.2 to &minus;0.1</td>"));
}

TEST(HtmlReport, LeavesOutSectionsWithoutContent) {
  ReportData data;
  data.title = "Nothing";
  const std::string page = html_report(data);
  EXPECT_FALSE(contains(page, "<section"));
  EXPECT_TRUE(contains(page, "<h1>Nothing</h1>"));
}

TEST(HtmlReport, LoadsNothing) {
  const std::string page = html_report(small());
  for (const char* sign : {"http:", "https:", "src=", "@import", "url(\"", "fetch(", "<link"})
    EXPECT_FALSE(contains(page, sign)) << sign;
  EXPECT_TRUE(contains(page, "default-src 'none'"));
}

TEST(HtmlReport, HostileTextsDoNotBreakOut) {
  const std::string hostile = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;<!--";
  ReportData data = small();
  const size_t scripts = occurrences(html_report(data), "<script");
  data.title = data.summary = data.command = data.configuration = data.sample_prompt = data.baseline = hostile;
  data.facts = {{hostile, hostile}};
  data.columns = {{hostile, hostile, hostile, true}};
  data.rows = {{{hostile, 1}}};
  data.notes = data.sample_tokens = {hostile};
  data.samples = {{hostile, hostile}};
  data.curves[0].mechanism = data.points[0].mechanism = data.pictures[0].label = data.matrices[0].label = hostile;
  data.cost_axes[0].name = hostile;
  data.created = data.version = hostile;
  const std::string page = html_report(data);
  EXPECT_FALSE(contains(page, "<img"));
  EXPECT_FALSE(contains(page, "<!--"));
  EXPECT_EQ(occurrences(page, "<script"), scripts);
  EXPECT_EQ(occurrences(page, "</script"), scripts);
}

TEST(HtmlReport, ShowsControlCharactersAndInvalidBytes) {
  EXPECT_EQ(printable(std::string("a\0\x1b\n\t\x7f", 6)), "a\xE2\x90\x80\xE2\x90\x9B\n\t\xE2\x90\xA1");
  EXPECT_EQ(printable("\xff\xc3\xa4\xc3"), "\xEF\xBF\xBD\xC3\xA4\xEF\xBF\xBD");
}

TEST(HtmlReport, RoundsNumbersAndDropsWhatIsNotFinite) {
  EXPECT_EQ(rounded(1.23456789).dump(), "1.2346");
  EXPECT_EQ(rounded(123456).dump(), "123456");
  EXPECT_EQ(rounded(0.1f).dump(), "0.1");
  EXPECT_TRUE(rounded(NAN).is_null());
  EXPECT_TRUE(rounded(-INFINITY).is_null());
  ReportData data = small();
  data.curves[0].loss = {3, INFINITY, NAN};
  data.points[0].deviation = NAN;
  data.matrices[0].values[1] = NAN;
  const auto json = report_json(data);
  EXPECT_EQ(json["curves"][0]["y"].dump(), "[3,null,null]");
  EXPECT_TRUE(json["points"][0]["deviation"].is_null());
  EXPECT_TRUE(json["matrices"][0]["values"][1].is_null());
}

TEST(HtmlReport, LongCurvesAreThinnedToMeansAndKeepTheirLastEvaluation) {
  ReportData data = small();
  Curve& curve = data.curves[0];
  curve = {"mha", 1, {}, {}, {}, {}, 0, 0};
  for (int i = 1; i <= 50000; ++i) {
    curve.step.push_back(i), curve.loss.push_back(i % 2 ? 1.0 : 3.0);
    curve.eval_step.push_back(i), curve.eval_loss.push_back(i);
  }
  const auto json = report_json(data);
  EXPECT_TRUE(json["thinned"]);
  EXPECT_EQ(json["curves"][0]["y"].size(), 1000u);
  EXPECT_EQ(json["curves"][0]["y"][500], 2);
  EXPECT_EQ(json["curves"][0]["ey"].back(), 50000);
  EXPECT_EQ(json["axes"][json["curves"][0]["ex"].get<size_t>()].back(), 50000);
}

TEST(HtmlReport, CurvesByTokensAreCalledSo) {
  ReportData data = small();
  EXPECT_FALSE(report_json(data)["by_tokens"]);
  data.curves_by_tokens = true;
  EXPECT_TRUE(report_json(data)["by_tokens"]);
}

TEST(HtmlReport, EqualStepsAreStoredOnce) {
  const auto json = report_json(small());
  EXPECT_EQ(json["curves"][0]["x"], json["curves"][1]["x"]);
  EXPECT_EQ(json["axes"].size(), 2u);
}

TEST(HtmlReport, TracesKeepTheirLinesAndAreThinnedAlike) {
  ReportData data = small();
  auto json = report_json(data);
  ASSERT_EQ(json["traces"].size(), 2u);
  const auto& entropy = json["traces"][1];
  EXPECT_EQ(entropy["title"], "Entropy");
  EXPECT_EQ(entropy["unit"], "nats");
  EXPECT_EQ(entropy["explanation"], "Of weights.");
  EXPECT_EQ(entropy["logarithmic"], true);
  EXPECT_EQ(entropy["lines"][0]["name"], "layer 1");
  EXPECT_EQ(json["axes"][entropy["lines"][0]["x"].get<size_t>()].dump(), "[3]");
  EXPECT_EQ(entropy["lines"][0]["y"].dump(), "[1.5]");
  EXPECT_EQ(entropy["lines"][1]["y"].dump(), "[null]");
  EXPECT_FALSE(json["thinned"]);
  TraceLine& line = data.traces[0].lines[0];
  line = {};
  for (int i = 1; i <= 4000; ++i) line.step.push_back(i), line.value.push_back(i % 2 ? 1.0 : 3.0);
  json = report_json(data);
  EXPECT_TRUE(json["thinned"]);
  EXPECT_EQ(json["traces"][0]["lines"][0]["y"].size(), 400u);
  EXPECT_EQ(json["traces"][0]["lines"][0]["y"][7], 2);
}

TEST(HtmlReport, PacksPicturesCausallyAndWithSign) {
  const auto json = report_json(small());
  const auto& before = json["pictures"][0];
  EXPECT_EQ(before["data"], "//gAgAVVVVVV");  // 4095; 2048 twice; 1365 three times
  EXPECT_FALSE(before["signed"]);
  EXPECT_TRUE(json["pictures"][1]["signed"]);
  ReportData data = small();
  data.pictures[0].values[3] = NAN;
  EXPECT_EQ(report_json(data)["pictures"][0]["data"].get<std::string>().substr(2, 2), "..");
  data.pictures[0].values[2] = 0.5f;  // above the diagonal
  EXPECT_FALSE(report_json(data)["pictures"][0]["causal"]);
  data.pictures[0].rows = 7;  // does not fit its values
  EXPECT_EQ(report_json(data)["pictures"].size(), 1u);
}

TEST(HtmlReport, StaysBelowTwoMegabytesHoweverManyPictures) {
  ReportData data = small();
  data.pictures.clear();
  for (int layer = 0; layer < 24; ++layer)
    for (int head = 0; head < 64; ++head)
      for (const char* kind : {"before", "after"}) {
        data.pictures.push_back(picture(kind, head, 64));
        data.pictures.back().layer = layer;
      }
  const auto json = report_json(data);
  EXPECT_GT(json["tokens_cut"], 0);
  EXPECT_LE(json["pictures"][0]["rows"], 64);
  EXPECT_LT(html_report(data).size(), 2u << 20);
}

TEST(HtmlReport, GivesTheBaselineItsOwnMark) {
  const std::vector<std::string> names = {"a", "base", "b"};
  EXPECT_EQ(mark_of(names, "base", 0), (Mark{1, 1}));
  EXPECT_EQ(mark_of(names, "base", 1), (Mark{0, 0}));
  EXPECT_EQ(mark_of(names, "base", 2), (Mark{2, 2}));
  EXPECT_EQ(mark_of(names, "", 2), (Mark{3, 3}));
}

TEST(HtmlReport, FortyMechanismsLookDifferentAndNoneLikeTheBaseline) {
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) names.push_back("m" + std::to_string(i));
  std::set<std::pair<int, int>> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    const Mark mark = mark_of(names, "m3", i);
    EXPECT_TRUE(seen.emplace(mark.colour, mark.shape).second) << names[i];
    EXPECT_EQ(mark.shape == 0, i == 3) << names[i];
    EXPECT_EQ(mark.colour == 0, i == 3) << names[i];
  }
}

TEST(HtmlReport, EvaluationsLieAtTheStepsWhereTheyWereMade) {
  ReportData data = small();
  data.curves[0] = {"mha", 3, {1, 2, 3, 4, 5}, {5, 4, 3, 2, 1}, {2, 5}, {4.5, 1.5}, 64, 0.25};
  const auto json = report_json(data);
  const auto& curve = json["curves"][0];
  EXPECT_EQ(json["axes"][curve["x"].get<size_t>()].dump(), "[1,2,3,4,5]");
  EXPECT_EQ(curve["y"].dump(), "[5,4,3,2,1]");
  EXPECT_EQ(json["axes"][curve["ex"].get<size_t>()].dump(), "[2,5]");
  EXPECT_EQ(curve["ey"].dump(), "[4.5,1.5]");
  EXPECT_EQ(curve["seed"], 3);
  EXPECT_EQ(curve["tokens"], 64);
  EXPECT_EQ(curve["seconds"], 0.25);
}

// The values of a packed picture, as report_attention.js unpacks them; NaN where not finite, -9 where no query sees.
std::vector<double> unpacked(const nlohmann::json& picture) {
  const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const int rows = picture["rows"], columns = picture["columns"];
  const std::string packed = picture["data"];
  std::vector<double> out;
  size_t at = 0;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) {
      if (picture["causal"] && column > row + columns - rows) {
        out.push_back(-9);
        continue;
      }
      const auto level = static_cast<double>(alphabet.find(packed.at(at)) * 64 + alphabet.find(packed.at(at + 1)));
      const bool number = packed[at] != '.';
      at += 2;
      const double part = picture["signed"] ? (level - 2048) / 2047 : level / 4095;
      out.push_back(number ? part * picture["scale"].get<double>() : NAN);
    }
  EXPECT_EQ(at, packed.size());
  return out;
}

TEST(HtmlReport, APictureThatIsCutKeepsItsFirstQueriesAndTheirKeys) {
  ReportData data = small();
  data.pictures.clear();
  data.sample_tokens.assign(70, "a");
  // Enough pictures that they are cut; each value tells its row and column. 64 queries see 70 keys.
  for (int head = 0; head < 900; ++head) {
    AttentionPicture one{"mha", 0, "head", head % 2 ? "after" : "before", head, 64, 70, {}};
    for (int row = 0; row < 64; ++row)
      for (int column = 0; column < 70; ++column)
        one.values.push_back(
            column > row + 6 ? 0.0f : static_cast<float>((head % 2 ? -1 : 1) * (row + 1) / 64.0 + column / 7000.0));
    data.pictures.push_back(one);
  }
  EXPECT_EQ(report_json(data, 16 << 20)["tokens_cut"], 0);
  const auto json = report_json(data);
  for (const size_t which : {size_t{0}, size_t{1}}) {
    const auto& picture = json["pictures"][which];
    const int rows = picture["rows"];
    ASSERT_EQ(json["tokens_cut"], rows);
    ASSERT_LT(rows, 64);
    ASSERT_EQ(picture["columns"], rows + 6);
    EXPECT_EQ(picture["head"], which);
    EXPECT_EQ(picture["kind"], which ? "after" : "before");
    const std::vector<double> values = unpacked(picture);
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column <= row + 6; ++column)
        ASSERT_NEAR(values[static_cast<size_t>(row * (rows + 6) + column)],
                    (which ? -1 : 1) * (row + 1) / 64.0 + column / 7000.0, 1e-3)
            << row << " " << column;
  }
}

TEST(HtmlReport, LayersAreCutFromTheLast) {
  ReportData data = small();
  data.pictures.clear();
  for (int layer = 0; layer < 40; ++layer)
    for (int head = 0; head < 300; ++head) {
      data.pictures.push_back(picture("before", head, 16));
      data.pictures.back().layer = layer;
    }
  const auto json = report_json(data);
  const int layers = json["layers_cut"];
  ASSERT_GT(layers, 0);
  EXPECT_EQ(json["pictures"].size(), static_cast<size_t>(layers) * 300);
  for (const auto& one : json["pictures"]) ASSERT_LT(one["layer"], layers);
  EXPECT_EQ(json["pictures"][0]["layer"], 0);
}

TEST(HtmlReport, PointsCarryTheirLossDeviationAndCosts) {
  ReportData data = small();
  data.cost_axes = {{"FLOPs", "FLOP", false}, {"speed", "tokens/s", true}};
  data.points = {{"mha", 2.0, 0.125, {1000, 30}}, {"dcmha", 1.5, 0.25, {2000, 20}}};
  const auto json = report_json(data);
  EXPECT_EQ(json["cost_axes"][0]["more_is_better"], false);
  EXPECT_EQ(json["cost_axes"][1]["more_is_better"], true);
  EXPECT_EQ(json["cost_axes"][1]["unit"], "tokens/s");
  EXPECT_EQ(json["points"][1]["costs"].dump(), "[2000,20]");
  EXPECT_EQ(json["points"][1]["loss"], 1.5);
  EXPECT_EQ(json["points"][1]["deviation"], 0.25);
  EXPECT_EQ(json["mechanisms"][json["points"][1]["m"].get<size_t>()]["name"], "dcmha");
  EXPECT_EQ(json["matrices"][0]["values"].dump(), "[1,0,0,1]");
}

// What holds on paper alone, with the lines of a rule joined.
std::string print_rules(std::string_view page) {
  const size_t begin = page.find("@media print {");
  EXPECT_NE(begin, page.npos);
  const std::string_view rules = page.substr(begin, page.find("\n}\n", begin) - begin);
  return std::string(rules);
}

TEST(HtmlReport, OnPaperNothingSticksAndHeadingsStayWithTheirCharts) {
  const std::string rules = print_rules(html_report(small()));
  EXPECT_TRUE(contains(rules, ".reading-line, th:first-child, thead th:first-child { position: static }"));
  EXPECT_TRUE(contains(rules, "#loss, #cost, .side { break-inside: avoid }"));
  EXPECT_TRUE(contains(rules, "h2, h3, .side { break-after: avoid }"));
  EXPECT_TRUE(contains(rules, ".strip, .group, .with-legend, .panels > div { break-inside: avoid }"));
}

TEST(HtmlReport, TheTableHasTheWholeWidth) {
  const std::string page = html_report(small());
  EXPECT_TRUE(contains(page, "#table { display: block }"));
  EXPECT_TRUE(contains(page, "thead th { padding-top: 0; white-space: normal }"));
}

TEST(HtmlReport, EveryPictureAndButtonOfAHeadSaysWhichSideOfTheMixItIs) {
  const std::string page = html_report(small());
  EXPECT_TRUE(contains(page, "headOf(picture) + (mixed(picture.m) ? `, ${picture.kind} mixing` : \", weights\")"));
  EXPECT_EQ(occurrences(page, "\"aria-label\": fullName(picture)"), 2u);                  // picture and button
  EXPECT_EQ(occurrences(page, "\"aria-label\": `${fullName(picture)}; arrow keys"), 1u);  // what takes the keys
}

TEST(HtmlReport, TheTablesNumbersAreShownAndSortedByTheirValues) {
  ReportData data = small();
  data.rows = {{{"mha"}, {"1.2M", 1200000}}, {{"other"}, {"-", NAN}}};
  const std::string page = html_report(data);
  EXPECT_TRUE(contains(page, "<td class=\"number\" data-value=\"1200000\">1.2M</td>"));
  EXPECT_TRUE(contains(page, "<td class=\"number\">-</td>"));
  EXPECT_EQ(occurrences(page, "<tr class=\"baseline\">"), 1u);
  EXPECT_TRUE(contains(
      page, "<th scope=\"col\" class=\"number\" title=\"Validation loss\"><span>Loss</span><small>nats</small>"));
}

TEST(HtmlReport, LossesOverSizesHaveAChartAndATable) {
  ReportData data = small();
  EXPECT_FALSE(contains(html_report(data), "<section id=\"scaling\""));
  data.scaling_axes = {{"Training FLOPs", "FLOP"}, {"Parameters", ""}};
  data.scaling_points = {{"mha", "32x2", 2.5, 0.1, {1e9, 1000}}, {"dcmha", "64x2", 2.25, 0.2, {2e9, 2000}}};
  data.scaling_lines = {{"dcmha", 1, {1000, 2000}, {2.5, 2.25}}};
  data.scaling_table = {{{"mechanism", "", "", false}, {"compute factor"}}, {{{"mha"}, {"1.000", 1}}}, {"Fitted."}};
  const nlohmann::json drawn = report_json(data)["scaling"];
  EXPECT_EQ(drawn["axes"][1]["name"], "Parameters");
  EXPECT_EQ(
      drawn["points"][1],
      (nlohmann::json{{"m", 1}, {"size", "64x2"}, {"loss", 2.25}, {"deviation", 0.2}, {"costs", {2000000000, 2000}}}));
  EXPECT_EQ(drawn["lines"][0], (nlohmann::json{{"m", 1}, {"axis", 1}, {"x", {1000, 2000}}, {"y", {2.5, 2.25}}}));
  const std::string page = html_report(data);
  EXPECT_EQ(occurrences(page, "<section id=\"scaling\""), 1u);
  EXPECT_TRUE(contains(page, "data-figure=\"scaling\"") && contains(page, "figure(\"scaling\", "));
  EXPECT_TRUE(contains(page, "compute factor") && contains(page, "Fitted."));
  EXPECT_EQ(occurrences(page, "<tr class=\"baseline\">"), 2u);  // in the table of results too
}

}  // namespace
}  // namespace motet
