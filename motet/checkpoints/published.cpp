#include "motet/checkpoints/published.h"

#include "motet/core/error.h"
#include "motet/core/log.h"

namespace motet {
namespace {

using nlohmann::json;

std::string shown(const json& value) { return quote(value.is_string() ? value.get<std::string>() : value.dump()); }

}  // namespace

Published::Published(const json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) fail(where_, ": want an object");
}

bool Published::has(const std::string& key) const { return object_.contains(key) && !object_.at(key).is_null(); }

const json* Published::find(const std::string& key) {
  read_.insert(key);
  return has(key) ? &object_.at(key) : nullptr;
}

void Published::refuse(const std::string& key, const std::string& wanted) const {
  if (!has(key)) fail(where_, ": the key ", place_, key, " is missing, want ", wanted);
  fail(where_, ": ", place_, key, " is ", shown(object_.at(key)), ", want ", wanted);
}

int64_t Published::integer(const std::string& key, double min, double max, std::optional<int64_t> otherwise) {
  const json* value = find(key);
  if (!value && otherwise) return *otherwise;
  const bool whole = value && value->is_number_integer();
  if (!whole || value->get<double>() < min || value->get<double>() > max)
    refuse(key, text("an integer of ", static_cast<int64_t>(min), " to ", static_cast<int64_t>(max)));
  return value->get<int64_t>();
}

double Published::number(const std::string& key, double min, double max, std::optional<double> otherwise) {
  const json* value = find(key);
  if (!value && otherwise) return *otherwise;
  if (!value || !value->is_number() || value->get<double>() < min || value->get<double>() > max)
    refuse(key, text("a number of ", min, " to ", max));
  return value->get<double>();
}

bool Published::flag(const std::string& key, std::optional<bool> otherwise) {
  const json* value = find(key);
  if (!value && otherwise) return *otherwise;
  if (!value || !value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::string Published::word(const std::string& key, std::optional<std::string> otherwise) {
  const json* value = find(key);
  if (!value && otherwise) return *otherwise;
  if (!value || !value->is_string()) refuse(key, "a string");
  return value->get<std::string>();
}

Published Published::object(const std::string& key) {
  const json* value = find(key);
  if (!value || !value->is_object()) refuse(key, "an object");
  Published out(*value, where_);
  out.place_ = place_ + key + ".";
  return out;
}

void Published::want(const std::string& key, const json& value) {
  const json* found = find(key);
  if (found && *found != value) refuse(key, shown(value) + ", for no other is computed here");
}

void Published::ignore(const std::vector<std::string>& keys) { read_.insert(keys.begin(), keys.end()); }

void Published::warn_of_the_rest() const {
  for (const auto& [key, value] : object_.items())
    if (!read_.contains(key) && !value.is_null() && value != false)
      log_warn(text(where_, ": the key ", quote(place_ + key), " is not known and has no effect here"));
}

void ignore_common(Published& c) {
  c.ignore({"architectures",
            "model_type",
            "auto_map",
            "torch_dtype",
            "dtype",
            "transformers_version",
            "_name_or_path",
            "bos_token_id",
            "eos_token_id",
            "pad_token_id",
            "unk_token_id",
            "sep_token_id",
            "use_cache",
            "initializer_range",
            "tokenizer_class",
            "name_or_path",
            "pretraining_tp",
            "id2label",
            "label2id",
            "num_labels",
            "task_specific_params",
            "generation_config",
            "max_length",
            "return_dict",
            "gradient_checkpointing",
            "is_llama_config",
            "transformers.js_config",
            "chat_template",
            "use_gradient_checkpointing",
            "is_training",
            "q_chunk_size",
            "classifier_dropout",
            "max_sequence_length",
            "problem_type",
            "mechanism",
            "form",
            "is_decoder",
            "output_attentions",
            "output_hidden_states",
            "rope_interleaved"});
  for (const char* key : {"attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "dropout"})
    c.want(key, 0.0);
  c.want("quantization_config", nullptr);
  c.want("is_encoder_decoder", false);
  c.want("rope_interleaved", false);
  c.want("sliding_window", nullptr);
}

std::string read_activation(Published& c, const std::string& key, const std::string& otherwise) {
  const std::string name = c.word(key, otherwise);
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu" || name == "gelu_python") return "gelu";
  if (name == "gelu_new" || name == "gelu_fast" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  c.refuse(key, "silu, swish, gelu, gelu_python, gelu_new, gelu_fast or gelu_pytorch_tanh");
}

std::string written_activation(const ModelConfig& c) {
  const Activation activation = c.activation();
  return activation == Activation::silu ? "silu" : activation == Activation::gelu ? "gelu" : "gelu_pytorch_tanh";
}

int64_t head_width(const ModelConfig& c) {
  const int64_t given = c.attention.at("head_dim").get<int64_t>();
  return given > 0 ? given : c.hidden_size() / c.attention.at("num_heads").get<int64_t>();
}

int64_t kv_heads(const ModelConfig& c) {
  const int64_t given = c.attention.at("num_kv_heads").get<int64_t>();
  return given > 0 ? given : c.attention.at("num_heads").get<int64_t>();
}

ModelConfig normal(ModelConfig c) {
  json& a = c.attention;
  const OptionTable known = attention_options(find_mechanism(a.at("mechanism").get<std::string>()));
  const auto at_default = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (a.contains(name)) a[name] = find_option(known, name, "").default_value;
  };
  const ModelOptions otherwise;
  c.options.intermediate_size = c.intermediate_size();
  c.options.activation = c.activation();
  c.options.initializer = otherwise.initializer;
  c.options.initializer_range = otherwise.initializer_range;
  a["head_dim"] = head_width(c);
  a["num_kv_heads"] = kv_heads(c);
  if (c.learned_positions()) {
    a["rope_fraction"] = 0.0;
    at_default({"rope_base", "rope_pairing", "rope_scaling"});
  }
  const std::string scaling = a.at("rope_scaling");
  if (scaling != "dynamic" && scaling != "llama3")
    at_default({"rope_trained_length"});
  else if (a["rope_trained_length"] == 0)
    a["rope_trained_length"] = c.context;
  at_default({"lambda_std"});
  reset_idle(known, a);
  const bool plain = a.at("mechanism") == "softmax" && a.at("window") == 0 && a.at("head_norm") == "none";
  if (plain || c.num_layers() == 1) at_default({"layers"});
  return c;
}

}  // namespace motet
