#include "motet/commands/chat_form.h"

#include "motet/core/error.h"
#include "motet/core/log.h"
#include "motet/formats/json.h"
#include "motet/generate/end_tokens.h"

namespace motet {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// The template, or the one named default of a list of them; empty: there is none.
std::string default_template(const json& given, const std::string& where) {
  if (given.is_string()) return given;
  if (!given.is_array()) return "";
  std::string names;
  for (const json& one : given) {
    if (!one.is_object() || !one.contains("name") || !one["name"].is_string() || !one.contains("template") ||
        !one["template"].is_string())
      fail(where, ": chat_template has ", quote(one.dump().substr(0, 200)), ", want a name and a template");
    const std::string name = one["name"];
    if (name == "default") return one["template"];
    names += (names.empty() ? "" : ", ") + name;
  }
  log_warn(text(where, ": chat_template has no template named default, only: ", names));
  return "";
}

}  // namespace

std::shared_ptr<const ChatTemplate> chat_template(const Companions& beside, const fs::path& folder) {
  const auto jinja = beside.files.find("chat_template.jinja"), config = beside.files.find("tokenizer_config.json");
  if (jinja != beside.files.end()) return std::make_shared<ChatTemplate>(jinja->second, jinja->first);
  if (config != beside.files.end()) {
    const std::string where = (folder / config->first).string();
    const json given = parse_json(config->second, where);
    const std::string source = given.is_object() ? default_template(given.value("chat_template", json()), where) : "";
    if (!source.empty()) return std::make_shared<ChatTemplate>(source, config->first);
  }
  return nullptr;
}

nlohmann::ordered_json token_variables(const Companions& companions, const Tokenizer& tokenizer) {
  nlohmann::ordered_json variables{{"tools", nullptr}, {"documents", nullptr}};
  for (const char* role :
       {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"}) {
    const json id = companions.token_ids.value(text(role, "_id"), json());
    std::string name = token_name(companions, role);
    if (name.empty() && id.is_number_integer() && id >= 0 && id < tokenizer.vocabulary_size())
      name = tokenizer.piece(id.get<int32_t>());
    if (!name.empty()) variables[role] = name;
  }
  return variables;
}

ExampleForm example_form(const Companions& beside, const Tokenizer& tokenizer, const fs::path& folder) {
  const std::vector<int32_t> ends = end_tokens(beside, tokenizer);
  return {.messages = chat_template(beside, folder),
          .variables = token_variables(beside, tokenizer),
          .end = ends.empty() ? std::nullopt : std::optional(ends.front())};
}

}  // namespace motet
