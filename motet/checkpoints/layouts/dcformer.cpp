#include "motet/checkpoints/layout.h"
#include "motet/core/error.h"

// The files of DCFormer (a LLaMA body) and DCPythia (a GPT-NeoX body) by their authors.
namespace motet {
namespace {

using nlohmann::json;

// Rank of the dynamic maps in their code, N // (N // 2).
int64_t rank_of(int64_t heads) { return heads / (heads / 2); }

std::string pattern_of(Published& c) {
  const std::string type = c.word("window_type", "LG");
  if (type != "LG" && type != "LGLL" && type != "LGL6") c.refuse("window_type", "null, LG, LGLL or LGL6");
  return type;
}

ModelConfig read_dc(Published& c, bool pythia) {
  const int64_t heads = c.integer("n_head", 2, 1024), width = c.integer("dim", 1, 65536);
  if (width % heads) c.refuse("n_head", text("a divisor of dim ", width));
  c.want("use_dcmha", true);
  c.want("query_wise", false);
  c.want("tie_word_embeddings", false);
  c.want("head_dim", width / heads);
  if (c.integer("n_local_heads", -1, 1024, -1) != -1) c.want("n_local_heads", heads);
  const int64_t fallback = pythia ? 4 * width : (8 * width / 3 + 255) / 256 * 256;
  json options{{"hidden_size", width},
               {"num_layers", c.integer("n_layer", 1, 1024)},
               {"intermediate_size", c.integer("intermediate_size", 1, 1e6, fallback)},
               {"norm_eps", c.number("norm_eps", 0, 1)}};
  if (pythia) options["block"] = c.flag("use_parallel_residual", true) ? "parallel" : "sequential_layer_norm";
  const int64_t window = c.integer("window_size", 1, 1e9, 0);
  // Without a window they say nothing.
  const std::string pattern = pattern_of(c), mask = c.word("window_mask", "exact");
  json attention{{"mechanism", "dcmha"},
                 {"num_heads", heads},
                 {"rank", rank_of(heads)},
                 {"qk_norm", c.flag("use_qk_norm")},
                 {"bias", pythia},
                 {"static", c.flag("static", false)},
                 {"gelu", c.word("gelu", "erf")},
                 {"window", window},
                 {"window_mask", window > 0 ? mask : "exact"},
                 {"window_pattern", window > 0 ? pattern : "local"},
                 {"rope_base", c.number("rope_base", 1, 1e12, 10000.0)}};
  if (pythia) {
    c.want("use_linear_bias", true);
    attention["rope_fraction"] = c.number("rotary_pct", 0, 1, 0.25);
  }
  ModelConfig made =
      resolved(options, attention, c.integer("vocab_size", 1, 1e8), c.integer("block_size", 1, 1e8, 2048), c.where());
  if (pythia) check_rope_fraction(made, c.where());
  return made;
}

json write_dc(const ModelConfig& c, bool pythia) {
  const json& a = c.attention;
  if (pythia) check_rope_fraction(c, "attention.rope_fraction");
  const std::string name = pythia ? "dcpythia" : "dcformer", type = pythia ? "DCPythia" : "DCFormer";
  json j{{"model_type", name},
         {"architectures", {type}},
         {"auto_map",
          {{"AutoConfig", "configuration_" + name + "." + type + "Config"},
           {"AutoModelForCausalLM", "modeling_" + name + "." + type}}},
         {"vocab_size", c.vocab_size},
         {"block_size", c.context},
         {"dim", c.hidden_size()},
         {"n_layer", c.num_layers()},
         {"n_head", a.at("num_heads")},
         {"n_local_heads", a.at("num_heads")},
         {"head_dim", head_width(c)},
         {"intermediate_size", c.intermediate_size()},
         {"norm_eps", c.options.norm_eps},
         {"rope_base", a.at("rope_base")},
         {"use_dcmha", true},
         {"use_qk_norm", a.at("qk_norm")},
         {"query_wise", false},
         {"q_chunk_size", 128},
         {"is_training", false},
         {"tie_word_embeddings", false},
         {"use_gradient_checkpointing", false},
         {"window_size", a.at("window") == 0 ? json() : a.at("window")},
         {"window_type", a.at("window") == 0 || a.at("window_pattern") == "LG" ? json() : a.at("window_pattern")},
         {"mechanism", "dcmha"}};
  // Options of ours that their config has no word for, where they are not what is assumed without them.
  if (a.at("static").get<bool>()) j["static"] = true;
  if (a.at("gelu") != "erf") j["gelu"] = a.at("gelu");
  if (a.at("window_mask") != "exact") j["window_mask"] = a.at("window_mask");
  if (pythia)
    j.update(
        {{"rotary_pct", a.at("rope_fraction")}, {"use_linear_bias", true}, {"use_parallel_residual", c.parallel()}});
  return j;
}

void add_attention(std::vector<Row>& rows, const ModelConfig& c) {
  const json& a = c.attention;
  const std::string theirs = "layers.{i}.attention.", ours = "model.layers.{i}.self_attn.",
                    maps = theirs + "dyn_w_proj.";
  const int64_t heads = a.at("num_heads"), width = c.hidden_size();
  add_projection(rows, c, {theirs + "wqkv", {ours + "q_proj", ours + "k_proj", ours + "v_proj"}, Order::blocks});
  add_projection(rows, c, {theirs + "wo", {ours + "o_proj"}});
  if (a.at("qk_norm").get<bool>())
    for (const char* norm : {"q_norm", "k_norm"})
      rows.push_back({theirs + norm + ".scale", {ours + norm + std::string(".weight")}});
  rows.push_back({maps + "dw1", {ours + "compose_hidden"}});
  rows.push_back({maps + "qkw", {ours + "compose_up"}});
  rows.push_back({.stored = maps + "dd",
                  .ours = {ours + "compose_gate"},
                  .order = Order::shape,
                  .stored_shape = {width, 1, 4 * heads},
                  .shape = {width, 4, heads}});
  if (!a.at("static").get<bool>()) return;
  rows.push_back({maps + "pre_proj.w", {ours + "compose_static_pre"}});
  rows.push_back({maps + "post_proj.w", {ours + "compose_static_post"}});
}

std::vector<Row> dc_rows(const ModelConfig& c) {
  const bool pythia = !c.gated();
  const std::string theirs = "layers.{i}.", ours = "model.layers.{i}.";
  std::vector<Row> rows{{"tok_embeddings.weight", {"model.embed_tokens.weight"}},
                        {"output.weight", {"lm_head.weight"}}};
  std::vector<std::pair<std::string, std::string>> names{{"norm", "model.norm"},
                                                         {theirs + "attention_norm", ours + "input_layernorm"},
                                                         {theirs + "ffn_norm", ours + "post_attention_layernorm"},
                                                         {theirs + "feed_forward.w2", ours + "mlp.down_proj"}};
  names.emplace_back(theirs + "feed_forward.w1", ours + (pythia ? "mlp.up_proj" : "mlp.gate_proj"));
  if (!pythia) names.emplace_back(theirs + "feed_forward.w3", ours + "mlp.up_proj");
  for (const auto& [stored, own] : names) {
    rows.push_back({stored + ".weight", {own + ".weight"}});
    if (pythia) rows.push_back({stored + ".bias", {own + ".bias"}});
  }
  add_attention(rows, c);
  return rows;
}

// Copies in another order, caches saved by accident, and an identity that the released forward pass does not use.
const std::vector<std::string> kDuplicates{"dyn_w_proj.dw_m",        "dyn_w_proj.qkw_m", "dyn_w_proj.pre_proj.w",
                                           "dyn_w_proj.post_proj.w", "kv_cache.k_cache", "kv_cache.v_cache",
                                           "kv_cache.kw_cache"};

}  // namespace

Layout dcformer_layout() {
  return {.name = "dcformer",
          .summary = "DCFormer of its authors (a LLaMA body with DCMHA)",
          .model_type = "dcformer",
          .mechanism = "dcmha",
          .read = [](Published& c) { return read_dc(c, false); },
          .write = [](const ModelConfig& c) { return write_dc(c, false); },
          .rows = dc_rows,
          .ignored = kDuplicates};
}

Layout dcpythia_layout() {
  return {.name = "dcpythia",
          .summary = "DCPythia of its authors (a GPT-NeoX body with DCMHA)",
          .model_type = "dcpythia",
          .mechanism = "dcmha",
          .read = [](Published& c) { return read_dc(c, true); },
          .write = [](const ModelConfig& c) { return write_dc(c, true); },
          .rows = dc_rows,
          .ignored = kDuplicates};
}

}  // namespace motet
