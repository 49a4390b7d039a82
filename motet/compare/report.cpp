#include "motet/compare/present.h"

#include <cmath>
#include <ctime>
#include <numbers>

#include "motet/compare/statistics.h"
#include "motet/core/error.h"
#include "motet/core/version.h"
#include "motet/formats/toml.h"

namespace motet {
namespace {

const char* matched_name(Match match) {
  return match == Match::parameters ? "parameters" : match == Match::flops ? "FLOPs per token" : "nothing";
}

std::string plus_minus(const std::vector<double>& losses) {
  return losses.size() < 2 ? fixed(mean(losses), 4) : fixed(mean(losses), 4) + " ± " + fixed(deviation(losses), 4);
}

Cell number(const std::string& shown, double value) { return {shown, value}; }
const Cell kUnknown("-", nullptr);  // a loss after a failure, what could not be measured

bool by_minutes(const RunConfig& run) { return run.train.at("minutes").get<double>() > 0; }

// Steps of an arm; of a budget in minutes the mean of its seeds.
double steps_of(const ArmResult& arm, const RunConfig& run) {
  if (!by_minutes(run)) return static_cast<double>(budget_steps(run.train));
  std::vector<double> steps;
  for (const TrainResult& r : arm.runs) steps.push_back(static_cast<double>(r.steps.size()));
  return mean(steps);
}

double tokens_per_step(const RunConfig& run) {
  return run.train.at("batch_size").get<double>() * run.train.at("context").get<double>();
}

// "147 steps, 301k tokens, the same in the same order for every model", or what a budget of time means.
std::string budget_text(const RunConfig& run) {
  if (by_minutes(run))
    return text(
        run.train.at("minutes").get<double>(),
        " minutes of training steps for each model, which read the same tokens in the same order as far as they "
        "came (steps, tokens)");
  const int64_t steps = budget_steps(run.train);
  return text(steps, " steps, ", short_count(static_cast<double>(steps) * tokens_per_step(run)),
              " tokens, the same in the same order for every model");
}

std::string today() {
  char buffer[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M", std::localtime(&now));
  return buffer;
}

constexpr int64_t kPictureTokens = 48;

// Weights before and after the post mix, of each head of the first and the last layer.
void add_pictures(ReportData& report, const ArmResult& arm, const Tensor& ids) {
  at::NoGradGuard no_grad;
  ModelImpl& model = *arm.model.ptr();
  const std::vector<Tensor> inputs = model.attention_inputs(ids);
  const Positions at = Positions::range(0, ids.size(1), ids.size(1));
  const auto blocks = model.blocks();
  for (size_t layer = 0; layer < blocks.size(); ++layer) {
    if (layer != 0 && layer + 1 != blocks.size()) continue;
    Mechanism& mechanism = *blocks[layer]->self_attn;
    const AttentionMaps maps = attention_maps(mechanism.queries(inputs[layer], at), mechanism.keys(inputs[layer], at),
                                              mechanism.attention(at, at));
    const bool mixes = !maps.mixed_BHTS.is_same(maps.weights_BHTS);
    for (const auto& [kind, tensor] : {std::pair("before", maps.weights_BHTS), std::pair("after", maps.mixed_BHTS)}) {
      if (kind == std::string("after") && !mixes) continue;
      for (int64_t head = 0; head < tensor.size(1); ++head) {
        const Tensor map = tensor[0][head].to(at::kFloat).contiguous();
        report.pictures.push_back({arm.arm.label,
                                   static_cast<int>(layer),
                                   text("head ", head + 1),
                                   kind,
                                   static_cast<int>(head),
                                   static_cast<int>(map.size(0)),
                                   static_cast<int>(map.size(1)),
                                   {map.const_data_ptr<float>(), map.const_data_ptr<float>() + map.numel()}});
      }
    }
  }
}

void add_learned(ReportData& report, const ArmResult& arm) {
  at::NoGradGuard no_grad;
  const auto blocks = arm.model.ptr()->blocks();
  for (size_t layer = 0; layer < blocks.size(); ++layer)
    for (const LearnedMap& map : blocks[layer]->self_attn->learned()) {
      const Tensor values = map.values_NM.to(at::kDouble).contiguous();
      report.matrices.push_back({arm.arm.label,
                                 static_cast<int>(layer),
                                 map.name,
                                 static_cast<int>(values.size(0)),
                                 static_cast<int>(values.size(1)),
                                 {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()}});
    }
}

void add_curves(ReportData& report, const ArmResult& arm, uint64_t first_seed, double tokens_per_step) {
  for (size_t i = 0; i < arm.runs.size(); ++i) {
    if (arm.runs[i].steps.empty()) continue;  // it diverged
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

// What stands in the row of an arm, in the order of the columns.
std::vector<Cell> cells(const Comparison& all, const ArmResult& arm, const RunConfig& run, double bytes_per_token) {
  const ArmResult& baseline = all.arms[all.baseline];
  const bool finished = arm.failure.empty(), compared = finished && &arm != &baseline && baseline.failure.empty();
  const double loss = mean(arm.losses), bits = loss / std::numbers::ln2 / bytes_per_token,
               difference = loss - mean(baseline.losses);
  const auto count = [](int64_t n) { return number(std::to_string(n), static_cast<double>(n)); };
  const Cell against_itself = finished && &arm == &baseline ? number("-", 0) : kUnknown;
  std::vector<Cell> row{
      arm.arm.label,
      finished ? number(plus_minus(arm.losses), loss) : kUnknown,
      compared ? number((difference > 0 ? "+" : "") + fixed(difference, 4), difference) : against_itself,
      compared && !std::isnan(arm.p_value) ? number(fixed(arm.p_value, 3), arm.p_value) : kUnknown,
      verdict(all, arm),
      finished ? number(fixed(bits, 3), bits) : kUnknown,
      number(short_count(static_cast<double>(arm.cost.parameters)), static_cast<double>(arm.cost.parameters)),
      count(arm.config.intermediate_size()),
      number(short_count(arm.cost.flops_per_token), arm.cost.flops_per_token),
      arm.tokens_per_second > 0 ? number(short_count(arm.tokens_per_second), arm.tokens_per_second) : kUnknown,
      arm.peak_bytes > 0
          ? number(fixed(static_cast<double>(arm.peak_bytes) / 1e6, 1), static_cast<double>(arm.peak_bytes) / 1e6)
          : kUnknown,
      count(arm.cost.cache_bytes_per_token)};
  if (!by_minutes(run)) return row;
  const double steps = steps_of(arm, run), tokens = steps * tokens_per_step(run);
  row.push_back(finished ? number(fixed(steps, 0), steps) : kUnknown);
  row.push_back(finished ? number(short_count(tokens), tokens) : kUnknown);
  return row;
}

}  // namespace

Table comparison_table(const Comparison& all, const RunConfig& run, const TextData& data, Match match) {
  Table table{.columns = {{"mechanism", Align::left},
                          {"loss", Align::right, "nats/token", "validation_loss"},
                          {"vs baseline", Align::right, "", "difference"},
                          {"p", Align::right},
                          {"verdict", Align::left},
                          {"bits/byte", Align::right, "", "bits_per_byte"},
                          {"parameters", Align::right},
                          {"FFN width", Align::right, "", "ffn_width"},
                          {"FLOPs/token", Align::right, "", "flops_per_token"},
                          {"tokens/s", Align::right, "", "tokens_per_second"},
                          {"memory", Align::right, "MB", "peak_memory_mb"},
                          {"KV cache", Align::right, "B/token", "kv_bytes_per_token"}}};
  if (by_minutes(run)) table.columns.insert(table.columns.end(), {{"steps"}, {"tokens"}});
  for (const ArmResult& arm : all.arms) table.rows.push_back(cells(all, arm, run, data.bytes_per_token));
  const size_t seeds = all.arms.front().runs.size();
  table.note = text(
      "Matched by ", matched_name(match), " (feed-forward width). ", data.name, "; ", budget_text(run), "; ", seeds,
      seeds == 1 ? " seed. One seed cannot tell a difference from noise: use --seeds 3 or more."
                 : " seeds; p: paired t-test against the baseline.",
      " Loss on the validation text; tokens/s and memory of a training step, measured alone before the runs.");
  return table;
}

std::string comparison_summary(const Comparison& all) {
  const std::string failures = all.failures();
  const ArmResult *best = all.best(), &baseline = all.arms[all.baseline];
  if (!best) return failures + ".";
  const std::string after = failures.empty() ? "" : " " + failures + ".";
  const std::string loss = fixed(mean(best->losses), 4);
  if (all.arms.size() == 1)
    return text(best->arm.label, " has a validation loss of ", loss,
                " nats a token; there is nothing to compare with.");
  const std::string lead = text(best->arm.label, " has the lowest validation loss, ", loss, " nats a token");
  if (!baseline.failure.empty()) return lead + "." + after;
  if (best == &baseline) return text(lead, "; no other mechanism beats ", baseline.arm.label, " here.", after);
  const std::string gap =
      text(", ", fixed(mean(baseline.losses) - mean(best->losses), 4), " below ", baseline.arm.label);
  if (best->losses.size() < 2) return lead + gap + ". One seed gives no verdict: the difference may be noise." + after;
  const char* worth = best->p_value < 0.05 ? "more than" : "within";
  return text(lead, gap, "; the difference is ", worth, " noise (p = ", fixed(best->p_value, 3), ").", after);
}

ReportData comparison_report(Comparison& all, const RunConfig& run, const TextData& data, const Presentation& shown) {
  ReportData report;
  report.title = text("Attention mechanisms on ", data.name);
  report.summary = comparison_summary(all);
  const auto& train = run.train;
  const std::string budget = by_minutes(run) ? text(train.at("minutes").get<double>(), " minutes a model, steps of ")
                                             : text(budget_steps(train), " steps of ");
  report.facts = {{"Text", data.name},
                  {"Budget", budget + fixed(tokens_per_step(run), 0) + " tokens"},
                  {"Seeds", std::to_string(all.arms[0].runs.size())},
                  {"Matched by", matched_name(shown.match)},
                  {"Context", train.at("context").dump()}};
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
  const int64_t length = std::min<int64_t>(kPictureTokens, train.at("context").get<int64_t>());
  const std::vector<int64_t> sample = data.validation->slice(0, static_cast<uint64_t>(length));
  for (int64_t id : sample) {
    const int32_t token = static_cast<int32_t>(id);
    report.sample_tokens.push_back(data.tokenizer->decode({&token, 1}));
  }
  for (size_t i = 0; i < all.arms.size(); ++i) {
    const ArmResult& arm = all.arms[i];
    add_curves(report, arm, train.at("seed").get<uint64_t>(), tokens_per_step(run));
    if (!arm.failure.empty()) continue;
    add_pictures(report, arm, at::tensor(sample, at::kLong).unsqueeze(0));
    add_learned(report, arm);
    report.samples.push_back({arm.arm.label, shown.samples[i]});
    report.points.push_back(
        {arm.arm.label,
         mean(arm.losses),
         deviation(arm.losses),
         {arm.cost.flops_per_token, arm.tokens_per_second > 0 ? arm.tokens_per_second : NAN,
          static_cast<double>(arm.cost.parameters), static_cast<double>(arm.cost.cache_bytes_per_token)}});
  }
  return report;
}

}  // namespace motet
