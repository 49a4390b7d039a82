#include "motet/compare/table.h"

#include <cmath>
#include <numbers>

#include "motet/core/error.h"

namespace motet {
namespace {

std::string plus_minus(const std::vector<double>& losses) {
  return losses.size() < 2 ? fixed(mean(losses), 4) : fixed(mean(losses), 4) + " ± " + fixed(deviation(losses), 4);
}

std::string signed_text(double x) { return (x > 0 ? "+" : "") + fixed(x, 4); }

Cell number(const std::string& shown, double value) { return {shown, value}; }
Cell count(int64_t n) { return {std::to_string(n), n}; }
Cell short_count_cell(int64_t n) { return {short_count(static_cast<double>(n)), n}; }
const Cell kUnknown("-", nullptr);  // a loss after a failure, what could not be measured

// "147 steps, 301k tokens, the same in the same order for every model of a seed", or what a budget of time means.
std::string budget_text(const RunConfig& run) {
  const std::string same = "the same tokens in the same order for every model of a seed";
  if (by_minutes(run))
    return text(run.train.minutes, " minutes of training steps for each model, ", same,
                " as far as it came (steps, tokens)");
  const int64_t steps = run.train.budget_steps();
  return text(steps, " steps, ",
              short_count(static_cast<double>(steps) * static_cast<double>(run.train.tokens_per_step())), " tokens, ",
              same);
}

std::string rates_text(const Comparison& all, const RunConfig& run) {
  if (all.sweep && all.sweep->path() == "train.learning_rate") return "";
  std::string own;
  size_t others = 0;
  for (const ArmResult& arm : all.arms)
    if (arm.arm.train.contains("learning_rate"))
      own += text(own.empty() ? "" : ", ", arm.arm.train["learning_rate"].get<double>(), " for ", arm.arm.label);
    else
      ++others;
  if (own.empty()) return text(" Learning rate ", run.train.learning_rate, " for all, not tuned for any.");
  return text(" Learning rate ", own, others > 0 ? text(", ", run.train.learning_rate, " for the others.") : ".");
}

std::string swept_loss(const std::optional<EndedRun>& run) {
  return !run ? "not finished" : run->failure.empty() ? fixed(run->loss(), 4) : "diverged";
}

// What the first seed came to with each value: "mha 0.001: 2.3100, 0.002: 2.2800 (chosen); dcmha ...".
std::string sweep_text(const std::vector<Comparison>& comparisons, const RunConfig& run) {
  if (!comparisons.front().sweep) return "";
  std::string out;
  for (const Comparison& all : comparisons)
    for (const ArmResult& arm : all.arms) {
      out += text(out.empty() ? "" : "; ", arm.arm.label, all.size.empty() ? "" : " " + all.size);
      for (size_t i = 0; i < arm.swept.size(); ++i)
        out += text(i == 0 ? " " : ", ", all.sweep->shown(i), ": ", swept_loss(arm.swept[i]),
                    arm.chosen == i ? " (chosen)" : "");
    }
  return text("\n", comparisons.front().sweep->path(), " is chosen for each mechanism by the loss of seed ",
              run.train.seed, ", which is not among the seeds above: ", out, ".");
}

std::string seeds_text(const Comparison& all) {
  const size_t seeds = all.arms.front().runs.size();
  const size_t wanted = kSeedsForVerdict + all.first_reported();
  if (seeds == 1) return text("One seed cannot tell a difference from noise: --seeds ", wanted, " gives a verdict.");
  const auto tests = std::ranges::count_if(all.arms, [](const ArmResult& arm) { return std::isfinite(arm.p_value); });
  std::string out = text(seeds, " seeds; ± is their standard deviation");
  if (tests > 0)
    out +=
        text("; p: paired t-test against the baseline, Holm's correction for ", tests, tests == 1 ? " test" : " tests");
  out += ".";
  if (seeds < kSeedsForVerdict)
    out += text(" This shows no verdict but where the 95 % interval lies beyond +-", all.margin, " nats: --seeds ",
                wanted, " gives one.");
  return out;
}

// What the authors of a mechanism would say of this comparison.
std::string caveats_text(const Comparison& all) {
  std::string out;
  for (const ArmResult& arm : all.arms) {
    const Model shapes(arm.config, at::kMeta);
    const std::string caveat = shapes->blocks().front()->self_attn->caveat();
    const std::string where = all.size.empty() ? "" : " at " + all.size;
    if (!caveat.empty()) out += " " + arm.arm.label + where + " has " + caveat + ".";
  }
  return out;
}

// Of the last evaluations of the reported runs: all score the same windows.
std::string scored_text(const std::vector<Comparison>& comparisons) {
  const EvalRecord* last = nullptr;
  double error = 0;
  for (const Comparison& all : comparisons)
    for (const ArmResult& arm : all.arms)
      for (const TrainResult& run : arm.runs) {
        if (run.evals.empty()) continue;
        last = &run.evals.back();
        error = std::max(error, last->error);
      }
  if (!last) return "";
  return text(" Loss of ", last->tokens, " tokens of the validation text in ", last->windows,
              " windows, standard error at most ", fixed(error, 4), ".");
}

// Of runs that score the same windows bits a byte is proportional to the loss.
Cell bits_per_byte(const ArmResult& arm) {
  for (const TrainResult& run : arm.runs) {
    if (run.evals.empty() || run.evals.back().bytes == 0) continue;
    WindowScore score = run.evals.back();
    score.loss = mean(arm.finished());
    return number(fixed(score.bits_per_byte(), 3), score.bits_per_byte());
  }
  return kUnknown;
}

// How the arm's loss stands against the baseline's: difference, interval, p.
std::vector<Cell> against_baseline(const Comparison& all, const ArmResult& arm) {
  const Difference& d = arm.difference;
  if (&arm == &all.arms[all.baseline]) return {number("-", 0), kUnknown, kUnknown};
  if (d.pairs == 0) return {kUnknown, kUnknown, kUnknown};
  if (d.pairs == 1) return {number(signed_text(d.mean), d.mean), kUnknown, kUnknown};
  return {number(signed_text(d.mean), d.mean),
          {text(signed_text(d.low), " to ", signed_text(d.high)), nlohmann::json::array({d.low, d.high})},
          number(fixed(arm.p_value, 3), arm.p_value)};
}

// What stands in the row of an arm, in the order of the columns.
std::vector<Cell> cells(const Comparison& all, const ArmResult& arm, const RunConfig& run) {
  const bool finished = !arm.finished().empty();
  std::vector<Cell> row{arm.arm.label};
  if (all.sweep)
    row.push_back(arm.chosen ? number(all.sweep->shown(*arm.chosen), all.sweep->values[*arm.chosen]) : kUnknown);
  row.push_back(finished ? number(plus_minus(arm.finished()), mean(arm.finished())) : kUnknown);
  for (Cell& cell : against_baseline(all, arm)) row.push_back(std::move(cell));
  const double megabytes = static_cast<double>(arm.peak_bytes) / 1e6;
  row.insert(
      row.end(),
      {verdict(all, arm), finished ? bits_per_byte(arm) : kUnknown, short_count_cell(arm.cost.parameters),
       count(arm.config.intermediate_size()), number(short_count(arm.cost.flops_per_token), arm.cost.flops_per_token),
       arm.tokens_per_second > 0 ? number(short_count(arm.tokens_per_second), arm.tokens_per_second) : kUnknown,
       arm.peak_bytes > 0 ? number(fixed(megabytes, 1), megabytes) : kUnknown, count(arm.cost.cache_bytes_per_token)});
  if (!by_minutes(run)) return row;
  const double steps = steps_of(arm, run), tokens = steps * static_cast<double>(run.train.tokens_per_step());
  row.push_back(finished ? number(fixed(steps, 0), steps) : kUnknown);
  row.push_back(finished ? number(short_count(tokens), tokens) : kUnknown);
  return row;
}

}  // namespace

const char* matched_name(Match match) {
  return match == Match::parameters ? "parameters" : match == Match::flops ? "FLOPs per token" : "nothing";
}

void add_size_column(Table& table, const std::vector<Comparison>& comparisons) {
  if (comparisons.front().size.empty()) return;
  table.columns.insert(table.columns.begin() + 1, {"size", Align::left});
  size_t row = 0;
  for (const Comparison& all : comparisons)
    for (size_t arm = 0; arm < all.arms.size(); ++arm, ++row)
      table.rows.at(row).insert(table.rows.at(row).begin() + 1, all.size);
}

Table comparison_table(const std::vector<Comparison>& comparisons, const RunConfig& run, const TextData& data,
                       Match match) {
  const Comparison& first = comparisons.front();
  Table table{.columns = {{"mechanism", Align::left},
                          {"loss", Align::right, "nats/token", "validation_loss"},
                          {"vs baseline", Align::right, "", "difference"},
                          {"95 % interval", Align::right, "", "interval"},
                          {"p", Align::right},
                          {"verdict", Align::left},
                          {"bits/byte", Align::right, "", "bits_per_byte"},
                          {"parameters", Align::right},
                          {"FFN width", Align::right, "", "ffn_width"},
                          {"FLOPs/token", Align::right, "", "flops_per_token"},
                          {"tokens/s", Align::right, text(first.threads, first.threads == 1 ? " thread" : " threads"),
                           "tokens_per_second"},
                          {"memory", Align::right, "MB", "peak_memory_mb"},
                          {"KV cache", Align::right, "B/token", "kv_bytes_per_token"}}};
  if (by_minutes(run)) table.columns.insert(table.columns.end(), {{"steps"}, {"tokens"}});
  if (first.sweep) table.columns.insert(table.columns.begin() + 1, {first.sweep->key});
  std::string caveats;
  for (const Comparison& all : comparisons) {
    for (const ArmResult& arm : all.arms) table.rows.push_back(cells(all, arm, run));
    caveats += caveats_text(all);
  }
  add_size_column(table, comparisons);
  table.note = text("Matched by ", matched_name(match), " (feed-forward width). ", data.name, "; ", budget_text(run),
                    ".", rates_text(first, run), caveats, scored_text(comparisons), "\n", seeds_text(first),
                    " Tokens/s and memory are those of a training step, measured alone before the runs.",
                    sweep_text(comparisons, run));
  return table;
}

}  // namespace motet
