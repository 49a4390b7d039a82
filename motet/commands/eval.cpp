#include <optional>

#include "motet/checkpoints/checkpoint.h"
#include "motet/commands/chat_form.h"
#include "motet/commands/commands.h"
#include "motet/commands/eval_masked.h"
#include "motet/commands/eval_task.h"
#include "motet/commands/eval_texts.h"
#include "motet/commands/request.h"
#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/eval/multiple_choice/evaluate.h"
#include "motet/eval/perplexity/perplexity.h"
#include "motet/formats/gguf.h"
#include "motet/models/lengthen.h"
#include "motet/ops/device.h"
#include "motet/tasks/task.h"
#include "motet/text/token_bytes.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kPerplexity = "perplexity";

Table list_of_tasks() {
  Table table{
      .columns = {{"task", Align::left}, {"measures", Align::left}},
      .rows = {{kPerplexity, "nats per token, bits per byte and perplexity of a text"}, {kMasked, kMaskedSummary}}};
  for (const ChoiceTask& task : choice_tasks()) table.rows.push_back({task.name, task.summary});
  for (const TaskEntry& task : task_registry())
    table.rows.push_back({task.name, text("of models trained on it (train --task): ", task.sentence)});
  return table;
}

const ChoiceTask* find_task(const std::string& name) {
  for (const ChoiceTask& task : choice_tasks())
    if (task.name == name) return &task;
  return nullptr;
}

// The first argument names the task; files alone are texts.
std::string take_task(std::vector<std::string>& arguments) {
  if (arguments.empty()) return kPerplexity;
  const std::string first = arguments.front();
  if (first == kPerplexity || first == kMasked || find_task(first) || is_task(first)) {
    arguments.erase(arguments.begin());
    return first;
  }
  std::vector<std::string> known{kPerplexity, kMasked};
  for (const ChoiceTask& task : choice_tasks()) known.push_back(task.name);
  for (const TaskEntry& task : task_registry()) known.emplace_back(task.name);
  if (!fs::exists(first) && first.find_first_of("/.") == first.npos) fail_usage(unknown_name("task", first, known));
  return kPerplexity;
}

// The token that begins texts, if the model's files name one.
std::optional<int64_t> first_token(const Checkpoint& c) {
  for (const char* id : {"bos_token_id", "eos_token_id"}) {
    std::optional<int64_t> token;
    if (c.format == "gguf")
      token = static_cast<const GgufFile*>(c.tensors.files.get())->integer(text("tokenizer.ggml.", id));
    if (c.published.is_object() && c.published.contains(id) && c.published[id].is_number_integer())
      token = c.published[id].get<int64_t>();
    if (token && *token >= 0 && *token < c.config.vocab_size) return token;
  }
  return std::nullopt;
}

Table perplexity_table(const std::string& name, const std::vector<Perplexity>& all) {
  Table table{.columns = {{"text", Align::left},
                          {"tokens"},
                          {"window"},
                          {"nats/token", Align::right, "", "nats_per_token"},
                          {"bits/byte", Align::right, "", "bits_per_byte"},
                          {"perplexity"},
                          {"of a word", Align::right, "", "word_perplexity"}}};
  for (const Perplexity& p : all) {
    table.rows.push_back(
        {name,
         {std::to_string(p.tokens), p.tokens},
         {std::to_string(p.context), p.context},
         {fixed(p.nats_per_token, 4), p.nats_per_token},
         {fixed(p.bits_per_byte, 4), p.bits_per_byte},
         {fixed(p.perplexity, 3), p.perplexity},
         p.word_perplexity > 0 ? Cell{fixed(p.word_perplexity, 1), p.word_perplexity} : Cell{"-", nullptr}});
    if (p.by_position.empty()) continue;
    std::string shown;
    for (const double nats : p.by_position) shown += text(shown.empty() ? "" : " ", fixed(nats, 3));
    table.rows.back().push_back({shown, p.by_position});
  }
  if (!all.front().by_position.empty())
    table.columns.push_back({"by position", Align::left, "nats/token", "by_position"});
  return table;
}

// "128,512" -> the windows of --ctx-size; none: the model's context.
std::vector<int64_t> windows_of(const std::string& given) {
  std::vector<int64_t> all;
  const Option size{.name = "ctx_size", .type = OptionType::integer, .default_value = 1, .min = 1, .max = 1e9};
  if (!given.empty())
    for (const std::string& word : split(given, ',')) all.push_back(checked(size, word, "--ctx-size"));
  return all;
}

// The keys of --set, all of them of the model's attention.
json positions_of(const json& request) {
  const std::string lead = "model.attention.";
  json options = json::object();
  for (const auto& pair : request.value("set", json::array())) {
    const std::string key = pair[0];
    if (!key.starts_with(lead)) fail_usage("--set: ", quote(key), ", want a key of ", lead, joined(position_options()));
    options[key.substr(lead.size())] = pair[1];
  }
  return options;
}

Table choice_table(const ChoiceTask& task, const std::vector<ChoiceResult>& results) {
  Table table{.columns = {{"task", Align::left},
                          {"file", Align::left},
                          {"items"},
                          {"accuracy", Align::right, "", "acc"},
                          {"+-", Align::right, "", "acc_stderr"}}};
  const auto number = [](double value) { return Cell{fixed(value, 4), value}; };
  if (task.by_length)
    table.columns.insert(table.columns.end(),
                         {{"by length", Align::right, "", "acc_norm"}, {"+-", Align::right, "", "acc_norm_stderr"}});
  if (task.one_ending) table.columns.push_back({"perplexity"});
  for (const ChoiceResult& r : results) {
    std::vector<Cell> row{
        task.name, r.file, {std::to_string(r.items), r.items}, number(r.accuracy.mean), number(r.accuracy.error)};
    if (task.by_length) row.insert(row.end(), {number(r.accuracy_by_length.mean), number(r.accuracy_by_length.error)});
    if (task.one_ending) row.push_back(number(std::exp(r.nats)));
    table.rows.push_back(row);
  }
  return table;
}

