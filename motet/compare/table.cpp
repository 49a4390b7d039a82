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
Cell count(int64_t n) { return number(std::to_string(n), static_cast<double>(n)); }
const Cell kUnknown("-", nullptr);  // a loss after a failure, what could not be measured

// Steps of an arm; of a budget in minutes the mean of the seeds that ended.
double steps_of(const ArmResult& arm, const RunConfig& run) {
  if (!by_minutes(run)) return static_cast<double>(run.train.budget_steps());
  std::vector<double> steps;
  for (const TrainResult& r : arm.runs)
    if (!r.steps.empty()) steps.push_back(static_cast<double>(r.steps.size()));
  return mean(steps);
}

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
  std::string own;
  for (const ArmResult& arm : all.arms)
    if (arm.arm.train.contains("learning_rate"))
      own += text(arm.arm.train["learning_rate"].get<double>(), " for ", arm.arm.label, ", ");
  return text("Learning rate ", own, run.train.learning_rate,
              own.empty() ? " for all, not tuned for any." : " for the others.");
}

std::string seeds_text(const Comparison& all) {
  const size_t seeds = all.arms.front().runs.size();
  if (seeds == 1) return "One seed cannot tell a difference from noise: --seeds 5 gives a verdict.";
  std::string out = text(seeds, " seeds; ± is their standard deviation; p: paired t-test against the baseline, Holm's ",
                         "correction for ", all.arms.size() - 1, all.arms.size() == 2 ? " test." : " tests.");
  if (seeds < kSeedsForVerdict)
    out += text(" This shows no verdict but where the 95 % interval lies beyond +-", all.margin, " nats: --seeds ",
                kSeedsForVerdict, " gives one.");
  return out;
}

// What the authors of a mechanism would say of this comparison.
std::string caveats_text(const Comparison& all) {
  std::string out;
  for (const ArmResult& arm : all.arms) {
    const Model shapes(arm.config, at::kMeta);
    const std::string caveat = shapes->blocks().front()->self_attn->caveat();
    if (!caveat.empty()) out += " " + arm.arm.label + " has " + caveat + ".";
  }
  return out;
}

// The last evaluation of some run: all score the same windows.
const EvalRecord* last_evaluation(const Comparison& all) {
  for (const ArmResult& arm : all.arms)
    for (const TrainResult& run : arm.runs)
      if (!run.evals.empty()) return &run.evals.back();
  return nullptr;
}

std::string scored_text(const Comparison& all) {
  const EvalRecord* last = last_evaluation(all);
  if (!last) return "";
  double error = 0;
  for (const ArmResult& arm : all.arms)
    for (const TrainResult& run : arm.runs)
      if (!run.evals.empty()) error = std::max(error, run.evals.back().error);
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
  std::vector<Cell> row{arm.arm.label, finished ? number(plus_minus(arm.finished()), mean(arm.finished())) : kUnknown};
  for (Cell& cell : against_baseline(all, arm)) row.push_back(std::move(cell));
  const double megabytes = static_cast<double>(arm.peak_bytes) / 1e6;
  row.insert(
      row.end(),
      {verdict(all, arm), finished ? bits_per_byte(arm) : kUnknown,
       number(short_count(static_cast<double>(arm.cost.parameters)), static_cast<double>(arm.cost.parameters)),
       count(arm.config.intermediate_size()), number(short_count(arm.cost.flops_per_token), arm.cost.flops_per_token),
       arm.tokens_per_second > 0 ? number(short_count(arm.tokens_per_second), arm.tokens_per_second) : kUnknown,
       arm.peak_bytes > 0 ? number(fixed(megabytes, 1), megabytes) : kUnknown, count(arm.cost.cache_bytes_per_token)});
  if (!by_minutes(run)) return row;
  const double steps = steps_of(arm, run), tokens = steps * static_cast<double>(run.train.tokens_per_step());
  row.push_back(finished ? number(fixed(steps, 0), steps) : kUnknown);
  row.push_back(finished ? number(short_count(tokens), tokens) : kUnknown);
  return row;
}

// "; 2 of 3 seeds of dcmha" of what an interrupted comparison has.
std::string unfinished(const Comparison& all) {
  std::string out;
  for (const ArmResult& arm : all.arms)
    if (arm.failure.empty() && arm.finished().size() < arm.runs.size())
      out += text(out.empty() ? "" : ", ", arm.arm.label, " (", arm.finished().size(), " of ", arm.runs.size(), ")");
  return out;
}

// What the lead of the lowest over the baseline is worth.
std::string lead_text(const Comparison& all, const ArmResult& lowest) {
  const std::string word = verdict(all, lowest);
  const Difference& d = lowest.difference;
  if (d.pairs == 0) return ".";
  const std::string gap = text(", ", fixed(-d.mean, 4), " below ", all.arms[all.baseline].arm.label);
  if (word == "one seed") return gap + ". One seed gives no verdict: the difference may be noise.";
  const std::string interval =
      text(" (95 % interval ", fixed(-d.high, 4), " to ", fixed(-d.low, 4), ", p = ", fixed(lowest.p_value, 3), ")");
  if (word == "better") return gap + interval + ": the best here.";
  if (word == "n too small") return gap + interval + text(". ", d.pairs, " seeds give no verdict.");
  return gap + interval + "; the difference is within noise.";
}

}  // namespace

const char* matched_name(Match match) {
  return match == Match::parameters ? "parameters" : match == Match::flops ? "FLOPs per token" : "nothing";
}

bool by_minutes(const RunConfig& run) { return run.train.minutes > 0; }

Table comparison_table(const Comparison& all, const RunConfig& run, const TextData& data, Match match) {
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
                          {"tokens/s", Align::right, text(all.threads, all.threads == 1 ? " thread" : " threads"),
                           "tokens_per_second"},
                          {"memory", Align::right, "MB", "peak_memory_mb"},
                          {"KV cache", Align::right, "B/token", "kv_bytes_per_token"}}};
  if (by_minutes(run)) table.columns.insert(table.columns.end(), {{"steps"}, {"tokens"}});
  for (const ArmResult& arm : all.arms) table.rows.push_back(cells(all, arm, run));
  table.note = text("Matched by ", matched_name(match), " (feed-forward width). ", data.name, "; ", budget_text(run),
                    ". ", rates_text(all, run), caveats_text(all), scored_text(all), "\n", seeds_text(all),
                    " Tokens/s and memory are those of a training step, measured alone before the runs.");
  return table;
}

std::string comparison_summary(const Comparison& all) {
  const ArmResult *lowest = all.lowest(), &baseline = all.arms[all.baseline];
  std::string after = all.failures().empty() ? "" : " " + all.failures() + ".";
  if (const std::string missing = unfinished(all); all.interrupted && !missing.empty())
    after += " Stopped before all seeds had finished: " + missing + ".";
  if (!lowest) return after.empty() ? "No run has finished." : after.substr(1);
  const std::string loss = fixed(mean(lowest->finished()), 4);
  if (all.arms.size() == 1)
    return text(lowest->arm.label, " has a validation loss of ", loss,
                " nats a token; there is nothing to compare with.", after);
  const std::string lead = text(lowest->arm.label, " has the lowest validation loss, ", loss, " nats a token");
  if (lowest == &baseline) return text(lead, "; no other mechanism beats ", baseline.arm.label, " here.", after);
  return lead + lead_text(all, *lowest) + after;
}

}  // namespace motet
