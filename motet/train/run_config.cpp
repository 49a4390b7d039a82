#include "motet/train/run_config.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/formats/toml.h"
#include "motet/mechanisms/contender.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

const std::vector<std::string> kSections{"model", "model.attention", "data", "train"};

// "model.attention.rank" -> {"model.attention", "rank"}.
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos)
    throw UsageError(text("--set: '", path, "' is no key, want section.key such as train.steps"));
  const std::string section = path.substr(0, dot);
  if (path == "model.attention") fail_usage("--set: 'model.attention' is a section, want one of its keys");
  for (const std::string& known : kSections)
    if (known == section) return {section, path.substr(dot + 1)};
  throw UsageError(unknown_name("section", section, kSections));
}

void set_path(nlohmann::json& config, const std::string& path, const nlohmann::json& value) {
  const auto [section, key] = split_path(path);
  nlohmann::json& target = section == "model.attention" ? config["model"]["attention"] : config[section];
  target[key] = value;
}

void check_sections(const nlohmann::json& config) {
  for (const auto& item : config.items()) {
    if (item.key() != "model" && item.key() != "data" && item.key() != "train")
      throw UsageError(unknown_name("section", item.key(), {"model", "data", "train"}));
    if (!item.value().is_object()) fail_usage(item.key(), ": want a section");
    if (item.key() == "model" && item.value().contains("attention") && !item.value()["attention"].is_object())
      fail_usage("model.attention: want a section");
  }
}

constexpr const char* kBudgets[] = {"steps", "tokens", "minutes"};

// Adds a source of settings that wins over those before it; its budget, in whatever unit, replaces theirs.
void add_source(nlohmann::json& config, const nlohmann::json& source) {
  const auto is_set = [&](const char* budget) { return source.contains("train") && source["train"].contains(budget); };
  if (config.contains("train") && std::any_of(std::begin(kBudgets), std::end(kBudgets), is_set))
    for (const char* budget : kBudgets) config["train"].erase(budget);
  config.merge_patch(source);
}

// Words of the command line as the type that their options have, in whichever mechanism; what is no option or no value
// stays as it is: the mechanism refuses it.
nlohmann::json typed_attention(nlohmann::json given) {
  for (const MechanismEntry& entry : mechanism_registry())
    for (const Option& option : attention_options(entry)) {
      if (!given.contains(option.name) || !given[option.name].is_string()) continue;
      try {
        given[option.name] = checked({.name = option.name, .type = option.type}, given[option.name], option.name);
      } catch (const UsageError&) {
      }
    }
  return given;
}

// A mechanism may be named as a contender of a comparison is: "differential_v2", "dcmha:rank=1"; keys of the section
// win over what that stands for.
nlohmann::json expanded(const nlohmann::json& given) {
  if (!given.contains("mechanism") || !given["mechanism"].is_string()) return given;
  nlohmann::json attention = parse_contender(given["mechanism"].get<std::string>(), "model.attention.mechanism");
  for (const auto& item : given.items())
    if (item.key() != "mechanism") attention[item.key()] = item.value();
  return attention;
}

