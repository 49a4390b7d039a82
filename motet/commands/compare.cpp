#include <algorithm>
#include <iostream>
#include <memory>

#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/commands/run_companions.h"
#include "motet/commands/sample_text.h"
#include "motet/compare/compare.h"
#include "motet/compare/report.h"
#include "motet/compare/scaling.h"
#include "motet/compare/summary.h"
#include "motet/compare/table.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/log.h"
#include "motet/core/shell.h"
#include "motet/formats/toml.h"
#include "motet/ops/device.h"
#include "motet/train/plan.h"
#include "motet/train/resume.h"

namespace motet {
namespace {

Table plan_table(const std::vector<Comparison>& plans) {
  Table table{.columns = {{"mechanism", Align::left},
                          {"parameters"},
                          {"FFN width", Align::right, "", "ffn_width"},
                          {"FLOPs/token", Align::right, "", "flops_per_token"},
                          {"weights", Align::right, "MB", "weight_mb"},
                          {"KV cache", Align::right, "bytes/token", "kv_bytes_per_token"}}};
  for (const Comparison& plan : plans)
    for (const ArmResult& arm : plan.arms)
      table.rows.push_back(
          {arm.arm.label,
           {short_count(static_cast<double>(arm.cost.parameters)), arm.cost.parameters},
           {std::to_string(arm.config.intermediate_size()), arm.config.intermediate_size()},
           {short_count(arm.cost.flops_per_token), arm.cost.flops_per_token},
           {fixed(static_cast<double>(arm.cost.parameters) * 4e-6, 2), static_cast<double>(arm.cost.parameters) * 4e-6},
           {std::to_string(arm.cost.cache_bytes_per_token), arm.cost.cache_bytes_per_token}});
  add_size_column(table, plans);
  return table;
}

// What was given, or the beginning of the validation text. What cannot be continued is refused here, before the
// training.
std::string prompt_of(const nlohmann::json& request, const TextData& data, int64_t context) {
  if (!request.contains("prompt")) return first_words(data, context);
  const std::string prompt = request["prompt"];
  if (prompt.empty()) fail_usage("--prompt is empty, want the text that each model continues");
  prompt_tokens(*data.tokenizer, prompt, context);
  return prompt;
}

// What `jobs` models in training take at once, or all of them while their speed is measured, has to fit into memory.
void check_room(const std::vector<Comparison>& plans, const RunConfig& run, const CompareOptions& options) {
  TrainingPlan together, largest;
  for (const Comparison& plan : plans) {
    int64_t of_size = 0;
    for (const ArmResult& arm : plan.arms) {
      const TrainingPlan own = training_plan(arm.config, run.train);
      of_size += own.training_bytes;
      if (own.training_bytes > largest.training_bytes) largest = own;
    }
    together.training_bytes = std::max(together.training_bytes, of_size);
  }
  together.training_bytes = std::max(together.training_bytes, options.jobs * largest.training_bytes);
  together.activation_bytes = options.jobs * largest.activation_bytes;
  check_memory(together, free_memory(parse_device(run.train.device)));
}

int64_t checkpoint_bytes(const std::vector<Comparison>& plans, const RunConfig& run, const CompareOptions& options) {
  const int64_t swept = options.sweep ? static_cast<int64_t>(options.sweep->values.size()) - 1 : 0;
  int64_t bytes = 0;
  for (const Comparison& plan : plans)
    for (const ArmResult& arm : plan.arms)
      bytes += (options.seeds + swept) * training_plan(arm.config, run.train).checkpoint_bytes;
  return bytes;
}

// A continuation of the prompt by each causal model that was trained to the end, else ""; after Ctrl-C none is waited
// for.
std::vector<std::string> samples(const Comparison& all, const TextData& data, const std::string& prompt,
                                 int64_t tokens) {
  std::vector<std::string> texts;
  const GenerateOptions options{.max_tokens = tokens, .writer = {.sampler = {.seed = 1}}};
  for (const ArmResult& arm : all.arms) {
    texts.emplace_back();
    if (!arm.model || all.interrupted || !arm.config.causal()) continue;
    arm.model.ptr()->set_autocast({});  // as generate computes
    texts.back() = generate(*arm.model.ptr(), *data.tokenizer, prompt, options)[0].text;
  }
  return texts;
}

// What --resume goes on with; nothing without it.
struct Resumed {
  std::filesystem::path folder;
  Results results;
};

std::optional<Resumed> resumed(const nlohmann::json& request) {
  const std::string given = request.value("resume", "");
  if (given.empty()) return std::nullopt;
  if (request.contains("out")) fail_usage("--resume and --out: want one of them");
  return Resumed{given, read_results(given)};
}

// The words between commas that a comparison has, and those that are given beside them.
std::string joined(const nlohmann::json& was, const std::string& given) {
  auto words = was.get<std::vector<std::string>>();
  for (const std::string& word : given.empty() ? std::vector<std::string>() : split(given, ','))
    if (std::ranges::find(words, word) == words.end()) words.push_back(word);
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ",") + word;
  return out;
}

// What is asked of a comparison that goes on: contenders, seeds and sizes that it has, and those given beside them.
CompareRequest joined_request(const nlohmann::json& request, const std::optional<Resumed>& from) {
  CompareRequest asked = read_request(compare_options(), request);
  if (!from) return asked;
  const auto refuse = [](const auto&... parts) { fail_usage("compare: --resume: ", parts...); };
  const nlohmann::json& was = from->results.comparison;
  asked.mechanisms = joined(was.at("mechanisms"), asked.mechanisms);
  const int64_t seeds = was.at("seeds");
  if (!request.contains("seeds")) asked.seeds = seeds;
  if (asked.seeds < seeds) refuse("--seeds was ", seeds, " and is ", asked.seeds, ", want at least that");
  const Match match = value_of(match_words(), was.at("match").get<std::string>(), "match");
  if (request.contains("match") && asked.match != match)
    refuse("--match was ", word_of(match_words(), match), ", want it as it was");
  asked.match = match;
  if (was.contains("margin")) {  // earlier versions kept none
    const double margin = was["margin"];
    if (request.contains("margin") && asked.margin != margin)
      refuse("--margin was ", margin, " and is ", asked.margin, ", want it as it was");
    asked.margin = margin;
  }
  const std::string sweep = was.value("sweep", "");
  if (!asked.sweep.empty() && (sweep.empty() || parse_sweep(asked.sweep).text() != sweep))
    refuse("--sweep was ", sweep.empty() ? "not given" : sweep, ", want it as it was");
  asked.sweep = sweep;
  if (!asked.sizes.empty() && !was.contains("sizes")) refuse("--sizes was not given, want it as it was");
  if (was.contains("sizes")) asked.sizes = joined(was["sizes"], asked.sizes);
  return asked;
}

// `was` and `is` hold the options of attention that were given alone, so one that is new changes every contender.
void check_no_new_options(const nlohmann::json& was, const nlohmann::json& is) {
  const auto of = [](const nlohmann::json& run) {
    return run.at("model").value("attention", nlohmann::json::object());
  };
  const nlohmann::json before = of(was), now = of(is);
  for (const auto& option : now.items())
    if (!before.contains(option.key()))
      fail_usage("compare: --resume: model.attention.", option.key(), " was not given and is ", option.value().dump(),
                 ", want it as it was");
}

// Of a budget in minutes a model has them to itself: beside others it would make as many steps as they leave it.
int64_t jobs_of(const CompareRequest& asked, const RunConfig& run, int64_t threads) {
  if (by_minutes(run) && asked.jobs > 1)
    fail_usage("--jobs: ", asked.jobs, ", want 1: with train.minutes models train one after the other");
  if (by_minutes(run)) return 1;
  if (asked.jobs > 0) return asked.jobs;
  return parse_device(run.train.device).is_cpu() ? threads : 1;
}

// Minutes of other threads are another budget; earlier versions did not say how many there were.
void check_same_threads(const nlohmann::json& was, const CompareOptions& options) {
  const int64_t threads = was.value("threads", options.threads);
  if (threads != options.threads)
    fail_usage("compare: --resume: --threads was ", threads, " and is ", options.threads,
               ", want it as it was: train.minutes is the budget");
}

CompareOptions options_of(const CompareRequest& asked, const RunConfig& run, int64_t threads) {
  CompareOptions options{.arms = parse_arms(asked.mechanisms, run.attention_given),
                         .seeds = asked.seeds,
                         .match = asked.match,
                         .margin = asked.margin,
                         .jobs = jobs_of(asked, run, threads),
                         .threads = threads};
  if (!asked.sweep.empty()) options.sweep = parse_sweep(asked.sweep);
  if (!asked.sizes.empty()) options.sizes = parse_sizes(asked.sizes);
  options.jobs = std::min<int64_t>(options.jobs, options.seeds * static_cast<int64_t>(options.arms.size()));
  return options;
}

struct Shown {
  const nlohmann::json& request;
  std::string command, prompt;
  int64_t n_predict;
};

// Of a comparison that goes on the command that began it too; the same one twice in a row counts once.
std::string all_commands(Results& results, const std::string& command) {
  std::vector<std::string>& all = results.commands;
  if (!command.empty() && (all.empty() || all.back() != command)) all.push_back(command);
  std::string lines;
  for (const std::string& line : all) lines += (lines.empty() ? "" : "\n") + line;
  return lines;
}

// The table and the summary, before anything else that could fail; then the report.
void show_comparisons(const std::vector<Comparison>& all, const RunConfig& run, const TextData& data,
                      const CompareOptions& options, const Shown& asked) {
  const TableFormat format = output_format(asked.request);
  const Table table = comparison_table(all, run, data, options.match);
  write_file_atomic(options.folder / "table.json", render(table, TableFormat::json));
  print_table(table, asked.request);
  if (format == TableFormat::table) std::cout << "\n" << summary_of(all, run) << "\n" << std::endl;
  const std::vector<Scaling> laws = scaling(all, run);
  if (!laws.empty() && (format == TableFormat::table || format == TableFormat::markdown)) {
    if (format == TableFormat::markdown) std::cout << "\n";
    print_table(scaling_table(laws), asked.request);
    std::cout << std::endl;
  }
  const Comparison& pictured = all[pictured_size(all)];
  const ArmResult* lowest = pictured.lowest();
  if (!lowest) return;
  const Presentation shown{asked.command, asked.prompt, samples(pictured, data, asked.prompt, asked.n_predict),
                           options.match};
  const std::filesystem::path report = options.folder / "report.html";
  write_file_atomic(report, html_report(comparison_report(all, run, data, shown)));
  if (format != TableFormat::table) return log_info("report: " + report.string());
  if (!pictured.interrupted && run.model.causal)
    std::cout << "Text by " << lowest->arm.label << ":\n"
              << asked.prompt << shown.samples[static_cast<size_t>(lowest - pictured.arms.data())] << "\n\n";
  std::cout << "Report: " << report.string() << std::endl;
}

}  // namespace

