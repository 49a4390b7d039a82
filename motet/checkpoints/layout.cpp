#include "motet/checkpoints/layout.h"

#include "motet/checkpoints/model_folder.h"
#include "motet/core/error.h"

namespace motet {

using nlohmann::json;

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all{
      {.name = "motet", .summary = "ours, for every mechanism", .model_type = "motet", .mechanism = "", .stock = false},
      llama_layout(),
      gpt_neox_layout(),
      diffllama_layout(),
      diff_transformer_layout(),
      dcformer_layout(),
      dcpythia_layout(),
      coca_llama_layout(),
      coca_neox_layout(),
      bert_layout(),
      roberta_layout(),
      albert_layout(),
  };
  return all;
}

const Layout& find_layout(const std::string& name) {
  std::vector<std::string> known;
  for (const Layout& layout : layouts()) {
    if (layout.name == name) return layout;
    known.push_back(layout.name);
  }
  fail_usage(unknown_name("layout", name, known));
}

const Layout& layout_of(const json& config, const std::string& where, const std::string& mechanism) {
  if (!config.is_object()) fail(where, ": want an object");
  const auto word = [&](const char* key) -> std::string {
    if (!config.contains(key) || config[key].is_null()) return "";
    if (!config[key].is_string()) fail(where, ": ", key, " is ", quote(config[key].dump()), ", want a string");
    return config[key].get<std::string>();
  };
  if (config.contains("attention_mechanism")) {
    if (!mechanism.empty() && word("attention_mechanism") != mechanism)
      fail(where, ": attention_mechanism is ", quote(word("attention_mechanism")), ", not ", quote(mechanism));
    return layouts().front();
  }
  const std::string type = word("model_type"), said = word("mechanism");
  if (type.empty()) fail(where, ": the key model_type is missing, want the family of the model");
  if (!said.empty() && !mechanism.empty() && said != mechanism)
    fail(where, ": mechanism is ", quote(said), ", not ", quote(mechanism));
  const std::string wanted = said.empty() ? mechanism : said;
  std::vector<std::string> types, mechanisms;
  for (const Layout& layout : layouts()) {
    if (!layout.read) continue;
    if (layout.model_type == type && (wanted.empty() ? layout.stock : layout.mechanism == wanted)) return layout;
    if (layout.model_type == type) mechanisms.push_back(layout.mechanism);
    types.push_back(layout.model_type);
  }
  if (mechanisms.empty()) fail(where, ": ", unknown_name("model_type", type, types));
  fail(where, ": ", unknown_name("mechanism", wanted, mechanisms), " in models of type ", type);
}

ModelConfig read_config(const Layout& layout, const json& config, const std::string& where,
                        const std::string& mechanism) {
  if (!layout.read) return config_from_json(config, where);
  Published published(config, where);
  ignore_common(published);
  if (layout.mechanism == "coca" && !mechanism.empty()) published.set_otherwise("form", "slack");
  const ModelConfig read = layout.read(published);
  published.warn_of_the_rest();
  return read;
}

void check_same_function(const ModelConfig& wanted, const ModelConfig& got, const std::string& what) {
  const ModelConfig a = normal(wanted), b = normal(got);
  const auto compare = [&](const json& x, const json& y, const std::string& section) {
    for (const auto& [key, value] : x.items())
      if (!y.contains(key) || y[key] != value)
        fail(what, " cannot say ", section, key, " = ", value.dump(), y.contains(key) ? ", only " + y[key].dump() : "");
  };
  for (const char* first : {"mechanism", "version"})  // others' options differ
    if (a.attention.contains(first)) compare({{first, a.attention.at(first)}}, b.attention, "attention.");
  compare(a.attention, b.attention, "attention.");
  compare(model_options().write(a.options), model_options().write(b.options), "");
  compare({{"vocab_size", a.vocab_size}, {"context", a.context}},
          {{"vocab_size", b.vocab_size}, {"context", b.context}}, "");
}

void check_mechanism(const Layout& layout, const ModelConfig& config) {
  if (layout.write && config.attention.at("mechanism") != layout.mechanism)
    fail("the layout ", layout.name, " holds the mechanism ", layout.mechanism, ", not ",
         config.attention.at("mechanism").get<std::string>());
}

json write_config(const Layout& layout, const ModelConfig& config) {
  if (!layout.write) return config_json(config);
  check_mechanism(layout, config);
  const json written = layout.write(config);
  const std::string what = "the layout " + layout.name;
  Published again(written, what);
  try {
    check_same_function(config, layout.read(again), what);
  } catch (const UsageError& error) {
    fail(what, ": ", error.what());
  }
  return written;
}

std::string repeated_by(const Layout& layout, const ModelConfig& config, const std::string& name) {
  const std::string embedding = "model.embed_tokens.weight";
  for (const auto& [stored, ours] : layout.repeated)
    if (stored == name && (ours != embedding || config.options.tie_embeddings)) return ours;
  const bool output = name == "lm_head.weight" || name == "embed_out.weight" || name == "output.weight";
  return output && config.options.tie_embeddings ? embedding : "";
}

ModelConfig resolved(const json& options, const json& attention, int64_t vocab_size, int64_t context,
                     const std::string& where) {
  try {
    return {model_options().parse(options, ""), resolve_attention(attention, "attention"), vocab_size, context};
  } catch (const Error& error) {
    fail(where, ": ", error.what());
  }
}

const char* key_name(const ModelConfig& c) { return c.attention.at("mechanism") == "coca" ? "t_proj" : "k_proj"; }

void add_projection(std::vector<Row>& rows, const ModelConfig& c, Row weight) {
  const auto with = [](std::string name, const char* ending) { return name + ending; };
  Row bias = weight;
  weight.stored = with(weight.stored, ".weight");
  bias.stored = with(bias.stored, ".bias");
  for (size_t i = 0; i < weight.ours.size(); ++i) {
    weight.ours[i] = with(weight.ours[i], ".weight");
    bias.ours[i] = with(bias.ours[i], ".bias");
  }
  rows.push_back(weight);
  if (c.attention.at("bias").get<bool>()) rows.push_back(bias);
}

std::vector<Row> llama_trunk_rows(const ModelConfig& c) {
  std::vector<Row> rows;
  std::vector<std::string> names{"model.embed_tokens",
                                 "model.norm",
                                 "model.layers.{i}.input_layernorm",
                                 "model.layers.{i}.post_attention_layernorm",
                                 "model.layers.{i}.mlp.gate_proj",
                                 "model.layers.{i}.mlp.up_proj",
                                 "model.layers.{i}.mlp.down_proj"};
  if (c.options.embedding_size > 0) names.push_back("model.embed_projection");
  if (!c.options.tie_embeddings) names.push_back("lm_head");
  for (const std::string& name : names) rows.push_back({name + ".weight", {name + ".weight"}});
  return rows;
}

}  // namespace motet
