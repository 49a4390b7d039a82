#include "motet/checkpoints/companions.h"

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/formats/gguf.h"
#include "motet/formats/json.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// How tokens are used, and the tokens themselves.
constexpr const char* kUse[] = {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                                "chat_template.jinja"};
constexpr const char* kVocabulary[] = {"tokenizer.json", "tokenizer.model", "vocab.json",       "merges.txt",
                                       "encoder.json",   "vocab.bpe",       "added_tokens.json"};

void add_files(Companions& to, const fs::path& folder, std::span<const char* const> names) {
  for (const char* name : names)
    if (fs::is_regular_file(folder / name)) to.files[name] = read_file(folder / name);
}

Companions of_gguf(const GgufFile& file) {
  Companions made;
  for (const auto& [ours, theirs] : {std::pair("bos_token_id", "bos_token_id"),
                                     {"eos_token_id", "eos_token_id"},
                                     {"pad_token_id", "padding_token_id"}})
    if (const auto id = file.integer(text("tokenizer.ggml.", theirs))) made.token_ids[ours] = *id;
  // Models of chats end an answer with another token than a text.
  const auto turn = file.integer("tokenizer.ggml.eot_token_id");
  if (turn && made.token_ids.contains("eos_token_id") && made.token_ids["eos_token_id"] != *turn)
    made.token_ids["eos_token_id"] = {made.token_ids["eos_token_id"], *turn};
  if (const auto form = file.word("tokenizer.chat_template")) made.files["chat_template.jinja"] = *form;
  return made;
}

bool is_id(const json& value) { return value.is_number_integer(); }

}  // namespace

const std::vector<std::string>& token_id_keys() {
  static const std::vector<std::string> keys{"bos_token_id", "eos_token_id", "pad_token_id"};
  return keys;
}

json token_ids_of(const json& config, const std::string& where) {
  json ids = json::object();
  for (const std::string& key : token_id_keys()) {
    if (!config.is_object() || !config.contains(key) || config[key].is_null()) continue;
    const json& value = config[key];
    if (!is_id(value) && !(value.is_array() && std::all_of(value.begin(), value.end(), is_id)))
      fail(where, ": ", key, " is ", quote(value.dump()), ", want the id of a token or a list of them");
    ids[key] = value;
  }
  return ids;
}

json companion_json(const Companions& companions, const std::string& file) {
  const auto found = companions.files.find(file);
  return found == companions.files.end() ? json::object() : parse_json(found->second, file);
}

Companions companions_of(const Checkpoint& c) {
  if (c.format == "gguf") return of_gguf(*static_cast<const GgufFile*>(c.tensors.files.get()));
  if (c.folder.empty()) return {};
  Companions made{.files = {}, .token_ids = token_ids_of(c.published, (c.folder / "config.json").string())};
  add_files(made, c.folder, kUse);
  add_files(made, c.folder, kVocabulary);
  add_files(made, c.folder, {&kTaskFile, 1});
  return made;
}

Companions companions_of_tokenizer(const fs::path& path) {
  std::error_code ignored;
  if (path.extension() == ".gguf") return of_gguf(GgufFile(path.string()));
  const fs::path folder = fs::is_directory(path, ignored) ? path : path.parent_path();
  Companions made;
  add_files(made, folder, kUse);
  const std::string config = (folder / "config.json").string();
  if (fs::is_regular_file(config, ignored)) made.token_ids = token_ids_of(read_json(config), config);
  return made;
}

}  // namespace motet
