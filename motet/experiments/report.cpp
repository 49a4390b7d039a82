#include "motet/experiments/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "motet/core/error.h"
#include "motet/core/version.h"
#include "motet/experiments/rates.h"

namespace motet {
namespace {

std::string number(double x, const char* format = "%.4g") {
  if (!std::isfinite(x)) return "-";
  char shown[32];
  std::snprintf(shown, sizeof shown, format, x);
  return shown;
}

std::vector<double> finite(const std::vector<double>& all) {
  std::vector<double> out;
  std::ranges::copy_if(all, std::back_inserter(out), [](double x) { return std::isfinite(x); });
  return out;
}

// Those that claims and controls are about, in their order.
std::vector<std::string> metrics_of(const Experiment& experiment) {
  std::vector<std::string> all;
  const auto add = [&](const std::string& metric) {
    if (std::ranges::find(all, metric) == all.end()) all.push_back(metric);
  };
  for (const Claim& claim : experiment.claims) add(claim.metric);
  for (const Control& control : experiment.controls) add(control.metric);
  return all;
}

double seconds_of(const Experiment& experiment, const ExperimentScale& scale, const ExperimentResults& results) {
  double seconds = 0;
  for (const ExperimentCell& cell : cells_of(experiment, scale))
    if (const auto found = results.cells.find(cell.hash); found != results.cells.end())
      seconds += found->second.seconds;
  return seconds;
}

std::string machines_of(const ExperimentResults& results) {
  std::set<std::string> names;
  for (const auto& [hash, cell] : results.cells) names.insert(cell.machine);
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : "; ") + name;
  return out;
}

// An arm's mean, and its spread over the seeds.
std::string shown_mean(const std::vector<double>& all) {
  const std::vector<double> ended = finite(all);
  if (ended.empty()) return "-";
  return ended.size() == 1 ? number(ended[0]) : number(mean(ended)) + " ± " + number(deviation(ended), "%.2g");
}

Table arms_table(const Experiment& experiment, const ExperimentScale& scale, const ExperimentResults& results) {
  Table table{.columns = {{"arm", Align::left}, {"parameters"}}};
  const bool sweeps = !scale.sweep.factors.empty();
  if (sweeps) table.columns.push_back({"rate"});
  const std::map<std::string, double> rates = chosen_rates(experiment, scale, results);
  const std::vector<ExperimentCell> counted = counted_cells(experiment, scale, results);
  const std::vector<std::string> metrics = metrics_of(experiment);
  std::map<std::string, ArmNumbers> numbers;
  for (const std::string& metric : metrics) {
    table.columns.push_back({metric});
    numbers[metric] = numbers_of(experiment, scale, results, metric);
  }
  table.columns.push_back({"seeds"}), table.columns.push_back({"failed", Align::left});
  bool failed = false;
  for (const ExperimentArm& arm : experiment.arms) {
    int64_t parameters = 0;
    size_t seeds = 0;
    std::string failure;
    for (const ExperimentCell& cell : counted)
      if (const auto found = results.cells.find(cell.hash); cell.arm == arm.name && found != results.cells.end()) {
        ++seeds;
        parameters = found->second.parameters;
        const std::string& whole = found->second.failure;  // "step 4: the loss is nan; the first number ..."
        if (!whole.empty()) failure = whole.substr(0, whole.find(';')), failed = true;
      }
    std::vector<Cell> row{arm.name, parameters > 0 ? short_count(static_cast<double>(parameters)) : "-"};
    if (sweeps) row.emplace_back(shown_rate(scale, arm, rates));
    for (const std::string& metric : metrics) row.emplace_back(shown_mean(numbers[metric][arm.name]));
    row.emplace_back(text(seeds, " of ", scale.seeds)), row.emplace_back(failure);
    table.rows.push_back(std::move(row));
  }
  if (!failed) {  // the column of what failed is there when something did
    table.columns.pop_back();
    for (auto& row : table.rows) row.pop_back();
  }
  return table;
}

// The finding that made the verdict: the weakest one of its word, by p and, of findings without one or alike, by size.
const Finding* deciding(const Verdict& verdict) {
  const auto weaker = [](const Finding& a, const Finding& b) {
    const double p = std::isnan(a.p) ? 0 : a.p, q = std::isnan(b.p) ? 0 : b.p;
    return p != q ? p > q : std::abs(a.difference.mean) < std::abs(b.difference.mean);
  };
  const Finding* weakest = nullptr;
  for (const Finding& f : verdict.findings)
    if (f.word == verdict.word && (!weakest || weaker(f, *weakest))) weakest = &f;
  return weakest || verdict.findings.empty() ? weakest : &verdict.findings.front();
}

std::string shown_finding(const Finding& f) {
  if (f.difference.pairs == 0) return "-";
  std::string out = f.of + " " + number(f.difference.mean, "%+.3g");
  if (f.difference.pairs > 1 && !std::isnan(f.p))  // an exact claim is of the seeds that ran, not of others
    out += " [" + number(f.difference.low, "%.3g") + ", " + number(f.difference.high, "%.3g") + "]";
  return out;
}

std::string word(const Verdict& verdict) { return word_of(verdict_words(), verdict.word); }

std::string cost(double seconds) {
  return seconds >= 90 ? text(std::lround(seconds / 60), " min") : text(std::lround(seconds), " s");
}

// Of one without a scale that is done.
std::string state_of(const Experiment& experiment, const ExperimentResults& results) {
  if (!experiment.not_run.empty()) return "not run here";
  return results.cells.empty() ? "not run yet" : "begun";
}

// Whether two scales of an experiment say different things of a claim; "" when not.
std::string disagreement(const Experiment& experiment, const ExperimentResults& results) {
  std::string out;
  const ExperimentScale* shown = shown_scale(experiment, results);
  if (!shown) return out;
  const std::vector<Verdict> last = verdicts(experiment, *shown, results);
  for (const ExperimentScale& scale : experiment.scales) {
    if (&scale == shown) continue;
    const std::vector<Verdict> other = verdicts(experiment, scale, results);
    for (size_t i = 0; i < other.size(); ++i)
      if (other[i].word != last[i].word)
        out += text(out.empty() ? "" : "; ", quote(experiment.claims[i].says), " is ", word(other[i]), " at ",
                    scale.name, ", ", word(last[i]), " at ", shown->name);
  }
  return out;
}

}  // namespace

