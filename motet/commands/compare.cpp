#include <iostream>

#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/compare/present.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/log.h"
#include "motet/formats/toml.h"

namespace motet {
namespace {

// What `motet compare` runs when nothing is said: about four minutes on two processors.
const nlohmann::json kDefaults = {{"model", {{"hidden_size", 64}, {"num_layers", 2}}}, {"train", {{"tokens", 300000}}}};

const OptionTable& compare_options() {
  using enum OptionType;
  static const OptionTable table{
      {"mechanisms", string, "", {}, {}, {}, "contenders"},
      {"seeds", integer, 2, 1, 1000, {}, "models of each mechanism"},
      {"match", string, "parameters", {}, {}, {"parameters", "flops", "none"}, "what is equal"},
      {"jobs", integer, 0, 0, 1024, {}, "models at once; 0: one for each thread"},
      {"prompt", string, "\n", {}, {}, {}, "what each model continues"},
      {"n_predict", integer, 300, 1, 100000, {}, "tokens of the continuation"},
  };
  return table;
}

// A budget that was asked for replaces the default one.
nlohmann::json defaults_for(const nlohmann::json& request) {
  nlohmann::json base = kDefaults;
  for (const auto& pair : request.value("set", nlohmann::json::array()))
    for (const char* budget : {"train.steps", "train.minutes"})
      if (pair[0] == budget) base["train"].erase("tokens");
  if (request.contains("config")) base["train"].erase("tokens");
  return base;
}

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

std::vector<std::string> samples(Comparison& all, const TextData& data, const std::string& prompt, int64_t tokens) {
  std::vector<std::string> texts;
  GenerateOptions options{.max_tokens = tokens, .stop = {}, .sampler = {.seed = 1}};
  for (ArmResult& arm : all.arms) texts.push_back(generate(*arm.model, *data.tokenizer, prompt, options));
  return texts;
}

}  // namespace

int run_compare(const nlohmann::json& request) {
  const nlohmann::json values = request_values(compare_options(), request);
  const TableFormat format = output_format(request);
  const RunConfig run = read_run_config(request, defaults_for(request));
  const int64_t threads = request_threads(request), jobs = values["jobs"].get<int64_t>();
  CompareOptions options{.arms = parse_arms(values["mechanisms"].get<std::string>(), run.attention_given),
                         .seeds = values["seeds"].get<int64_t>(),
                         .match = parse_match(values["match"].get<std::string>()),
                         .jobs = jobs > 0 ? jobs : threads,
                         .threads = threads};
  options.jobs = std::min<int64_t>(options.jobs, options.seeds * static_cast<int64_t>(options.arms.size()));
  const TextData data = load_text_data(run);
  const std::string prompt = values["prompt"].get<std::string>();
  data.tokenizer->encode(prompt);  // a prompt that cannot be written in these tokens is refused before the training
  if (request.value("dry_run", false)) {
    print_table(plan_table(planned_comparison(run, data, options)), request);
    if (format == TableFormat::table) std::cout << "\n" << toml_text(run.as_given());
    return 0;
  }
  options.folder = run_folder(request, "compare");
  write_file_atomic(options.folder / "config.toml", toml_text(run.as_given()));
  Comparison all = run_comparison(run, data, options);
  const Presentation shown{request.value("command", ""), prompt,
                           samples(all, data, prompt, values["n_predict"].get<int64_t>()), options.match};
  const Table table = comparison_table(all, run, data, options.match);
  write_file_atomic(options.folder / "table.json", render(table, TableFormat::json));
  write_file_atomic(options.folder / "report.html", html_report(comparison_report(all, run, data, shown)));
  print_table(table, request);
  if (format == TableFormat::table) {
    std::cout << "\n"
              << comparison_summary(all) << "\n\nText by " << all.arms[all.best()].arm.label << ":\n"
              << prompt << shown.samples[all.best()] << "\n\n";
    std::cout << "Report: " << (options.folder / "report.html").string() << std::endl;
  } else {
    log_info("report: " + (options.folder / "report.html").string());
  }
  return 0;
}

}  // namespace motet
