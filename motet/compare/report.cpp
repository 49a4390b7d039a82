#include "motet/compare/report.h"

#include <cmath>

#include "motet/compare/scaling.h"
#include "motet/compare/summary.h"
#include "motet/compare/table.h"
#include "motet/core/error.h"
#include "motet/core/version.h"
#include "motet/formats/toml.h"
#include "motet/probe/pictures.h"

namespace motet {
namespace {

constexpr int64_t kPictureTokens = 48;

void add_curves(ReportData& report, const ArmResult& arm, size_t first_seed, double tokens_per_step) {
  for (size_t i = 0; i < arm.runs.size(); ++i) {
    if (arm.runs[i].steps.empty()) continue;  // it did not end
    Curve curve{.mechanism = arm.arm.label,
                .seed = first_seed + i,
                .tokens_per_step = tokens_per_step,
                .seconds_per_step = arm.tokens_per_second > 0 ? tokens_per_step / arm.tokens_per_second : 0};
    for (const StepRecord& r : arm.runs[i].steps)
      curve.step.push_back(static_cast<double>(r.step)), curve.loss.push_back(r.loss);
    for (const EvalRecord& r : arm.runs[i].evals)
      curve.eval_step.push_back(static_cast<double>(r.step)), curve.eval_loss.push_back(r.loss);
    report.curves.push_back(std::move(curve));
  }
}

ReportTable report_table(const Table& table) {
  ReportTable out{.columns = {}, .rows = {}, .notes = {table.note}};
  for (const Column& c : table.columns) out.columns.push_back({c.name, c.unit, "", c.align == Align::right});
  for (const auto& row : table.rows) {
    std::vector<ReportCell> cells;
    for (const Cell& cell : row) cells.push_back({cell.shown, cell.value.is_number() ? cell.value.get<double>() : NAN});
    out.rows.push_back(std::move(cells));
  }
  return out;
}

constexpr int kLinePoints = 24;

// The law from the least to the largest of the costs.
ScalingLine line_of(const std::string& label, size_t axis, const PowerLaw& law, const std::vector<double>& costs) {
  const auto [least, most] = std::ranges::minmax(costs);
  ScalingLine line{.mechanism = label, .axis = axis, .cost = {}, .loss = {}};
  for (int i = 0; i <= kLinePoints; ++i) {
    line.cost.push_back(least * std::pow(most / least, static_cast<double>(i) / kLinePoints));
    line.loss.push_back(law.at(line.cost.back()));
  }
  return line;
}

void add_scaling(ReportData& report, const std::vector<Comparison>& comparisons, const RunConfig& run) {
  const std::vector<Scaling> laws = scaling(comparisons, run);
  if (laws.empty()) return;
  report.scaling_axes = {{"Training FLOPs", "FLOP"}, {"Parameters", ""}};
  for (const Comparison& all : comparisons)
    for (const ArmResult& arm : all.arms)
      if (!arm.finished().empty())
        report.scaling_points.push_back({arm.arm.label,
                                         all.size,
                                         mean(arm.finished()),
                                         deviation(arm.finished()),
                                         {training_flops(arm, run), static_cast<double>(arm.cost.parameters)}});
  for (const Scaling& one : laws) {
    if (one.sizes.size() < 2) continue;
    report.scaling_lines.push_back(line_of(one.label, 0, one.by_flops, one.flops));
    report.scaling_lines.push_back(line_of(one.label, 1, one.by_parameters, one.parameters));
  }
  report.scaling_table = report_table(scaling_table(laws));
}

}  // namespace

std::vector<int64_t> add_sample_tokens(ReportData& report, const TextData& data, int64_t context) {
  const std::vector<int64_t> sample =
      data.validation->slice(0, static_cast<uint64_t>(std::min<int64_t>(kPictureTokens, context)));
  report.sample_tokens = data.words(sample);
  return sample;
}

size_t pictured_size(const std::vector<Comparison>& comparisons) {
  size_t best = 0;
  const auto parameters = [](const Comparison& all) { return all.arms[all.baseline].cost.parameters; };
  for (size_t i = 0; i < comparisons.size(); ++i) {
    if (!comparisons[i].lowest()) continue;
    if (!comparisons[best].lowest() || parameters(comparisons[i]) > parameters(comparisons[best])) best = i;
  }
  return best;
}

ReportData comparison_report(const std::vector<Comparison>& comparisons, const RunConfig& run, const TextData& data,
                             const Presentation& shown) {
  const Comparison& all = comparisons[pictured_size(comparisons)];
  ReportData report;
  report.title = text("Attention mechanisms on ", data.name);
  report.summary = summary_of(comparisons, run);
  const auto& train = run.train;
  const std::string budget =
      by_minutes(run) ? text(train.minutes, " minutes a model, steps of ") : text(train.budget_steps(), " steps of ");
  report.facts = {{"Text", data.name},
                  {"Budget", budget + std::to_string(train.tokens_per_step()) + " tokens"},
                  {"Seeds", std::to_string(all.arms[0].runs.size())},
                  {"Matched by", matched_name(shown.match)},
                  {"Context", std::to_string(train.context)}};
  if (!all.size.empty()) report.facts.push_back({"Curves, costs and texts of", all.size});
  report.command = shown.command;
  report.configuration = toml_text(run.as_given());
  report.created = report_time();
  report.version = kVersion;
  report.baseline = all.arms[all.baseline].arm.label;
  const ReportTable table = report_table(comparison_table(comparisons, run, data, shown.match));
  report.columns = table.columns, report.rows = table.rows, report.notes = table.notes;
  add_scaling(report, comparisons, run);
  report.sample_prompt = shown.prompt;
  report.cost_axes = {{"FLOPs per token", "FLOP"},
                      {"Training speed", "tokens/s", true},
                      {"Parameters", ""},
                      {"KV cache", "bytes/token"}};
  const std::vector<int64_t> sample = add_sample_tokens(report, data, train.context);
  for (size_t i = 0; i < all.arms.size(); ++i) {
    const ArmResult& arm = all.arms[i];
    add_curves(report, arm, static_cast<size_t>(train.seed) + all.first_reported(),
               static_cast<double>(train.tokens_per_step()));
    if (arm.finished().empty()) continue;
    add_pictures(report, arm.arm.label, *arm.model.ptr(), sample);
    add_learned(report, arm.arm.label, *arm.model.ptr());
    if (run.model.causal) report.samples.push_back({arm.arm.label, shown.samples[i]});
    report.points.push_back(
        {arm.arm.label,
         mean(arm.finished()),
         deviation(arm.finished()),
         {arm.cost.flops_per_token, arm.tokens_per_second > 0 ? arm.tokens_per_second : NAN,
          static_cast<double>(arm.cost.parameters), static_cast<double>(arm.cost.cache_bytes_per_token)}});
  }
  return report;
}

}  // namespace motet
