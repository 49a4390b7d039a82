#include "motet/checkpoints/layout.h"

// Hugging Face's LlamaForCausalLM, DiffLlamaForCausalLM, CoCA's LLaMA, and a LLaMA body around Microsoft's layers of
// the Differential Transformer: one body, four kinds of attention.
namespace motet {
namespace {

using nlohmann::json;

// What the four share; `extra` is the rest of the attention's options.
ModelConfig read_llama_body(Published& c, const json& extra, int64_t heads_of_one = 1) {
  const int64_t context = c.integer("max_position_embeddings", 1, 1e8, 2048),
                heads = c.integer("num_attention_heads", 1, 1024);
  json attention{{"num_heads", heads * heads_of_one},
                 {"num_kv_heads", c.integer("num_key_value_heads", 1, 1024, heads) * heads_of_one},
                 {"head_dim", c.integer("head_dim", 1, 4096, 0)},
                 {"bias", c.flag("attention_bias", false)}};
  c.want("mlp_bias", false);
  const json options{{"hidden_size", c.integer("hidden_size", 1, 65536)},
                     {"num_layers", c.integer("num_hidden_layers", 1, 1024)},
                     {"intermediate_size", c.integer("intermediate_size", 1, 1e6)},
                     {"activation", read_activation(c, "hidden_act", "silu")},
                     {"norm_eps", c.number("rms_norm_eps", 0, 1, 1e-6)},
                     {"tie_embeddings", c.flag("tie_word_embeddings", false)}};
  const int64_t longest = read_rope(c, {}, context, attention);
  attention.update(extra);
  return resolved(options, attention, c.integer("vocab_size", 1, 1e8), longest, c.where());
}

json write_llama_body(const ModelConfig& c, const char* type, const char* architecture, int64_t heads_of_one = 1) {
  const json& a = c.attention;
  json j{{"model_type", type},
         {"architectures", {architecture}},
         {"vocab_size", c.vocab_size},
         {"hidden_size", c.hidden_size()},
         {"intermediate_size", c.intermediate_size()},
         {"num_hidden_layers", c.num_layers()},
         {"num_attention_heads", a.at("num_heads").get<int64_t>() / heads_of_one},
         {"num_key_value_heads", kv_heads(c) / heads_of_one},
         {"head_dim", head_width(c)},
         {"hidden_act", written_activation(c)},
         {"rms_norm_eps", c.options.norm_eps},
         {"tie_word_embeddings", c.options.tie_embeddings},
         {"attention_bias", a.at("bias")},
         {"initializer_range", c.options.initializer_range}};
  write_rope(c, {}, j);
  return j;
}

constexpr const char* kAttention = "model.layers.{i}.self_attn.";

std::vector<Row> plain_rows(const ModelConfig& c) {
  std::vector<Row> rows = llama_trunk_rows(c);
  for (const std::string name : {"q_proj", key_name(c), "v_proj", "o_proj"})
    add_projection(rows, c, {kAttention + name, {kAttention + name}});
  return rows;
}

void add_lambdas(std::vector<Row>& rows) {
  for (const char* name : {"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"})
    rows.push_back({kAttention + std::string(name), {kAttention + std::string(name)}});
}

std::vector<Row> diffllama_rows(const ModelConfig& c) {
  std::vector<Row> rows = llama_trunk_rows(c);
  const int64_t heads = c.attention.at("num_heads");
  for (const auto& [name, count] :
       {std::pair<std::string, int64_t>("q_proj", heads), {"k_proj", kv_heads(c)}, {"v_proj", kv_heads(c)}})
    add_projection(rows, c, {kAttention + name, {kAttention + name}, Order::halves, count});
  add_projection(rows, c, {kAttention + std::string("o_proj"), {kAttention + std::string("o_proj")}});
  add_lambdas(rows);
  return rows;
}

bool second_version(const ModelConfig& c) { return c.attention.at("version") == "v2"; }

// The names of multihead_flashdiff_1.py (out_proj, subln) and multihead_flashdiffv2.py (o_proj, lambda_proj).
std::vector<Row> diff_transformer_rows(const ModelConfig& c) {
  std::vector<Row> rows = llama_trunk_rows(c);
  const std::string out = second_version(c) ? "o_proj" : "out_proj";
  for (const std::string name : {"q_proj", "k_proj", "v_proj"})
    add_projection(rows, c, {kAttention + name, {kAttention + name}});
  add_projection(rows, c, {kAttention + out, {kAttention + std::string("o_proj")}});
  if (second_version(c)) {
    const std::string lambda = kAttention + std::string("lambda_proj.weight");
    rows.push_back({lambda, {lambda}});
    return rows;
  }
  add_lambdas(rows);
  const std::string norm = kAttention + std::string("subln.weight");
  rows.push_back({norm, {norm}});
  return rows;
}

}  // namespace

Layout llama_layout() {
  return {.name = "llama",
          .summary = "LlamaForCausalLM of Hugging Face transformers",
          .model_type = "llama",
          .mechanism = "softmax",
          .read = [](Published& c) { return read_llama_body(c, {{"mechanism", "softmax"}}); },
          .write = [](const ModelConfig& c) { return write_llama_body(c, "llama", "LlamaForCausalLM"); },
          .rows = plain_rows,
          .ignored = {"rotary_emb.inv_freq"}};
}

Layout diffllama_layout() {
  return {.name = "diffllama",
          .summary = "DiffLlamaForCausalLM of Hugging Face transformers (differential attention V1)",
          .model_type = "diffllama",
          .mechanism = "differential",
          .read =
              [](Published& c) {
                c.ignore({"lambda_std_dev"});
                c.set_otherwise("rms_norm_eps", 1e-5);  // LLaMA's default is another
                return read_llama_body(c, {{"mechanism", "differential"},
                                           {"version", "v1"},
                                           {"head_norm", "plain"},
                                           {"head_norm_eps", c.number("rms_norm_eps", 0, 1, 1e-5)}});
              },
          .write =
              [](const ModelConfig& c) {
                json j = write_llama_body(c, "diffllama", "DiffLlamaForCausalLM");
                j["lambda_std_dev"] = c.attention.value("lambda_std", 0.1);
                return j;
              },
          .rows = diffllama_rows,
          .ignored = {"rotary_emb.inv_freq"},
          .head_norm = "plain"};
}

Layout diff_transformer_layout() {
  return {.name = "diff_transformer",
          .summary = "a LLaMA body around the layers of the Differential Transformer's authors, V1 and V2",
          .model_type = "diff_transformer",
          .mechanism = "differential",
          // The authors' V1 counts pairs of heads, V2 output heads.
          .read =
              [](Published& c) {
                const std::string version = c.word("version");
                if (version != "v1" && version != "v2") c.refuse("version", "v1 or v2");
                json extra{{"mechanism", "differential"}, {"version", version}, {"rope_pairing", "interleaved"}};
                if (version == "v1")
                  extra.update({{"head_norm", "affine"}, {"head_norm_eps", c.number("head_norm_eps", 0, 1, 1e-5)}});
                return read_llama_body(c, extra, version == "v1" ? 2 : 1);
              },
          .write =
              [](const ModelConfig& c) {
                json j = write_llama_body(c, "diff_transformer", "DiffTransformer", second_version(c) ? 1 : 2);
                j["version"] = c.attention.at("version");
                if (!second_version(c)) j["head_norm_eps"] = c.attention.at("head_norm_eps");
                return j;
              },
          .rows = diff_transformer_rows,
          .rope_pairing = "interleaved",
          .head_norm = "affine"};
}

// Their code has rotary base 10000 whatever the config says.
Layout coca_llama_layout() {
  return {.name = "coca_llama",
          .summary = "LlamaForCausalLM of CoCA's authors",
          .model_type = "llama",
          .mechanism = "coca",
          .stock = false,
          .read =
              [](Published& c) {
                c.want("rope_theta", 10000);
                return read_llama_body(c, {{"mechanism", "coca"}, {"form", c.word("form")}});
              },
          .write =
              [](const ModelConfig& c) {
                json j = write_llama_body(c, "llama", "LLaMAForCausalLM");
                j.update({{"mechanism", "coca"}, {"form", c.attention.at("form")}});
                return j;
              },
          .rows = plain_rows,
          .ignored = {"rotary_emb.inv_freq"}};
}

}  // namespace motet