// The name of what was scored, and the score: of a whole text, of the answers of examples, or of tokens as training
// scores them.
std::pair<std::string, Perplexity> score(ModelImpl& model, const std::shared_ptr<const Tokenizer>& tokenizer,
                                         const Companions& beside, const EvalTexts& scored, PerplexityOptions options) {
  if (!scored.examples.empty()) {
    options.documents_apart = true;
    std::vector<Example> examples = read_examples(scored.examples, *tokenizer, example_form(beside, *tokenizer));
    if (scored.validation > 0)
      examples.erase(examples.begin(),
                     examples.end() - num_validation_examples(examples.size(), scored.validation, scored.examples));
    const ExampleRows rows(examples, perplexity_context(model, options), scored.examples);
    if (const std::string remark = rows.remark(); !remark.empty()) log_warn(text(scored.examples, ": ", remark));
    return {fs::path(scored.examples).filename().string() + (scored.validation > 0 ? " (validation)" : ""),
            token_perplexity(model, rows, token_byte_counts(*tokenizer), options)};
  }
  if (scored.whole_text()) {
    const Corpus& corpus = scored.sources[0].corpus;
    return {corpus.name, text_perplexity(model, *tokenizer, corpus.text, options)};
  }
  const EvalTokens part = eval_tokens(scored, tokenizer);
  return {part.name, token_perplexity(model, *part.tokens, token_byte_counts(*tokenizer), options)};
}

}  // namespace

int run_eval(const json& request) {
  if (request.value("list", false)) {
    print_table(list_of_tasks(), request);
    return 0;
  }
  const EvalRequest asked = read_request(eval_options(), request);
  std::vector<std::string> files = request.value("arguments", std::vector<std::string>());
  const std::string name = take_task(files);
  if (name == kMasked) return run_eval_masked(request, files);
  if (is_task(name)) {
    refuse_flags(request, name,
                 {"ctx_size", "stride", "validation", "documents", "positions", "logit_bits", "logit_scale", "items"});
    if (!files.empty()) fail_usage(name, ": its episodes are made, want no file");
    output_format(request);
    request_threads(request);
    print_table(task_table(request, asked, name), request);
    return 0;
  }
  const ChoiceTask* task = find_task(name);
  if (task)
    refuse_flags(request, name, {"stride", "validation", "documents", "positions", "logit_bits", "logit_scale"});
  if (!task) refuse_flags(request, name, {"limit", "items"});
  const fs::path folder = model_folder(request, "model");
  output_format(request);  // a wrong name is refused before the work
  request_threads(request);
  const EvalTexts scored = task ? EvalTexts() : open_eval_texts(files, asked);
  if (request.contains("validation")) warn_of_validation(scored);
  const at::Device device = parse_device(asked.device);
  Checkpoint checkpoint = open_checkpoint(folder);
  const std::vector<int64_t> windows = windows_of(asked.ctx_size);
  if (task && windows.size() > 1) fail_usage("--ctx-size: ", asked.ctx_size, ", want one window for ", name);
  const int64_t longest = windows.empty() ? 0 : std::ranges::max(windows);
  checkpoint.config =
      lengthened(checkpoint.config, !task && longest > checkpoint.config.context ? longest : 0, positions_of(request));
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(folder, checkpoint.config);
  Model model = load_for_scoring(checkpoint, asked, device);
  if (request.contains("logit_scale") && asked.logit_bits == 0)
    fail_usage("--logit-scale: has no meaning without --logit-bits");
  if (!task) {
    std::vector<Perplexity> all;
    std::string what;
    for (const int64_t window : windows.empty() ? std::vector<int64_t>{0} : windows) {
      const PerplexityOptions options{.context = window,
                                      .stride = windows.size() > 1 ? std::min(asked.stride, window) : asked.stride,
                                      .rows = asked.batch_size,
                                      .documents_apart = asked.documents == Documents::apart,
                                      .positions = asked.positions,
                                      .rounding = {asked.logit_bits, asked.logit_scale}};
      if (const int64_t size = perplexity_context(*model, options); asked.positions > size)
        fail_usage("--positions: ", asked.positions, " parts of a window of ", size, " tokens, want at most ", size);
      auto scores = score(*model, tokenizer, companions_of(checkpoint), scored, options);
      what = scores.first;
      all.push_back(std::move(scores.second));
      if (!std::isfinite(all.back().nats_per_token))
        fail("eval: ", what, " has ", std::abs(all.back().nats_per_token), " nats a token, want a finite number");
    }
    if (!fs::exists(request.value("model", ""))) log_info("model: " + folder.string());  // a run's :best or :average
    print_table(perplexity_table(what, all), request);
    return 0;
  }
  const ChoiceOptions options{.limit = asked.limit,
                              .batch_size = asked.batch_size > 0 ? asked.batch_size : 16,
                              .context = longest,
                              .first = first_token(checkpoint),
                              .items = asked.items};
  print_table(choice_table(*task, evaluate_choices(*model, *tokenizer, *task, files, options)), request);
  return 0;
}

}  // namespace motet