int run_compare(const nlohmann::json& request) {
  const std::optional<Resumed> from = resumed(request);
  const CompareRequest asked = joined_request(request, from);
  const TableFormat format = output_format(request);
  const RunConfig run = read_run_config(
      request, from ? without_idle_keys(read_toml((from->folder / "config.toml").string())) : compare_defaults());
  if (from) {
    const nlohmann::json& was = from->results.comparison.at("run");
    check_unchanged("compare", without_idle_keys(was), run.as_given(), {"data.text", "train.device"});
    check_no_new_options(was, run.as_given());
  }
  if (!run.task.is_null()) fail_usage("data.task: compare reads texts, want motet train --task or motet experiment");
  if (!run.train.average.empty()) fail_usage("compare: train.average is of a single training, want it left out");
  if (request.contains("prompt") && !run.model.causal)
    fail_usage("--prompt: a model that is not causal continues no text");
  if (!run.model.causal) refuse_flags(request, "a model that is not causal", {"n_predict"});
  CompareOptions options = options_of(asked, run, request_threads(request));
  const TextData data = load_run_data(run, nullptr, nullptr);
  options.companions = run_companions(run, data.tokenizer.get(), nullptr);
  if (from) check_same_threads(from->results.comparison, options);
  if (from) check_same_data(from->results.comparison.at("data"), data);
  const std::string prompt = run.model.causal ? prompt_of(request, data, run.train.context) : "";
  std::vector<Comparison> all = planned_comparisons(run, data, options);
  if (request.value("dry_run", false)) {
    print_table(plan_table(all), request);
    if (format == TableFormat::table) std::cout << "\n" << toml_text(run.as_given());
    return 0;
  }
  check_room(all, run, options);
  const auto folder =
      from ? std::make_unique<RunFolder>(from->folder) : std::make_unique<RunFolder>(request, "compare");
  options.folder = folder->path();
  check_disk(options.folder, checkpoint_bytes(all, run, options), {"models", "running"});
  write_file_atomic(options.folder / "config.toml", toml_text(run.as_given()));
  Results results = from ? from->results : Results();
  const std::string commands = all_commands(results, request.value("command", ""));
  run_comparisons(all, run, data, options, std::move(results));
  show_comparisons(all, run, data, options, {request, commands, prompt, asked.n_predict});
  if (all.front().interrupted) {
    throw Interrupted(text("compare: stopped; what had finished is shown; to go on: motet compare --resume ",
                           shell_quoted(options.folder.string())));
  }
  if (const std::string failures = all_failures(all); !failures.empty()) fail(failures);
  return 0;
}

}  // namespace motet
