#include "motet/train/run_config.h"

#include <algorithm>

#include "motet/core/error.h"
#include "motet/formats/toml.h"
#include "motet/mechanisms/contender.h"
#include "motet/ops/device.h"
#include "motet/tasks/task.h"

namespace motet {
namespace {

const std::vector<std::string> kSections{"model", "model.attention", "data", "data.task", "train"};

// "model.attention.rank" -> {"model.attention", "rank"}.
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string::npos)
    throw UsageError(text("--set: '", path, "' is no key, want section.key such as train.steps"));
  const std::string section = path.substr(0, dot);
  if (path == "model.attention" || path == "data.task")
    fail_usage("--set: ", quote(path), " is a section, want one of its keys");
  for (const std::string& known : kSections)
    if (known == section) return {section, path.substr(dot + 1)};
  throw UsageError(unknown_name("section", section, kSections));
}

void set_path(nlohmann::json& config, const std::string& path, const nlohmann::json& value) {
  const auto [section, key] = split_path(path);
  const size_t dot = section.find('.');
  nlohmann::json& own = config[section.substr(0, dot)];
  (dot == section.npos ? own : own[section.substr(dot + 1)])[key] = value;
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

// Keys of a section of which one counts.
struct Alternatives {
  const char* section;
  std::vector<const char*> keys;
};
const std::vector<Alternatives> kAlternatives{{"train", {"steps", "tokens", "minutes"}},
                                              {"data", {"text", "mixture", "task"}}};

// Adds a source of settings that wins over those before it; its budget, in whatever unit, replaces theirs.
void add_source(nlohmann::json& config, const nlohmann::json& source) {
  for (const auto& [section, keys] : kAlternatives) {
    const auto is_set = [&](const char* key) { return source.contains(section) && source[section].contains(key); };
    if (config.contains(section) && std::ranges::any_of(keys, is_set))
      for (const char* key : keys)
        if (!is_set(key)) config[section].erase(key);
  }
  const auto task_name = [](const nlohmann::json& from) {
    const nlohmann::json::json_pointer place("/data/task/name");
    return from.contains(place) ? from.at(place) : nlohmann::json();
  };
  if (!task_name(source).is_null() && task_name(source) != task_name(config))
    if (config.contains("data")) config["data"].erase("task");  // its options are those of another
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

std::vector<MixtureSource> take_mixture(nlohmann::json& data) {
  std::vector<MixtureSource> mixture;
  if (!data.is_object() || !data.contains("mixture")) return mixture;
  const nlohmann::json given = data["mixture"];
  data.erase("mixture");
  const auto is_source = [](const nlohmann::json& item) {
    return item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_number();
  };
  if (!given.is_array() || given.empty() || !std::ranges::all_of(given, is_source))
    fail_usage("data.mixture: want a list of paths with weights, [[\"data/a\", 0.7], [\"data/b\", 0.3]]");
  for (const auto& item : given) mixture.push_back({item[0].get<std::string>(), item[1].get<double>()});
  return mixture;
}

// The options of a task, checked; what only texts have is refused.
nlohmann::json take_task(nlohmann::json& data) {
  if (!data.is_object() || !data.contains("task")) return nullptr;
  const nlohmann::json task = resolved_task(data["task"], "data.task");
  data.erase("task");
  for (const Option& option : data_options().table())
    if (data.contains(option.name) && checked(option, data[option.name], "data." + option.name) != option.default_value)
      fail_usage("data.", option.name, ": a task has no text, want it left out");
  return task;
}

}  // namespace

nlohmann::json without_idle_keys(nlohmann::json config) {
  if (!config.contains("train") || !config["train"].is_object()) return config;
  nlohmann::json& train = config["train"];
  nlohmann::json all = train_options().write({});
  all.update(train);
  for (const Option& option : train_options().table())
    if (!has_effect(option, all)) train.erase(option.name);
  return config;
}

RunConfig read_run_config(const nlohmann::json& request, const nlohmann::json& base) {
  nlohmann::json config = base;
  bool context_given = false;
  const auto add = [&](const nlohmann::json& source) {
    context_given |= source.contains(nlohmann::json::json_pointer("/train/context"));
    add_source(config, source);
  };
  if (const std::string file = request.value("config", ""); !file.empty()) {
    const nlohmann::json read = read_toml(file);
    try {
      check_sections(read);
    } catch (const UsageError& e) {
      fail_usage(file, ": ", e.what());
    }
    add(read);
  }
  nlohmann::json overrides = nlohmann::json::object();
  for (const auto& pair : request.value("set", nlohmann::json::array()))
    set_path(overrides, pair[0].get<std::string>(), pair[1]);
  check_sections(overrides);
  add(overrides);

  RunConfig run;
  nlohmann::json model = config.value("model", nlohmann::json::object()),
                 data = config.value("data", nlohmann::json::object());
  run.attention_given = typed_attention(expanded(model.value("attention", nlohmann::json::object())));
  model.erase("attention");
  const auto texts = request.value("texts", std::vector<std::string>());
  if (!texts.empty() && overrides.value("data", nlohmann::json::object()).contains("task"))
    fail_usage("--task and a text: want one of them");
  if (!texts.empty()) data.erase("task");
  for (const char* other : {"mixture", "task"})
    if (data.contains("text") && data.contains(other)) fail_usage("data.text and data.", other, ": want one of them");
  if (data.contains("mixture") && data.contains("task")) fail_usage("data.mixture and data.task: want one of them");
  const bool has_texts = data.contains("text");
  run.texts = take_texts(data), run.mixture = take_mixture(data), run.task = take_task(data);
  if (!texts.empty()) run.texts = texts, run.mixture.clear();
  if (has_texts && run.texts.empty()) fail_usage("data.text: a list without a path, want a path or a list of paths");
  run.model = model_options().parse(model, "model");
  run.data = data_options().parse(data, "data");
  run.train = train_options().parse(config.value("train", nlohmann::json::object()), "train");
  const int budgets = (run.train.steps > 0) + (run.train.tokens > 0) + (run.train.minutes > 0);
  if (budgets > 1) fail_usage("train: more than one of steps, tokens and minutes is set, want one budget");
  if (budgets == 0) fail_usage("train: no budget, want one of train.steps, train.tokens and train.minutes");
  for (const auto& [name, value] : {std::pair("warmup", run.train.warmup), {"decay", run.train.decay}})
    if (value >= 1 && run.train.minutes > 0)
      fail_usage("train.", name, ": ", value, " steps of a budget in minutes, want a part of it, below 1");
  if (!run.task.is_null()) {
    const int64_t row = make_task(run.task, "data.task")->row_length();
    if (context_given && run.train.context != row)
      fail_usage("train.context: ", run.train.context, ", want the ", row,
                 " tokens of an episode and its answer, or it left out");
    run.train.context = row;
    if (!run.model.causal) fail_usage("model.causal: false, want true: a task's answer stands behind its question");
  }
  parse_device(run.train.device);  // refuses what is not here
  return run;
}

std::optional<at::ScalarType> autocast_of(TrainDtype dtype) {
  if (dtype == TrainDtype::bfloat16) return at::kBFloat16;
  if (dtype == TrainDtype::float16) return at::kHalf;
  return std::nullopt;
}

at::ScalarType product_type(TrainDtype dtype) {
  return autocast_of(dtype).value_or(dtype == TrainDtype::float64 ? at::kDouble : at::kFloat);
}

ModelConfig RunConfig::model_config(int64_t vocab_size) const {
  return {.options = model,
          .attention = resolve_attention(attention_given, "model.attention"),
          .vocab_size = vocab_size,
          .context = train.context,
          .autocast = autocast_of(train.dtype)};
}

nlohmann::json RunConfig::as_given() const {
  nlohmann::json all{{"model", model_options().write(model)},
                     {"data", data_options().write(data)},
                     {"train", train_options().write(train)}};
  all["model"]["attention"] = attention_given;
  if (!texts.empty()) all["data"]["text"] = texts;
  for (const MixtureSource& source : mixture) all["data"]["mixture"].push_back({source.path, source.weight});
  if (!task.is_null()) all["data"]["task"] = task;
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
                  o.sentence, o.where.option.empty() ? "" : "; of ", words(o.where), "\n");
  };
  const nlohmann::json none = nlohmann::json::object();
  out += "\n[model]\n";
  keys(model_options().table(), "", base.value("model", none));
  out += text("\n[model.attention]\nmechanism = \"softmax\"  # ", joined(contender_names()),
              "; options behind colons: dcmha:rank=1\n");
  keys(common_attention_options().table(), "", none);
  for (const MechanismEntry& entry : mechanism_registry()) {
    if (entry.options.empty()) continue;
    out += "# of mechanism = \"" + entry.name + "\"\n";
    keys(entry.options, "# ", none);
  }
  out += "\n[data]\n# text = [\"a.txt\", \"b.txt\"]  # plain texts, folders with *.txt below, or prepared data\n";
  out +=
      "# mixture = [[\"data/a\", 0.7], [\"data/b\", 0.3]]  # in place of text: sources with their parts of all rows\n";
  keys(data_options().table(), "", base.value("data", none));
  for (const TaskEntry& entry : task_registry()) {
    out += text("# [data.task]  # in place of text: ", entry.sentence, "\n# name = \"", entry.name, "\"\n");
    keys(entry.options, "# ", none);
  }
  out += "\n[train]\n";
  keys(train_options().table(), "", base.value("train", none));
  return out;
}

}  // namespace motet
