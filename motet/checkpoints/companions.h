#pragma once
#include "motet/checkpoints/model_folder.h"

// What lies beside a model's numbers and goes with it wherever the model goes: train --init, convert, retrofit. This is
// the one list of such files and keys.
namespace motet {

struct Checkpoint;

struct Companions {
  ExtraFiles files;  // chat_template.jinja, generation_config.json, tokenizer.json, task.json ...
  /// config.json's "bos_token_id", "eos_token_id", "pad_token_id", as they stand there: a number, or a list of them.
  nlohmann::json token_ids = nlohmann::json::object();
};

/// The companion of a model that was trained on a task in place of a text: the task's name and options.
inline constexpr const char* kTaskFile = "task.json";

/// The keys of config.json that say which tokens begin, end and fill up a text.
const std::vector<std::string>& token_id_keys();
/// Those keys of a config.json. Throws Error that begins with `where` for one that is no id and no list of ids.
nlohmann::json token_ids_of(const nlohmann::json& config, const std::string& where);

/// One of the files as JSON; an empty object when it is not there.
nlohmann::json companion_json(const Companions&, const std::string& file);

/// Of a model: the files of its folder; or the metadata of a .gguf, its vocabulary excepted.
Companions companions_of(const Checkpoint&);
/// Of a tokenizer's file or folder, or of a .gguf: how its tokens are used, not the tokens themselves.
Companions companions_of_tokenizer(const std::filesystem::path&);

}  // namespace motet
