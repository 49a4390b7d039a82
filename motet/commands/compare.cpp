#include <iostream>

#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/compare/report.h"
#include "motet/compare/table.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/log.h"
#include "motet/core/utf8.h"
#include "motet/formats/toml.h"
#include "motet/ops/device.h"
#include "motet/train/plan.h"

namespace motet {
namespace {

Table plan_table(const Comparison& plan) {
  Table table{.columns = {{"mechanism", Align::left},
                          {"parameters"},
                          {"FFN width", Align::right, "", "ffn_width"},
                          {"FLOPs/token", Align::right, "", "flops_per_token"},
                          {"weights", Align::right, "MB", "weight_mb"},
                          {"KV cache", Align::right, "bytes/token", "kv_bytes_per_token"}}};
  for (const ArmResult& arm : plan.arms)
    table.rows.push_back(
        {arm.arm.label,
         {short_count(static_cast<double>(arm.cost.parameters)), arm.cost.parameters},
         {std::to_string(arm.config.intermediate_size()), arm.config.intermediate_size()},
         {short_count(arm.cost.flops_per_token), arm.cost.flops_per_token},
         {fixed(static_cast<double>(arm.cost.parameters) * 4e-6, 2), static_cast<double>(arm.cost.parameters) * 4e-6},
         {std::to_string(arm.cost.cache_bytes_per_token), arm.cost.cache_bytes_per_token}});
  return table;
}

constexpr size_t kPromptTokens = 16;

// Without the first bytes of a character at the end.
std::string whole_characters(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(std::string_view(bytes).substr(at));
    if (step.kind == Utf8Step::Kind::incomplete && at > 0) return bytes.substr(0, at);
    at += step.size;
  }
  return bytes;
}

// What was given, or the beginning of the validation text. What cannot be continued is refused here, before the
// training.
std::string prompt_of(const nlohmann::json& request, const TextData& data, int64_t context) {
  if (!request.contains("prompt")) {
    const std::vector<int64_t> first = data.validation->slice(0, std::min<uint64_t>(kPromptTokens, context));
    return whole_characters(data.tokenizer->decode(std::vector<int32_t>(first.begin(), first.end())));
  }
  const std::string prompt = request["prompt"];
  if (prompt.empty()) fail_usage("--prompt is empty, want the text that each model continues");
  prompt_tokens(*data.tokenizer, prompt, context);
  return prompt;
}

// What `jobs` models in training take at once, or all of them while their speed is measured, has to fit into memory.
void check_room(const Comparison& plan, const RunConfig& run, const CompareOptions& options) {
  TrainingPlan together, largest;
  for (const ArmResult& arm : plan.arms) {
    const TrainingPlan own = training_plan(arm.config, run.train);
    together.training_bytes += own.training_bytes;
    if (own.training_bytes > largest.training_bytes) largest = own;
  }
  together.training_bytes = std::max(together.training_bytes, options.jobs * largest.training_bytes);
  together.activation_bytes = options.jobs * largest.activation_bytes;
  check_memory(together, free_memory(parse_device(run.train.device)));
}

int64_t checkpoint_bytes(const Comparison& plan, const RunConfig& run, const CompareOptions& options) {
  int64_t bytes = 0;
  for (const ArmResult& arm : plan.arms) bytes += options.seeds * training_plan(arm.config, run.train).checkpoint_bytes;
  return bytes;
}

// A continuation of the prompt by each model that was trained to the end, else ""; after Ctrl-C none is waited for.
std::vector<std::string> samples(Comparison& all, const TextData& data, const std::string& prompt, int64_t tokens) {
  std::vector<std::string> texts;
  const GenerateOptions options{.max_tokens = tokens, .stop = {}, .sampler = {.seed = 1}};
  for (ArmResult& arm : all.arms) {
    texts.emplace_back();
    if (!arm.model || all.interrupted) continue;
    arm.model->set_autocast(false);  // as generate computes
    texts.back() = generate(*arm.model, *data.tokenizer, prompt, options)[0].text;
  }
  return texts;
}

}  // namespace

int run_compare(const nlohmann::json& request) {
  const CompareRequest asked = read_request(compare_options(), request);
  const TableFormat format = output_format(request);
  const RunConfig run = read_run_config(request, compare_defaults());
  const int64_t threads = request_threads(request);
  CompareOptions options{.arms = parse_arms(asked.mechanisms, run.attention_given),
                         .seeds = asked.seeds,
                         .match = asked.match,
                         .margin = asked.margin,
                         .jobs = asked.jobs > 0 ? asked.jobs : threads,
                         .threads = threads};
  options.jobs = std::min<int64_t>(options.jobs, options.seeds * static_cast<int64_t>(options.arms.size()));
  const TextData data = load_text_data(run);
  const std::string prompt = prompt_of(request, data, run.train.context);
  Comparison all = planned_comparison(run, data, options);
  if (request.value("dry_run", false)) {
    print_table(plan_table(all), request);
    if (format == TableFormat::table) std::cout << "\n" << toml_text(run.as_given());
    return 0;
  }
  check_room(all, run, options);
  const RunFolder folder(request, "compare");
  options.folder = folder.path();
  check_disk(options.folder, checkpoint_bytes(all, run, options));
  write_file_atomic(options.folder / "config.toml", toml_text(run.as_given()));
  run_comparison(all, run, data, options);
  const Table table = comparison_table(all, run, data, options.match);
  write_file_atomic(options.folder / "table.json", render(table, TableFormat::json));
  print_table(table, request);  // before anything else that could fail
  if (format == TableFormat::table) std::cout << "\n" << comparison_summary(all) << "\n" << std::endl;
  if (const ArmResult* lowest = all.lowest()) {
    const Presentation shown{request.value("command", ""), prompt, samples(all, data, prompt, asked.n_predict),
                             options.match};
    const std::filesystem::path report = options.folder / "report.html";
    write_file_atomic(report, html_report(comparison_report(all, run, data, shown)));
    if (format == TableFormat::table) {
      if (!all.interrupted)
        std::cout << "Text by " << lowest->arm.label << ":\n"
                  << prompt << shown.samples[static_cast<size_t>(lowest - all.arms.data())] << "\n\n";
      std::cout << "Report: " << report.string() << std::endl;
    } else {
      log_info("report: " + report.string());
    }
  }
  if (all.interrupted) throw Interrupted("compare: stopped; what had finished is shown");
  if (const std::string failures = all.failures(); !failures.empty()) fail(failures);
  return 0;
}

}  // namespace motet
