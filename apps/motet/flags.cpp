#include "apps/motet/flags.h"

#include <charconv>

#include "motet/core/error.h"
#include "motet/mechanisms/options.h"
#include "motet/models/options.h"
#include "motet/train/options.h"

namespace motet {
namespace {

std::string dashed(std::string name) {
  for (char& c : name)
    if (c == '_') c = '-';
  return name;
}

std::string placeholder(const Option& option) {
  switch (option.type) {
    case OptionType::boolean:
      return "";
    case OptionType::integer:
      return "N";
    case OptionType::number:
      return "X";
    case OptionType::string:
      break;
  }
  return option.choices.empty() ? "TEXT" : "NAME";
}

std::string number_text(double number) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr};
}

// " (default: 40)", " (a, b; default: b)"; nothing where the default is none, or outside of what may be given.
std::string default_text(const Option& option, const nlohmann::json& value) {
  if (value.is_number() && value.get<double>() >= option.min)
    return " (default: " + number_text(value.get<double>()) + ")";
  if (!value.is_string() || value.get<std::string>().empty()) return "";
  return " (" + (option.choices.empty() ? "" : joined(option.choices) + "; ") + "default: " + value.get<std::string>() +
         ")";
}

}  // namespace

Flag flag_of(const Option& option, const std::string& target, const Shown& shown, const nlohmann::json& otherwise) {
  return {.long_name = shown.name.empty() ? dashed(option.name) : shown.name,
          .target = target,
          .value = shown.value.empty() ? placeholder(option) : shown.value,
          .help = option.sentence + default_text(option, otherwise.is_null() ? option.default_value : otherwise),
          .short_name = shown.letter,
          .kind = option.type == OptionType::boolean ? FlagKind::toggle : FlagKind::text};
}

std::vector<Flag> flags_of(const OptionTable& table, const std::map<std::string, Shown>& shown) {
  std::vector<Flag> flags;
  for (const Option& option : table) {
    const auto own = shown.find(option.name);
    flags.push_back(flag_of(option, option.name, own == shown.end() ? Shown() : own->second));
  }
  return flags;
}

std::vector<Flag> configuration_flags(const nlohmann::json& base) {
  const auto key = [&](const char* section, const OptionTable& table, const char* name, const Shown& shown = {}) {
    std::string path = std::string("/") + section;
    for (char& c : path)
      if (c == '.') c = '/';
    const nlohmann::json::json_pointer place(path + "/" + name);
    return flag_of(find_option(table, name, section), std::string(section) + "." + name, shown,
                   base.contains(place) ? base.at(place) : nlohmann::json());
  };
  const OptionTable &train = train_options().table(), &model = model_options().table(), &data = data_options().table();
  return {{.long_name = "config", .target = "config", .value = "FILE", .help = "TOML file with [model] [data] [train]"},
          {.long_name = "set",
           .target = "set",
           .value = "KEY=VALUE",
           .help = "any key of the configuration, as in train.learning_rate=3e-4; may be repeated, and wins over "
                   "flags",
           .kind = FlagKind::list},
          key("train", train, "steps"),
          key("train", train, "tokens"),
          key("train", train, "minutes"),
          key("model", model, "hidden_size"),
          key("model", model, "num_layers"),
          key("model.attention", common_attention_options().table(), "num_heads"),
          key("train", train, "context", {.letter = "c", .name = "ctx-size"}),
          key("train", train, "batch_size", {.letter = "b"}),
          key("train", train, "learning_rate"),
          key("train", train, "dtype"),
          key("train", train, "device", {.value = "NAME"}),
          key("train", train, "seed", {.letter = "s"}),
          key("data", data, "tokenizer", {.value = "NAME"}),
          key("data", data, "validation"),
          key("data", data, "documents", {.value = "HOW"}),
          key("train", train, "eval_every"),
          {.long_name = "dry-run",
           .target = "dry_run",
           .help = "print configuration, parameters, memory and FLOPs, and stop",
           .kind = FlagKind::toggle}};
}

std::vector<Flag> operator+(std::vector<Flag> first, const std::vector<Flag>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Positional training_texts() {
  return {.field = "texts",
          .name = "TEXT",
          .help =
              "plain texts, folders with *.txt below, or one folder of motet data, or one .jsonl of examples "
              "(default: the built-in tiny Shakespeare)",
          .most = SIZE_MAX};
}

}  // namespace motet
