#pragma once
#include <filesystem>

#include "motet/models/model.h"

namespace motet {

/// config.json of a model: Hugging Face's llama keys, `attention_mechanism`, `attention_options` and the model's own
/// options. model_type is llama when the model computes what llama computes, else motet.
nlohmann::json config_json(const ModelConfig&);

/// The reverse. Throws Error naming the file and the key for anything missing, unknown, out of range or said twice and
/// differently.
ModelConfig config_from_json(const nlohmann::json&, const std::string& where);

/// Further files of a model folder, by name, such as tokenizer.json.
using ExtraFiles = std::map<std::string, std::string>;

/// Writes config.json, model.safetensors (float64 if the parameters are, else float32) and the extra files; the folder
/// appears whole or not at all and replaces an older one. `token_ids`: of Companions (companions.h), for config.json.
void save_model_folder(const std::filesystem::path&, ModelImpl&, const ExtraFiles&,
                       const nlohmann::json& token_ids = nlohmann::json::object());

/// A tensor under a name.
using NamedTensor = std::pair<std::string, Tensor>;

/// A model as its folder holds it: what is written, apart from when and where.
struct ModelFiles {
  ExtraFiles texts;                     // config.json among them
  std::vector<NamedTensor> parameters;  // the model's own, or copies; float32 or float64
};
ModelFiles model_files(ModelImpl&, const ExtraFiles&, const nlohmann::json& token_ids = nlohmann::json::object());
/// Writes them into a folder that is there.
void write_model_files(const std::filesystem::path& folder, const ModelFiles&);
/// A safetensors file of tensors in float64, float32 or int64, copied to the host one at a time.
void write_tensors(const std::filesystem::path&, const std::vector<NamedTensor>&);

/// A model in float32 from a folder or file in any layout that open_checkpoint (checkpoint.h) reads. Tensors may be
/// F32, F64, BF16, F16 or quantised. Throws Error in one line: what is missing, too many, of another shape or
/// truncated. The file's shapes are looked at before memory is taken.
Model load_model_folder(const std::filesystem::path&);

}  // namespace motet
