#include "motet/report/html.h"

#include <gtest/gtest.h>

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
  for (const char* id : {"table", "loss", "cost", "attention", "mixing", "texts", "reproduce"})
    EXPECT_EQ(occurrences(page, "<section id=\"" + std::string(id) + "\""), 1u) << id;
  for (const char* said : {"Two mechanisms", "dcmha is lower.", "motet compare --seeds 2", "steps = 3",
                           "Both have 1,000 parameters.", "<b>O </b>Juliet", "&minus;1.90", "data-value=\"-1.9\""})
    EXPECT_TRUE(contains(page, said)) << said;
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

TEST(HtmlReport, EqualStepsAreStoredOnce) {
  const auto json = report_json(small());
  EXPECT_EQ(json["curves"][0]["x"], json["curves"][1]["x"]);
  EXPECT_EQ(json["axes"].size(), 2u);
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
  EXPECT_EQ(mark_of(names, "base", 0), 1);
  EXPECT_EQ(mark_of(names, "base", 1), 0);
  EXPECT_EQ(mark_of(names, "base", 2), 2);
  EXPECT_EQ(mark_of(names, "", 2), 3);
}

}  // namespace
}  // namespace motet
