#include "motet/commands/chat_form.h"

#include "motet/formats/json.h"
#include "motet/generate/end_tokens.h"

namespace motet {

namespace fs = std::filesystem;

std::shared_ptr<const ChatTemplate> chat_template(const Companions& beside, const fs::path& folder) {
  const auto jinja = beside.files.find("chat_template.jinja"), config = beside.files.find("tokenizer_config.json");
  if (jinja != beside.files.end()) return std::make_shared<ChatTemplate>(jinja->second, jinja->first);
  if (config != beside.files.end()) {
    const std::string where = (folder / config->first).string();
    const nlohmann::json given = parse_json(config->second, where);
    if (given.is_object() && given.contains("chat_template") && given["chat_template"].is_string())
      return std::make_shared<ChatTemplate>(given["chat_template"].get<std::string>(), config->first);
  }
  return nullptr;
}

nlohmann::ordered_json token_variables(const Companions& companions, const Tokenizer& tokenizer) {
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();
  for (const char* role : {"bos_token", "eos_token"}) {
    const nlohmann::json id = companions.token_ids.value(text(role, "_id"), nlohmann::json());
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