std::string results_text(const Experiment& experiment, const ExperimentResults& results) {
  if (!experiment.not_run.empty()) return "Not run here, which is no verdict: " + experiment.not_run + "\n";
  std::string out;
  for (const ExperimentScale& scale : experiment.scales) {
    const std::vector<Verdict> decided = verdicts(experiment, scale, results);
    if (decided.empty()) continue;
    out += "## At " + scale.name + "\n\n";
    for (size_t i = 0; i < decided.size(); ++i)
      out += "- **" + word(decided[i]) + "**: " + experiment.claims[i].says + " (" + experiment.claims[i].metric +
             ": " + decided[i].why + ")\n";
    out += "\n" + render(arms_table(experiment, scale, results), TableFormat::markdown);
    out += "\nMean ± standard deviation over seeds; " + cost(seconds_of(experiment, scale, results)) +
           " of one job on " + machines_of(results) + ".\n" +
           (sweep_text(scale).empty() ? "" : "\n" + sweep_text(scale)) + "\n";
  }
  if (out.empty()) return "Not run yet: `motet experiment run " + experiment.id + "`.\n";
  out += "Controls: ";
  for (const Control& c : experiment.controls)
    out += text(&c == &experiment.controls.front() ? "" : "; ", c.name, ": ", c.metric, " of ", c.arm,
                c.below ? " below " : " above ", number(c.limit));
  out += ".\n";
  if (const std::string other = disagreement(experiment, results); !other.empty())
    out += "\nScales disagree: " + other + ".\n";
  return out;
}

std::string between_marks(const std::string& whole, const std::string& name, const std::string& inner,
                          const std::string& where) {
  const std::string begin = "<!-- " + name + " -->", end = "<!-- /" + name + " -->";
  const size_t from = whole.find(begin), to = whole.find(end);
  if (from == std::string::npos || to == std::string::npos || to < from)
    fail(where, ": want the marks ", begin, " and ", end);
  return whole.substr(0, from) + begin + "\n" + inner + whole.substr(to);
}

std::string readme_with(const std::string& readme, const Experiment& experiment, const ExperimentResults& results,
                        const std::string& where) {
  std::string head =
      "# " + experiment.id + ": " + experiment.title + "\n\n" + experiment.claim + " (" + experiment.source + ").\n";
  if (!experiment.published.empty()) head += "Published: " + experiment.published + ".\n";
  if (!experiment.deviations.empty()) head += "\nWhat differs from how it was published:\n\n";
  for (const std::string& one : experiment.deviations) head += "- " + one + "\n";
  const std::string fresh = "<!-- claim -->\n<!-- /claim -->\n\n<!-- results -->\n<!-- /results -->\n";
  const std::string whole = between_marks(readme.empty() ? fresh : readme, "claim", head, where);
  return between_marks(whole, "results", results_text(experiment, results), where);
}

