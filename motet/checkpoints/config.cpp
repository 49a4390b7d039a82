#include <algorithm>

#include "motet/checkpoints/checkpoint.h"
#include "motet/checkpoints/companions.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/checkpoints/published.h"
#include "motet/core/error.h"

namespace motet {
namespace {

// Our option -> its name in config.json; the same value on both sides.
constexpr std::pair<const char*, const char*> kModelKeys[] = {
    {"hidden_size", "hidden_size"},
    {"num_layers", "num_hidden_layers"},
    {"intermediate_size", "intermediate_size"},
    {"block", "block"},
    {"causal", "causal"},
    {"norm_eps", "rms_norm_eps"},
    {"tie_embeddings", "tie_word_embeddings"},
    {"initializer", "initializer"},
    {"initializer_range", "initializer_range"},
};

// Written where they are not at their default, so that files of earlier versions are those of this one.
constexpr const char* kLaterKeys[] = {"embedding_size", "embedding_norm", "positions",     "first_position",
                                      "token_types",    "norm_place",     "shared_layers", "head"};

const Words<at::ScalarType> kAutocasts{{"bfloat16", at::kBFloat16}, {"float16", at::kHalf}};

bool is_llama(const ModelConfig& c) {
  const auto& a = c.attention;
  const ModelOptions otherwise;
  const nlohmann::json own = model_options().write(c.options), plain = model_options().write(otherwise);
  const bool later = std::ranges::any_of(kLaterKeys, [&](const char* key) { return own[key] != plain[key]; });
  return a.at("mechanism") == "softmax" && c.gated() && !later && c.activation() == Activation::silu && c.causal() &&
         a.at("window") == 0 && a.at("position_bias") == "none" && !a.at("qk_norm").get<bool>() &&
         !a.at("output_gate").get<bool>() && a.at("head_norm") == "none" && a.at("rope_pairing") == "half" &&
         a.at("rope_scaling") == "none" && a.at("rope_fraction") == 1.0;
}

// What says nothing of the function: the tensors have dtypes of their own, and the rest is what transformers writes of
// a model, of whichever class and release.
constexpr const char* kFree[] = {"torch_dtype",
                                 "dtype",
                                 "architectures",
                                 "auto_map",
                                 "use_cache",
                                 "transformers_version",
                                 "id2label",
                                 "label2id",
                                 "problem_type",
                                 "tokenizer_class",
                                 "prefix",
                                 "task_specific_params",
                                 "finetuning_task",
                                 "return_dict",
                                 "output_hidden_states",
                                 "torchscript",
                                 "is_decoder",
                                 "chunk_size_feed_forward",
                                 "is_encoder_decoder",
                                 "sep_token_id",
                                 "decoder_start_token_id",
                                 "unk_token_id",
                                 "cls_token_id",
                                 "mask_token_id",
                                 "custom_pipelines",
                                 "output_attentions",
                                 "_name_or_path",
                                 "name_or_path",
                                 "_attn_implementation_autoset"};

// What transformers' LlamaForCausalLM adds to a plain model of ours, at the value at which it says nothing new.
nlohmann::json with_llamas(nlohmann::json ours) {
  if (ours["model_type"] != "llama") return ours;
  ours["attention_dropout"] = 0.0, ours["mlp_bias"] = false, ours["pretraining_tp"] = 1;
  ours["rope_scaling"] = nullptr;
  ours["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", ours["rope_theta"]}};
  return ours;
}

bool is_free(const std::string& key, const nlohmann::json& value) {
  const std::vector<std::string>& ids = token_id_keys();
  return std::ranges::find(kFree, key) != std::end(kFree) || std::ranges::find(ids, key) != ids.end() ||
         (key == "model_type" && value == "motet");
}

// What a file says twice must agree, and what this program does not know must not be ignored: each key has to come out
// again as it went in, unless it is free.
void check_same(const nlohmann::json& read, const nlohmann::json& ours, const std::string& path) {
  std::vector<std::string> known;
  for (const auto& item : ours.items()) known.push_back(path + item.key());
  for (const auto& [key, value] : read.items()) {
    if (path.empty() && is_free(key, value)) continue;
    if (!ours.contains(key)) fail(unknown_name("key", path + key, known));
    if (key == "attention_options") {
      check_same(value, ours[key], "attention_options.");
    } else if (value != ours[key]) {
      fail(path, key, " is ", quote(value.dump()), ", want ", quote(ours[key].dump()), " as the rest of the file says");
    }
  }
}

}  // namespace

