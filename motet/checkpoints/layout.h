#pragma once
#include "motet/checkpoints/published.h"
#include "motet/checkpoints/rows.h"

namespace motet {

/// A way in which models of a family are published: keys of config.json and names of tensors, both ways.
struct Layout {
  std::string name, summary;
  std::string model_type, mechanism;  // as config.json says it; our layout holds every mechanism
  bool stock = true;  // model_type alone means this one; else config.json or the user names the mechanism
  ModelConfig (*read)(Published&) = nullptr;
  nlohmann::json (*write)(const ModelConfig&) = nullptr;
  std::vector<Row> (*rows)(const ModelConfig&) = nullptr;
  std::vector<std::string> ignored = {};  // ends of the names of stored tensors that are no parameters
  /// Stored tensors that repeat one of ours, which must be equal where a file has them.
  std::vector<std::pair<std::string, std::string>> repeated = {};
  bool skips_padding = false;         // positions begin behind the id of padding, and padding has none
  const char* rope_pairing = "half";  // the only one it holds
  const char* head_norm = "";         // differential attention: the only one it holds
};

/// Our own first ("motet": `read`, `write` and `rows` are null, config_json and config_from_json are its words).
const std::vector<Layout>& layouts();
/// Throws UsageError with the nearest name.
const Layout& find_layout(const std::string& name);
/// The layout of a config.json. `mechanism` (may be empty) is the user's word for models whose config does not say it.
/// Throws Error naming model_type or mechanism when there is none, or when file and user disagree.
const Layout& layout_of(const nlohmann::json& config, const std::string& where, const std::string& mechanism);

/// Reads config.json in the layout's words, warns of keys without effect. Throws Error naming file and key.
ModelConfig read_config(const Layout&, const nlohmann::json& config, const std::string& where,
                        const std::string& mechanism = "");
/// config.json in the layout's words. Throws Error naming the option that it cannot say.
nlohmann::json write_config(const Layout&, const ModelConfig&);
/// Throws Error unless the layout holds the model's mechanism.
void check_mechanism(const Layout&, const ModelConfig&);
/// Throws Error naming the first option in which the two differ in what they compute.
void check_same_function(const ModelConfig& wanted, const ModelConfig& got, const std::string& what);

/// Which tensor of ours a stored one repeats, "" for none: the output matrix of tied embeddings, and what a layout
/// names.
std::string repeated_by(const Layout&, const ModelConfig&, const std::string& stored);

/// What several families share: a model around an attention layer, by the names that LLaMA's files and ours have.
ModelConfig resolved(const nlohmann::json& options, const nlohmann::json& attention, int64_t vocab_size,
                     int64_t context, const std::string& where);
std::vector<Row> llama_trunk_rows(const ModelConfig&);
/// Weight, and bias if the attention has biases.
void add_projection(std::vector<Row>& rows, const ModelConfig&, Row weight);
const char* key_name(const ModelConfig&);  // "k_proj", or CoCA's "t_proj"

Layout llama_layout();
Layout gpt_neox_layout();
Layout diffllama_layout();
Layout diff_transformer_layout();
Layout dcformer_layout();
Layout dcpythia_layout();
Layout coca_neox_layout();
Layout coca_llama_layout();
Layout bert_layout();
Layout roberta_layout();
Layout albert_layout();

}  // namespace motet
