#include "motet/report/html.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <string_view>

#include "motet/report/html_assets.h"
#include "motet/report/html_data.h"

namespace motet {
namespace {

// Outlines of shapes, the baseline's first, within -6..6, drawn by the table, the legends and the charts.
constexpr const char* kOutlines[1 + kShapes] = {
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z",                                         // disc
    "M-3.6-3.6h7.2v7.2h-7.2z",                                                    // square
    "M0-4.8 4.6 3.6h-9.2z",                                                       // triangle
    "M0-5.2 4.4 0 0 5.2-4.4 0z",                                                  // diamond
    "M0 4.8 4.6-3.6h-9.2z",                                                       // triangle, point down
    "M-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z",                          // plus
    "M0-5.2 1.5-1.7 5.2-1.5 2.3.9 3.2 4.6 0 2.5-3.2 4.6-2.3.9-5.2-1.5-1.5-1.7z",  // star
};

// Text of an element or of an attribute in double quotes.
std::string escaped_html(std::string_view raw) {
  std::string out;
  for (char c : printable(raw)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// The marks of the mechanisms, by name.
class Marks {
 public:
  explicit Marks(const ReportData& data) : names_(drawn_mechanisms(data)), baseline_(data.baseline) {}

  // The mark as a small drawing, or nothing when `name` is no mechanism that is drawn.
  std::string operator()(const std::string& name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) return "";
    const Mark mark = mark_of(names_, baseline_, static_cast<size_t>(found - names_.begin()));
    return "<svg class=\"mark c" + std::to_string(mark.colour) +
           "\" viewBox=\"-6 -6 12 12\" aria-hidden=\"true\"><use href=\"#mark" + std::to_string(mark.shape) +
           "\"/></svg>";
  }

 private:
  std::vector<std::string> names_;
  std::string baseline_;
};

struct Section {
  std::string id, title, note, body;
};

std::string section_html(const Section& section) {
  return "<section id=\"" + section.id + "\" aria-labelledby=\"" + section.id +
         "-title\">\n<div class=\"side\"><h2 id=\"" + section.id + "-title\">" + section.title + "</h2>\n" +
         section.note + "</div>\n<div class=\"body\">" + section.body + "</div>\n</section>\n";
}

// A figure that a script draws into.
std::string figure(const std::string& name) {
  return "<div class=\"figure\" data-figure=\"" + name +
         "\"><noscript><p class=\"missing\">This figure is drawn by a script, and scripts are switched off. The table, "
         "the "
         "texts and the configuration need none.</p></noscript></div>";
}

std::string paragraph(const std::string& html) { return "<p>" + html + "</p>\n"; }

// "-0.2 to -0.1" with proper minus signs; "-", which is no number, as it is.
std::string with_minus_signs(const std::string& numbers) {
  const std::string text = escaped_html(numbers);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool minus = text[i] == '-' && (i == 0 || text[i - 1] == ' ') && i + 1 < text.size();
    minus ? out += "&minus;" : out += text[i];
  }
  return out;
}

std::string cell(const std::vector<ReportColumn>& columns, const Marks& marks, size_t column, const ReportCell& value) {
  const bool numeric = column < columns.size() && columns[column].numeric;
  std::string attributes = numeric ? " class=\"number\"" : "";
  if (std::isfinite(value.value)) {
    char number[40];
    std::snprintf(number, sizeof number, "%.9g", value.value);
    attributes += std::string(" data-value=\"") + number + "\"";
  }
  if (column == 0)
    return "<th scope=\"row\"" + attributes + ">" + marks(value.text) + "<span>" + escaped_html(value.text) +
           "</span></th>";
  return "<td" + attributes + ">" + (numeric ? with_minus_signs(value.text) : escaped_html(value.text)) + "</td>";
}

std::string explanations(const ReportData& data) {
  std::string terms;
  for (const ReportColumn& column : data.columns)
    if (!column.explanation.empty())
      terms += "<dt>" + escaped_html(column.name) + "</dt><dd>" + escaped_html(column.explanation) + "</dd>\n";
  return terms.empty() ? "" : "<details><summary>What the columns mean</summary><dl>" + terms + "</dl></details>\n";
}

// A table that scrolls, in the section `id`.
std::string table_html(const ReportTable& table, const Marks& marks, const std::string& baseline,
                       const std::string& id) {
  std::string body =
      "<div class=\"scroll\" role=\"region\" aria-labelledby=\"" + id + "-title\" tabindex=\"0\"><table><thead><tr>";
  for (const ReportColumn& column : table.columns) {
    body += std::string("<th scope=\"col\"") + (column.numeric ? " class=\"number\"" : "");
    if (!column.explanation.empty()) body += " title=\"" + escaped_html(column.explanation) + "\"";
    body += "><span>" + escaped_html(column.name) + "</span>";
    if (!column.unit.empty()) body += "<small>" + escaped_html(column.unit) + "</small>";
    body += "</th>";
  }
  body += "</tr></thead>\n<tbody>";
  for (const auto& row : table.rows) {
    body += row.empty() || row[0].text != baseline ? "<tr>" : "<tr class=\"baseline\">";
    for (size_t column = 0; column < row.size(); ++column) body += cell(table.columns, marks, column, row[column]);
    body += "</tr>\n";
  }
  body += "</tbody></table></div>\n";
  for (const std::string& note : table.notes) body += "<p class=\"note\">" + escaped_html(note) + "</p>\n";
  return body;
}

Section table_section(const ReportData& data, const Marks& marks) {
  return {"table", "Results", "",
          table_html({data.columns, data.rows, data.notes}, marks, data.baseline, "table") + explanations(data)};
}

Section scaling_section(const ReportData& data, const Marks& marks) {
  return {
      "scaling", "Loss over sizes",
      paragraph("Each point is a mechanism at one size: the mean over seeds, with one standard deviation. The lines "
                "are the power laws of the table."),
      figure("scaling") + table_html(data.scaling_table, marks, data.baseline, "scaling")};
}

Section loss_section(bool thinned, bool compared) {
  std::string note = paragraph(
      "Loss in nats a token. Point at the chart, or focus it and press the arrow keys, to read every line "
      "at one step; the list beside the chart shows the values and switches lines on and off.");
  if (compared) note += paragraph("Lines are means over seeds; the bands span the best and the worst seed.");
  if (thinned) note += paragraph("Long curves are thinned: each point is the mean of the steps it stands for.");
  return {"loss", "Loss", note, figure("loss")};
}

Section traces_section() {
  return {"course", "Course of the training",
          paragraph("Point at a chart, or focus it and press the arrow keys, to read its values at one step."),
          figure("traces")};
}

Section cost_section() {
  return {
      "cost", "Cost and quality",
      paragraph(
          "Validation loss against what it costs; bars are one standard deviation over seeds. The thin line joins the "
          "mechanisms that no other beats on both."),
      figure("cost")};
}

Section attention_section(const nlohmann::json& data) {
  const auto& pictures = data["pictures"];
  const bool causal =
      std::all_of(pictures.begin(), pictures.end(), [](const auto& picture) { return picture["causal"]; });
  std::string note =
      paragraph(std::string("Each square is one head over the sample text: a row is a query, a column a key") +
                (causal ? "; a query sees itself and what came before." : "."));
  if (std::any_of(pictures.begin(), pictures.end(), [](const auto& picture) { return picture["kind"] == "after"; }))
    note += paragraph(
        "First the softmax weights of every head, then what multiplies the values once the heads are mixed. "
        "Mixed weights may be negative and need not sum to 1.");
  note += paragraph(
      "Point at a square (or focus one and press the arrow keys) to read all heads at the same place. "
      "Colours follow the square root of the weight.");
  if (const int tokens = data["tokens_cut"]; tokens > 0)
    note += paragraph("To keep this file small, the first " + std::to_string(tokens) + " tokens are shown.");
  if (const int layers = data["layers_cut"]; layers > 0)
    note += paragraph("To keep this file small, the first " + std::to_string(layers) + " layers are shown.");
  return {"attention", "Attention", note, figure("attention")};
}

Section mixing_section() {
  return {
      "mixing", "Learned mixing",
      paragraph(
          "What the mechanisms learned that does not depend on the input: maps from heads to heads, and single numbers "
          "such as &lambda;, from the first layer to the last. Rows of a map are input heads, columns output heads."),
      figure("mixing")};
}

Section texts_section(const ReportData& data, const Marks& marks) {
  std::string body = "<div class=\"texts\">";
  for (const ReportSample& sample : data.samples)
    body += "<article><h3>" + marks(sample.mechanism) + escaped_html(sample.mechanism) +
            "</h3><p class=\"sample\" dir=\"auto\">" +
            (data.sample_prompt.empty() ? "" : "<b>" + escaped_html(data.sample_prompt) + "</b>") +
            escaped_html(sample.text) + "</p></article>\n";
  return {"texts", "Generated text",
          paragraph(data.sample_prompt.empty() ? "Text that the trained models wrote."
                    : data.samples.size() == 1 ? "The trained model continued the prompt, set in bold."
                                               : "Every trained model continued the same prompt, set in bold."),
          body + "</div>"};
}

// A long list in a command may break after its commas.
std::string breakable(const std::string& html) {
  std::string out;
  for (char c : html) out += c == ',' ? ",<wbr>" : std::string(1, c);
  return out;
}

std::string command_html(const std::string& title, const std::string& copied, const std::string& command) {
  return "<h3>" + escaped_html(title) + "</h3>\n<pre class=\"code command\" data-copy=\"" + escaped_html(copied) +
         "\" tabindex=\"0\">" + breakable(escaped_html(command)) + "</pre>\n";
}

Section reproduce_section(const ReportData& data) {
  std::string body;
  if (!data.command.empty()) body += command_html("Command", "command", data.command);
  for (const auto& [name, command] : data.further_commands) body += command_html(name, "command: " + name, command);
  if (!data.configuration.empty())
    body += "<h3>Configuration</h3>\n<pre class=\"code\" data-copy=\"configuration\" tabindex=\"0\">" +
            escaped_html(data.configuration) + "</pre>\n";
  return {"reproduce", "Reproduce", paragraph("What made this page, and the settings that it was made with."), body};
}

std::vector<Section> sections(const ReportData& data, const nlohmann::json& drawn) {
  const Marks marks(data);
  std::vector<Section> all;
  if (!data.rows.empty()) all.push_back(table_section(data, marks));
  if (!data.scaling_points.empty()) all.push_back(scaling_section(data, marks));
  if (!data.curves.empty()) {
    const bool compared = std::any_of(data.curves.begin(), data.curves.end(),
                                      [&](const Curve& curve) { return curve.seed != data.curves[0].seed; });
    all.push_back(loss_section(drawn["thinned"], compared));
  }
  if (!data.traces.empty()) all.push_back(traces_section());
  if (data.points.size() > 1 && !data.cost_axes.empty()) all.push_back(cost_section());
  if (!drawn["pictures"].empty()) all.push_back(attention_section(drawn));
  if (!drawn["matrices"].empty()) all.push_back(mixing_section());
  if (!data.samples.empty()) all.push_back(texts_section(data, marks));
  if (!data.command.empty() || !data.configuration.empty()) all.push_back(reproduce_section(data));
  return all;
}

std::string head_html(const ReportData& data) {
  // The policy lets nothing in and nothing out: no file, address or form, whatever the texts of the report hold.
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
      escaped_html(data.title) + "</title>\n<style>\n";
  out += report_style();
  out += "</style>\n</head>\n<body>\n<svg class=\"marks\" aria-hidden=\"true\"><defs>";
  for (int shape = 0; shape <= kShapes; ++shape)
    out += "<path id=\"mark" + std::to_string(shape) + "\" d=\"" + kOutlines[shape] + "\"/>";
  return out + "</defs></svg>\n";
}

std::string header_html(const ReportData& data, const std::vector<Section>& all) {
  std::string out = "<header>\n<p class=\"kicker\"><b>Motet</b> " + escaped_html(data.created) + "</p>\n<h1>" +
                    escaped_html(data.title) + "</h1>\n";
  if (!data.summary.empty()) out += "<p class=\"lead\">" + escaped_html(data.summary) + "</p>\n";
  if (!data.facts.empty()) {
    out += "<dl class=\"facts\">";
    for (const auto& [name, value] : data.facts)
      out += "<div><dt>" + escaped_html(name) + "</dt><dd>" + escaped_html(value) + "</dd></div>";
    out += "</dl>\n";
  }
  out += "<nav aria-label=\"Sections\">";
  for (const Section& section : all) out += "<a href=\"#" + section.id + "\">" + section.title + "</a> ";
  return out + "</nav>\n</header>\n";
}

}  // namespace

std::string report_time() {
  char buffer[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M", std::localtime(&now));
  return buffer;
}

std::string html_report(const ReportData& data) {
  const nlohmann::json drawn = report_json(data);
  const std::vector<Section> all = sections(data, drawn);
  std::string out = head_html(data) + header_html(data, all) + "<main>\n";
  for (const Section& section : all) out += section_html(section);
  out += "</main>\n<footer><p>Written by Motet " + escaped_html(data.version) +
         ". This page is a single file and loads nothing from the network.</p></footer>\n"
         "<script type=\"application/json\" id=\"report-data\">" +
         script_json(drawn) + "</script>\n<script>\n\"use strict\";\n(() => {\n";
  out += report_script();
  return out + "})();\n</script>\n</body>\n</html>\n";
}

}  // namespace motet
