#include "motet/checkpoints/layout.h"

// Hugging Face's GPTNeoXForCausalLM (Pythia) and CoCA's GPT-NeoX, which has the same names.
namespace motet {
namespace {

using nlohmann::json;

constexpr RopeKeys kRope{
    .base = "rotary_emb_base", .fraction = "rotary_pct", .fraction_otherwise = 0.25, .whole = false};

ModelConfig read_neox(Published& c, const json& extra) {
  const int64_t context = c.integer("max_position_embeddings", 1, 1e8, 2048);
  json attention{{"num_heads", c.integer("num_attention_heads", 1, 1024)}, {"bias", c.flag("attention_bias", true)}};
  const json options{{"hidden_size", c.integer("hidden_size", 1, 65536)},
                     {"num_layers", c.integer("num_hidden_layers", 1, 1024)},
                     {"intermediate_size", c.integer("intermediate_size", 1, 1e6)},
                     {"activation", read_activation(c, "hidden_act", "gelu")},
                     {"norm_eps", c.number("layer_norm_eps", 0, 1, 1e-5)},
                     {"block", c.flag("use_parallel_residual", true) ? "parallel" : "sequential_layer_norm"},
                     {"tie_embeddings", c.flag("tie_word_embeddings", false)}};
  const int64_t longest = read_rope(c, kRope, context, attention);
  attention.update(extra);
  ModelConfig made = resolved(options, attention, c.integer("vocab_size", 1, 1e8), longest, c.where());
  check_rope_fraction(made, c.where());
  return made;
}

json write_neox(const ModelConfig& c) {
  check_rope_fraction(c, "attention.rope_fraction");
  json j{{"model_type", "gpt_neox"},
         {"architectures", {"GPTNeoXForCausalLM"}},
         {"vocab_size", c.vocab_size},
         {"hidden_size", c.hidden_size()},
         {"intermediate_size", c.intermediate_size()},
         {"num_hidden_layers", c.num_layers()},
         {"num_attention_heads", c.attention.at("num_heads")},
         {"attention_bias", c.attention.at("bias")},
         {"hidden_act", written_activation(c)},
         {"layer_norm_eps", c.options.norm_eps},
         {"use_parallel_residual", c.parallel()},
         {"tie_word_embeddings", c.options.tie_embeddings},
         {"initializer_range", c.options.initializer_range}};
  write_rope(c, kRope, j);
  return j;
}

std::vector<Row> neox_rows(const ModelConfig& c) {
  const std::string theirs = "gpt_neox.layers.{i}.", ours = "model.layers.{i}.", attention = ours + "self_attn.";
  std::vector<Row> rows;
  for (const char* part : {".weight", ".bias"}) {
    rows.push_back({"gpt_neox.final_layer_norm" + std::string(part), {"model.norm" + std::string(part)}});
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
      rows.push_back({theirs + norm + part, {ours + norm + part}});
    rows.push_back({theirs + "mlp.dense_h_to_4h" + part, {ours + "mlp.up_proj" + part}});
    rows.push_back({theirs + "mlp.dense_4h_to_h" + part, {ours + "mlp.down_proj" + part}});
  }
  rows.push_back({"gpt_neox.embed_in.weight", {"model.embed_tokens.weight"}});
  if (!c.options.tie_embeddings) rows.push_back({"embed_out.weight", {"lm_head.weight"}});
  add_projection(rows, c,
                 {theirs + "attention.query_key_value",
                  {attention + "q_proj", attention + key_name(c), attention + "v_proj"},
                  Order::per_head,
                  c.attention.at("num_heads").get<int64_t>()});
  add_projection(rows, c, {theirs + "attention.dense", {attention + "o_proj"}});
  return rows;
}

// The causal mask and rotary tables of older files.
const std::vector<std::string> kBuffers{"attention.bias", "attention.masked_bias", "rotary_emb.inv_freq"};

}  // namespace

Layout gpt_neox_layout() {
  return {.name = "gpt_neox",
          .summary = "GPTNeoXForCausalLM of Hugging Face transformers (Pythia)",
          .model_type = "gpt_neox",
          .mechanism = "softmax",
          .read = [](Published& c) { return read_neox(c, {{"mechanism", "softmax"}}); },
          .write = write_neox,
          .rows = neox_rows,
          .ignored = kBuffers};
}

Layout coca_neox_layout() {
  return {.name = "coca_neox",
          .summary = "GPTNeoXForCausalLM of CoCA's authors",
          .model_type = "gpt_neox",
          .mechanism = "coca",
          .stock = false,
          .read = [](Published& c) { return read_neox(c, {{"mechanism", "coca"}, {"form", c.word("form")}}); },
          .write =
              [](const ModelConfig& c) {
                json j = write_neox(c);
                j.update({{"mechanism", "coca"}, {"form", c.attention.at("form")}});
                return j;
              },
          .rows = neox_rows,
          .ignored = kBuffers};
}

}  // namespace motet