nlohmann::json config_json(const ModelConfig& c) {
  const auto& a = c.attention;
  const bool llama = is_llama(c);
  nlohmann::json j{{"model_type", llama ? "llama" : "motet"},
                   {"architectures",
                    {llama        ? "LlamaForCausalLM"
                     : c.causal() ? "MotetForCausalLM"
                                  : "MotetForMaskedLM"}},
                   {"vocab_size", c.vocab_size},
                   {"max_position_embeddings", c.context},
                   {"hidden_act", written_activation(c)},
                   {"torch_dtype", "float32"},
                   {"attention_mechanism", a.at("mechanism")},
                   {"num_attention_heads", a.at("num_heads")},
                   {"num_key_value_heads", a.at("num_kv_heads") == 0 ? a.at("num_heads") : a.at("num_kv_heads")},
                   {"attention_bias", a.at("bias")},
                   {"rope_theta", a.at("rope_base")},
                   {"attention_options", a}};
  j["head_dim"] =
      a.at("head_dim") != 0 ? a.at("head_dim").get<int64_t>() : c.hidden_size() / a.at("num_heads").get<int64_t>();
  const nlohmann::json options = model_options().write(c.options);
  for (const auto& [ours, theirs] : kModelKeys) j[theirs] = options.at(ours);
  j["intermediate_size"] = c.intermediate_size();
  const nlohmann::json otherwise = model_options().write({});
  for (const char* key : kLaterKeys)
    if (options.at(key) != otherwise.at(key)) j[key] = options.at(key);
  if (c.autocast) j["autocast"] = word_of(kAutocasts, *c.autocast);
  j["attention_options"].erase("mechanism");
  return j;
}

ModelConfig config_from_json(const nlohmann::json& j, const std::string& where) {
  if (!j.is_object()) fail(where, ": want an object");
  for (const char* key : {"attention_mechanism", "attention_options", "vocab_size", "max_position_embeddings"})
    if (!j.contains(key)) fail(where, ": the key ", key, " is missing; this reads models that motet trained");
  ModelConfig c;
  nlohmann::json given;
  for (const auto& [ours, theirs] : kModelKeys) {
    if (!j.contains(theirs)) fail(where, ": the key ", theirs, " is missing");
    given[ours] = j[theirs];
  }
  for (const char* key : kLaterKeys)
    if (j.contains(key)) given[key] = j[key];
  Published words(j, where);
  const std::string activation = read_activation(words, "hidden_act", "");
  given["activation"] = activation == (j["block"] == "sequential" ? "silu" : "gelu") ? "default" : activation;
  const Option size{.name = "size", .type = OptionType::integer, .default_value = 1, .min = 1, .max = 1e8};
  try {
    c.options = model_options().parse(given, "");
    c.vocab_size = checked(size, j["vocab_size"], "vocab_size").get<int64_t>();
    c.context = checked(size, j["max_position_embeddings"], "max_position_embeddings").get<int64_t>();
    nlohmann::json attention = j["attention_options"];
    if (!attention.is_object()) fail("attention_options: want an object");
    attention["mechanism"] = j["attention_mechanism"];
    c.attention = resolve_attention(attention, "attention_options");
    if (j.contains("autocast") && j["autocast"].is_string())
      c.autocast = value_of(kAutocasts, j["autocast"].get<std::string>(), "autocast");
    check_same(j, with_llamas(config_json(c)), "");
  } catch (const Error& e) {
    fail(where, ": ", e.what());
  }
  return c;
}

std::string trained_dtype(const Checkpoint& c) {
  if (c.config.autocast) return word_of(kAutocasts, *c.config.autocast);
  const bool ours = c.published.is_object() && c.published.contains("attention_mechanism");
  const auto says = [&](const char* key) { return c.published.contains(key) && c.published[key] == "float64"; };
  return ours && (says("torch_dtype") || says("dtype")) ? "float64" : "float32";
}

}  // namespace motet
