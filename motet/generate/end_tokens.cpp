#include "motet/generate/end_tokens.h"

namespace motet {
namespace {

using nlohmann::json;

std::optional<int32_t> id_of(const Tokenizer& tokenizer, const std::string& name) {
  for (int32_t id = 0; !name.empty() && id < tokenizer.vocabulary_size(); ++id)
    if (tokenizer.piece(id) == name) return id;
  return std::nullopt;
}

}  // namespace

std::string token_name(const Companions& companions, const std::string& role) {
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const json given = companion_json(companions, file);
    if (!given.is_object() || !given.contains(role)) continue;
    const json& value = given[role];
    if (value.is_string()) return value.get<std::string>();
    if (value.is_object() && value.contains("content") && value["content"].is_string())
      return value["content"].get<std::string>();
  }
  return "";
}

std::vector<int32_t> end_tokens(const Companions& companions, const Tokenizer& tokenizer) {
  const char *const key = "eos_token_id", *const file = "generation_config.json";
  json ids = token_ids_of(companion_json(companions, file), file).value(key, json());
  if (ids.is_null()) ids = companions.token_ids.value(key, json());
  if (ids.is_null()) {
    const auto named = id_of(tokenizer, token_name(companions, "eos_token"));
    return named ? std::vector{*named} : std::vector<int32_t>();
  }
  if (!ids.is_array()) ids = json::array({ids});
  std::vector<int32_t> known;
  for (const json& id : ids)
    if (id >= 0 && id < tokenizer.vocabulary_size()) known.push_back(id.get<int32_t>());
  return known;
}

void add_named_token_ids(Companions& companions, const Tokenizer& tokenizer) {
  for (const char* role : {"bos_token", "eos_token", "pad_token"}) {
    const std::string key = std::string(role) + "_id";
    const auto id = companions.token_ids.contains(key) ? std::nullopt : id_of(tokenizer, token_name(companions, role));
    if (id) companions.token_ids[key] = *id;
  }
}

}  // namespace motet
