#include "motet/compare/report.h"

#include <cmath>
#include <ctime>

#include "motet/compare/table.h"
#include "motet/core/error.h"
#include "motet/core/version.h"
#include "motet/formats/toml.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

std::string today() {
  char buffer[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M", std::localtime(&now));
  return buffer;
}

constexpr int64_t kPictureTokens = 48;

// Weights before and after the post mix, of each head of the first and the last layer.
void add_pictures(ReportData& report, const ArmResult& arm, const std::vector<int64_t>& tokens) {
  at::NoGradGuard no_grad;
  ModelImpl& model = *arm.model.ptr();
  const Tensor ids = ids_tensor(std::span<const int64_t>(tokens), model.device());
  const std::vector<Tensor> inputs = model.attention_inputs(ids);
  const Positions at = Positions::range(0, ids.size(1), ids.size(1), ids.device());
  const auto blocks = model.blocks();
  for (size_t layer = 0; layer < blocks.size(); ++layer) {
    if (layer != 0 && layer + 1 != blocks.size()) continue;
    Mechanism& mechanism = *blocks[layer]->self_attn;
    const AttentionMaps maps = attention_maps(mechanism.queries(inputs[layer], at), mechanism.keys(inputs[layer], at),
                                              mechanism.attention(at, at, Pass::whole));
    const bool mixes = !maps.mixed_BHTS.is_same(maps.weights_BHTS);
    for (const auto& [kind, tensor] : {std::pair("before", maps.weights_BHTS), std::pair("after", maps.mixed_BHTS)}) {
      if (kind == std::string("after") && !mixes) continue;
      for (int64_t head = 0; head < tensor.size(1); ++head) {
        const Tensor map = tensor[0][head].to(at::kCPU, at::kFloat).contiguous();
        const auto numbers = host_numbers<float>(map);
        report.pictures.push_back({arm.arm.label,
                                   static_cast<int>(layer),
                                   text("head ", head + 1),
                                   kind,
                                   static_cast<int>(head),
                                   static_cast<int>(map.size(0)),
                                   static_cast<int>(map.size(1)),
                                   {numbers.begin(), numbers.end()}});
      }
    }
  }
}

void add_learned(ReportData& report, const ArmResult& arm) {
  at::NoGradGuard no_grad;
  const auto blocks = arm.model.ptr()->blocks();
  for (size_t layer = 0; layer < blocks.size(); ++layer)
    for (const LearnedMap& map : blocks[layer]->self_attn->learned()) {
      const Tensor values = map.values_NM.to(at::kCPU, at::kDouble).contiguous();
      const auto numbers = host_numbers<double>(values);
      report.matrices.push_back({arm.arm.label,
                                 static_cast<int>(layer),
                                 map.name,
                                 static_cast<int>(values.size(0)),
                                 static_cast<int>(values.size(1)),
                                 {numbers.begin(), numbers.end()}});
    }
}

void add_curves(ReportData& report, const ArmResult& arm, uint64_t first_seed, double tokens_per_step) {
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

void add_table(ReportData& report, const Table& table) {
  for (const Column& c : table.columns) report.columns.push_back({c.name, c.unit, "", c.align == Align::right});
  for (const auto& row : table.rows) {
    std::vector<ReportCell> cells;
    for (const Cell& cell : row) cells.push_back({cell.shown, cell.value.is_number() ? cell.value.get<double>() : NAN});
    report.rows.push_back(std::move(cells));
  }
  report.notes = {table.note};
}

}  // namespace

ReportData comparison_report(Comparison& all, const RunConfig& run, const TextData& data, const Presentation& shown) {
  ReportData report;
  report.title = text("Attention mechanisms on ", data.name);
  report.summary = comparison_summary(all);
  const auto& train = run.train;
  const std::string budget =
      by_minutes(run) ? text(train.minutes, " minutes a model, steps of ") : text(train.budget_steps(), " steps of ");
  report.facts = {{"Text", data.name},
                  {"Budget", budget + std::to_string(train.tokens_per_step()) + " tokens"},
                  {"Seeds", std::to_string(all.arms[0].runs.size())},
                  {"Matched by", matched_name(shown.match)},
                  {"Context", std::to_string(train.context)}};
  report.command = shown.command;
  report.configuration = toml_text(run.as_given());
  report.created = today();
  report.version = kVersion;
  report.baseline = all.arms[all.baseline].arm.label;
  add_table(report, comparison_table(all, run, data, shown.match));
  report.sample_prompt = shown.prompt;
  report.cost_axes = {{"FLOPs per token", "FLOP"},
                      {"Training speed", "tokens/s", true},
                      {"Parameters", ""},
                      {"KV cache", "bytes/token"}};
  const int64_t length = std::min<int64_t>(kPictureTokens, train.context);
  const std::vector<int64_t> sample = data.validation->slice(0, static_cast<uint64_t>(length));
  for (int64_t id : sample) {
    const int32_t token = static_cast<int32_t>(id);
    report.sample_tokens.push_back(data.tokenizer->decode({&token, 1}));
  }
  for (size_t i = 0; i < all.arms.size(); ++i) {
    const ArmResult& arm = all.arms[i];
    add_curves(report, arm, static_cast<uint64_t>(train.seed), static_cast<double>(train.tokens_per_step()));
    if (arm.finished().empty()) continue;
    add_pictures(report, arm, sample);
    add_learned(report, arm);
    report.samples.push_back({arm.arm.label, shown.samples[i]});
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