Table experiments_table(const std::vector<Reported>& all) {
  Table table{.columns = {{"id", Align::left},
                          {"claim", Align::left},
                          {"verdict", Align::left},
                          {"ours, 95 % interval", Align::left, "", "ours"},
                          {"scale", Align::left},
                          {"cost"},
                          {"published", Align::left}}};
  for (const auto& [experiment, results] : all) {
    const ExperimentScale* scale = shown_scale(experiment, results);
    if (!scale) {
      table.rows.push_back(
          {experiment.id, experiment.claim, state_of(experiment, results), "-", "-", "-", experiment.published});
      continue;
    }
    const std::vector<Verdict> decided = verdicts(experiment, *scale, results);
    for (size_t i = 0; i < decided.size(); ++i) {
      const Finding* f = deciding(decided[i]);
      table.rows.push_back({i == 0 ? experiment.id : "", experiment.claims[i].says, word(decided[i]),
                            f ? shown_finding(*f) : "-", scale->name,
                            i == 0 ? cost(seconds_of(experiment, *scale, results)) : "",
                            i == 0 ? experiment.published : ""});
    }
  }
  return table;
}

std::string experiments_text(const std::vector<Reported>& all) {
  std::string out =
      "# Experiments\n\nWritten by `motet experiment report`; `experiments/README.md` says how to read a verdict. The "
      "numbers are of "
      "the claim's metric; the cost is the time of one job.\n\n";
  Table table = experiments_table(all);
  for (auto& row : table.rows)
    for (const auto& [experiment, results] : all)
      if (row[0].shown == experiment.id)
        row[0].shown = "[" + experiment.id + "](../" +
                       (experiment.folder.parent_path().filename() / experiment.folder.filename()).string() +
                       "/README.md)";
  return out + render(table, TableFormat::markdown);
}

std::string summary_text(const std::vector<Reported>& all, size_t most) {
  // Each experiment's first claims before anyone's later ones, in the order of the ids.
  std::vector<std::vector<std::string>> lines(all.size());
  size_t longest = 0, count = 0;
  for (size_t e = 0; e < all.size(); ++e) {
    const auto& [experiment, results] = all[e];
    const ExperimentScale* scale = shown_scale(experiment, results);
    if (!scale) continue;
    const std::vector<Verdict> decided = verdicts(experiment, *scale, results);
    for (size_t i = 0; i < decided.size(); ++i) {
      const Finding* f = deciding(decided[i]);
      lines[e].push_back("- " + experiment.id + ", **" + word(decided[i]) + "**: " + experiment.claims[i].says +
                         (f ? " (" + shown_finding(*f) + ")" : "") + "\n");
    }
    longest = std::max(longest, lines[e].size());
  }
  std::vector<size_t> taken(all.size());
  for (size_t round = 0; round < longest; ++round)
    for (size_t e = 0; e < all.size(); ++e)
      if (round < lines[e].size() && count < most) ++taken[e], ++count;
  std::string out;
  for (size_t e = 0; e < all.size(); ++e)
    for (size_t i = 0; i < taken[e]; ++i) out += lines[e][i];
  return out;
}

ReportData experiments_page(const std::vector<Reported>& all, const std::string& command) {
  ReportData page{.title = "Experiments"};
  page.command = command, page.created = report_time(), page.version = kVersion;
  const Table table = experiments_table(all);
  for (const Column& c : table.columns) page.columns.push_back({c.name, c.unit, "", false});
  for (const auto& row : table.rows) {
    page.rows.emplace_back();
    for (const Cell& cell : row) page.rows.back().push_back({cell.shown});
  }
  if (all.size() != 1) return page;
  const auto& [experiment, results] = all.front();
  page.title = experiment.id + ": " + experiment.title;
  page.summary = experiment.claim;
  page.facts = {{"Source", experiment.source}};
  if (!experiment.arms.empty()) page.baseline = experiment.arms.front().name;
  const ExperimentScale* scale = shown_scale(experiment, results);
  if (!scale) return page;
  page.facts.push_back({"Scale", scale->name});
  page.facts.push_back({"Machine", machines_of(results)});
  page.curves_by_tokens = true;
  for (const ExperimentCell& cell : counted_cells(experiment, *scale, results)) {
    const auto found = results.cells.find(cell.hash);
    if (found == results.cells.end() || found->second.curve.empty()) continue;
    Curve curve{.mechanism = cell.arm, .seed = static_cast<uint64_t>(cell.seed)};
    for (const auto& [tokens, loss] : found->second.curve)
      curve.eval_step.push_back(tokens), curve.eval_loss.push_back(loss);
    page.curves.push_back(std::move(curve));
  }
  return page;
}

}  // namespace motet
