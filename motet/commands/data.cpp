#include <algorithm>

#include "motet/checkpoints/companions.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/log.h"
#include "motet/core/process.h"
#include "motet/data/prepare.h"
#include "motet/data/prepared.h"
#include "motet/text/readers/load.h"

namespace motet {
namespace {

void add_row(Table& table, const std::string& name, uint64_t tokens, const SplitRecord* split) {
  const Cell none{"-", nullptr};
  const auto count = [](uint64_t n) { return Cell{std::to_string(n), n}; };
  table.rows.push_back({name, count(tokens), split ? count(split->documents) : none,
                        split ? count(split->text_bytes) : none, split ? count(split->shards.size()) : none});
}

Table split_table() {
  return {
      .columns = {
          {"part", Align::left}, {"tokens"}, {"documents"}, {"text", Align::right, "bytes", "text_bytes"}, {"shards"}}};
}

int prepare(const nlohmann::json& request, std::vector<std::string> inputs) {
  const PrepareRequest asked = read_request(prepare_options(), request);
  const std::string& name = asked.tokenizer;
  if (name.empty()) fail_usage("--tokenizer is missing, want a tokenizer's file or folder, or bytes");
  if (name == "chars")
    fail_usage("--tokenizer: 'chars' depends on the text, want bytes or a tokenizer (motet tokenize --train)");
  if (asked.out.empty()) fail_usage("--out is missing, want a new folder");
  if (inputs.empty()) fail_usage("data prepare: INPUT is missing, want files, folders or - for standard input");
  PrepareOptions options{
      .inputs = std::move(inputs),
      .validation_inputs = request.value("validation_text", std::vector<std::string>()),
      .documents = {.text_field = asked.text_field, .format = std::string(asked.format), .separator = {}},
      .folder = asked.out,
      .shard_tokens = static_cast<uint64_t>(asked.shard_tokens),
      .validation = asked.validation,
      .document_token = asked.document_token,
      .threads = static_cast<int>(request.value("threads", processor_count()))};
  const auto reads_input = [](const std::vector<std::string>& all) { return std::ranges::find(all, "-") != all.end(); };
  if (reads_input(options.inputs) && reads_input(options.validation_inputs))
    fail_usage("--validation-text: standard input is given twice, want it once");
  if (request.contains("separator")) options.documents.separator = request["separator"].get<std::string>();
  const Manifest manifest = prepare_data(choose_tokenizer(name, ""), options);
  if (name != "bytes")  // chat template and names of tokens go with the tokenizer
    for (const auto& [file, bytes] : companions_of_tokenizer(name).files)
      write_file_atomic(std::filesystem::path(options.folder) / file, bytes);
  Table table = split_table();
  add_row(table, "train", manifest.train.tokens, &manifest.train);
  add_row(table, "validation", manifest.validation.tokens, &manifest.validation);
  print_table(table, request);
  if (options.validation > 0 && manifest.validation.tokens == 0)
    log_warn(text("--validation: too few documents to keep one in ", 1 / options.validation,
                  "; training will keep the last part of the tokens"));
  return 0;
}

int check(const nlohmann::json& request, const std::vector<std::string>& paths) {
  refuse_flags(request, "data check",
               {"tokenizer", "out", "validation", "validation_text", "separator", "text_field", "format",
                "document_token", "shard_tokens"});
  if (paths.size() != 1) fail_usage("data check: ", paths.size(), " folders, want one of prepared data");
  if (!is_prepared_data(paths[0])) fail(paths[0], ": is no prepared data, want a folder of motet data prepare");
  const PreparedData data = open_prepared_data(paths[0]);
  check_prepared_data(data);
  Table table = split_table();
  const Manifest* manifest = data.manifest ? &*data.manifest : nullptr;
  add_row(table, "train", data.train->size(), manifest ? &manifest->train : nullptr);
  add_row(table, "validation", data.validation ? data.validation->size() : 0,
          manifest ? &manifest->validation : nullptr);
  print_table(table, request);
  return 0;
}

}  // namespace

int run_data(const nlohmann::json& request) {
  output_format(request);  // a wrong name is refused before the work
  std::vector<std::string> arguments = request.value("arguments", std::vector<std::string>());
  const std::string action = arguments.empty() ? "" : arguments.front();
  if (action != "prepare" && action != "check") throw UsageError(unknown_name("action", action, {"prepare", "check"}));
  arguments.erase(arguments.begin());
  return action == "prepare" ? prepare(request, std::move(arguments)) : check(request, arguments);
}

}  // namespace motet