std::vector<std::string> take_texts(nlohmann::json& data) {
  std::vector<std::string> texts;
  if (!data.is_object() || !data.contains("text")) return texts;
  const nlohmann::json given = data["text"];
  data.erase("text");
  if (given.is_string()) return {given.get<std::string>()};
  if (!given.is_array()) fail_usage("data.text: want a path or a list of paths");
  for (const auto& item : given) {
    if (!item.is_string()) fail_usage("data.text: want a path or a list of paths");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

}  // namespace

const OptionTable& data_options() {
  using enum OptionType;
  static const OptionTable table{
      {"tokenizer",
       string,
       "auto",
       {},
       {},
       {},
       "chars, bytes, a tokenizer's file or folder; auto: the data's, or chars"},
      {"validation", number, 0.1, 0.0001, 0.9, {}, "part of the text, from its end, that is kept for validation"},
      {"documents", string, "packed", {}, {}, {"packed", "apart"}, "of prepared data: apart: none sees another"},
  };
  return table;
}

const OptionTable& train_options() {
  using enum OptionType;
  static const OptionTable table{
      {"steps", integer, 0, 0, 1e9, {}, "optimiser steps; one of steps, tokens and minutes is the budget"},
      {"tokens", integer, 0, 0, 1e15, {}, "training tokens, rounded up to whole steps"},
      {"minutes", number, 0, 0, 1e6, {}, "time for training steps, without evaluation"},
      {"context", integer, 128, 1, 1e7, {}, "tokens of a training example, and the model's context"},
      {"batch_size", integer, 16, 1, 1e6, {}, "examples in a step"},
      {"learning_rate", number, 3e-3, 0, 10, {}, "peak learning rate of AdamW"},
      {"final_learning_rate", number, 0.1, 0, 1, {}, "last learning rate as a part of the peak (cosine)"},
      {"warmup", number, 0.05, 0, 1, {}, "part of the budget in which the learning rate rises"},
      {"weight_decay", number, 0.1, 0, 10, {}, "decay of matrices; norms, biases, gates, lambda and mixes have none"},
      {"beta1", number, 0.9, 0, 0.999999, {}, "decay of the first moment"},
      {"beta2", number, 0.95, 0, 0.999999, {}, "decay of the second moment"},
      {"epsilon", number, 1e-8, 0, 1, {}, "epsilon of AdamW"},
      {"clip", number, 1.0, 0, 1e6, {}, "largest norm of the gradient; 0 = no limit"},
      {"dtype",
       string,
       "float32",
       {},
       {},
       {"float32", "float64", "bfloat16"},
       "bfloat16: autocast of the forward pass"},
      {"device", string, "auto", {}, {}, {}, "cpu, cuda or cuda:N; auto: a GPU if there is one"},
      {"eval_every", integer, 0, 0, 1e9, {}, "steps between evaluations; 0 = ten in a run"},
      {"eval_windows", integer, 64, 1, 1e9, {}, "windows of the validation text, evenly spread, in each evaluation"},
      {"final_eval_windows", integer, 0, 0, 1e9, {}, "those in the last one; 0 = 500,000 tokens, or all there are"},
      {"checkpoint_every", integer, 0, 0, 1e9, {}, "steps between checkpoints; 0 = only the last"},
      {"seed", integer, 1, 0, 1e15, {}, "seed of the first parameters"},
      {"data_seed", integer, 0, 0, 1e15, {}, "seed of the order of batches, the same for every model"},
  };
  return table;
}

RunConfig read_run_config(const nlohmann::json& request, const nlohmann::json& base) {
  nlohmann::json config = base;
  if (const std::string file = request.value("config", ""); !file.empty()) {
    const nlohmann::json read = read_toml(file);
    try {
      check_sections(read);
    } catch (const UsageError& e) {
      fail_usage(file, ": ", e.what());
    }
    add_source(config, read);
  }
  nlohmann::json overrides = nlohmann::json::object();
  for (const auto& pair : request.value("set", nlohmann::json::array()))
    set_path(overrides, pair[0].get<std::string>(), pair[1]);
  check_sections(overrides);
  add_source(config, overrides);

  RunConfig run;
  nlohmann::json model = config.value("model", nlohmann::json::object()),
                 data = config.value("data", nlohmann::json::object());
  run.attention_given = typed_attention(expanded(model.value("attention", nlohmann::json::object())));
  model.erase("attention");
  run.texts = take_texts(data);
  if (const auto texts = request.value("texts", std::vector<std::string>()); !texts.empty()) run.texts = texts;
  run.model = resolve(model_options(), model, "model");
  run.data = resolve(data_options(), data, "data");
  run.train = resolve(train_options(), config.value("train", nlohmann::json::object()), "train");
  int budgets = 0;
  for (const char* key : kBudgets) budgets += run.train[key].get<double>() > 0;
  if (budgets > 1) fail_usage("train: more than one of steps, tokens and minutes is set, want one budget");
  if (budgets == 0) fail_usage("train: no budget, want one of train.steps, train.tokens and train.minutes");
  parse_device(run.train.at("device").get<std::string>());  // refuses what is not here
  return run;
}

ModelConfig RunConfig::model_config(int64_t vocab_size) const {
  return {.options = model,
          .attention = resolve_attention(attention_given, "model.attention"),
          .vocab_size = vocab_size,
          .context = train.at("context").get<int64_t>(),
          .autocast = train.at("dtype") == "bfloat16"};
}

nlohmann::json RunConfig::as_given() const {
  nlohmann::json all{{"model", model}, {"data", data}, {"train", train}};
  all["model"]["attention"] = attention_given;
  if (!texts.empty()) all["data"]["text"] = texts;
  return all;
}

nlohmann::json RunConfig::resolved() const {
  nlohmann::json all = as_given();
  all["model"]["attention"] = resolve_attention(attention_given, "model.attention");
  return all;
}

std::string describe_options(const nlohmann::json& base) {
  std::string out = "# Every key with its default, as --config reads it.\n";
  const auto keys = [&](const OptionTable& table, const char* lead, const nlohmann::json& values) {
    for (const Option& o : table)
      out += text(lead, o.name, " = ", values.value(o.name, o.default_value).dump(), "  # ", accepted(o), "; ",
                  o.sentence, "\n");
  };
  const nlohmann::json none = nlohmann::json::object();
  out += "\n[model]\n";
  keys(model_options(), "", base.value("model", none));
  out += text("\n[model.attention]\nmechanism = \"softmax\"  # ", joined(contender_names()),
              "; options behind colons: dcmha:rank=1\n");
  keys(common_attention_options(), "", none);
  for (const MechanismEntry& entry : mechanism_registry()) {
    if (entry.options.empty()) continue;
    out += "# of mechanism = \"" + entry.name + "\"\n";
    keys(entry.options, "# ", none);
  }
  out += "\n[data]\n# text = [\"a.txt\", \"b.txt\"]  # files, folders of *.txt, or prepared data\n";
  keys(data_options(), "", base.value("data", none));
  out += "\n[train]\n";
  keys(train_options(), "", base.value("train", none));
  return out;
}

}  // namespace motet
