#include "motet/checkpoints/layout.h"

// Hugging Face's BertForMaskedLM, RobertaForMaskedLM and AlbertForMaskedLM: one form of model under three sets of
// names. What they have beside it (a pooler, heads of sentence pairs) does not reach the logits and is read past.
namespace motet {
namespace {

using nlohmann::json;

ModelConfig read_encoder(Published& c, json options, int64_t first_position, const std::string& activation) {
  c.ignore({"hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob", "layerdrop"});
  c.want("position_embedding_type", "absolute");
  c.want("is_decoder", false);
  c.want("add_cross_attention", false);
  const int64_t positions = c.integer("max_position_embeddings", first_position + 1, 1e8, 512);
  options.update({{"hidden_size", c.integer("hidden_size", 1, 65536)},
                  {"num_layers", c.integer("num_hidden_layers", 1, 1024)},
                  {"intermediate_size", c.integer("intermediate_size", 1, 1e6)},
                  {"activation", activation},
                  {"block", "sequential_layer_norm"},
                  {"norm_place", "post"},
                  {"causal", false},
                  {"positions", "learned"},
                  {"first_position", first_position},
                  {"token_types", c.integer("type_vocab_size", 0, 65536, 2)},
                  {"embedding_norm", true},
                  {"head", "masked"},
                  {"norm_eps", c.number("layer_norm_eps", 0, 1, 1e-12)},
                  {"tie_embeddings", c.flag("tie_word_embeddings", true)}});
  const json attention{
      {"num_heads", c.integer("num_attention_heads", 1, 1024)}, {"bias", true}, {"rope_fraction", 0.0}};
  return resolved(options, attention, c.integer("vocab_size", 1, 1e8), positions - first_position, c.where());
}

json write_encoder(const ModelConfig& c, const char* type, const char* architecture) {
  return {{"model_type", type},
          {"architectures", {architecture}},
          {"vocab_size", c.vocab_size},
          {"hidden_size", c.hidden_size()},
          {"num_hidden_layers", c.num_layers()},
          {"num_attention_heads", c.attention.at("num_heads")},
          {"intermediate_size", c.intermediate_size()},
          {"hidden_act", written_activation(c)},
          {"max_position_embeddings", c.context + c.options.first_position},
          {"type_vocab_size", c.options.token_types},
          {"layer_norm_eps", c.options.norm_eps},
          {"tie_word_embeddings", c.options.tie_embeddings},
          {"initializer_range", c.options.initializer_range}};
}

// Their names of the parts of one form.
struct Names {
  std::string embeddings, layer;                                             // what the others begin with
  const char *attention, *output, *attention_norm, *up, *down, *layer_norm;  // behind `layer`
  std::string head, dense, norm;                                             // behind `head`
};

std::vector<Row> rows_of(const ModelConfig& c, const Names& names) {
  const std::string ours = c.options.shared_layers ? "model.layers.0." : "model.layers.{i}.";
  std::vector<Row> rows;
  const auto both = [&](const std::string& theirs, const std::string& own) {
    for (const char* part : {".weight", ".bias"}) rows.push_back({theirs + part, {own + part}});
  };
  rows.push_back({names.embeddings + "word_embeddings.weight", {"model.embed_tokens.weight"}});
  rows.push_back({names.embeddings + "position_embeddings.weight", {"model.embed_positions.weight"}});
  if (c.options.token_types > 0)
    rows.push_back({names.embeddings + "token_type_embeddings.weight", {"model.embed_types.weight"}});
  both(names.embeddings + "LayerNorm", "model.embed_norm");
  for (const auto& [theirs, own] : {std::pair("query", "q_proj"), {"key", "k_proj"}, {"value", "v_proj"}})
    both(names.layer + names.attention + theirs, ours + "self_attn." + own);
  both(names.layer + names.output, ours + "self_attn.o_proj");
  both(names.layer + names.attention_norm, ours + "post_attention_layernorm");
  both(names.layer + names.up, ours + "mlp.up_proj");
  both(names.layer + names.down, ours + "mlp.down_proj");
  both(names.layer + names.layer_norm, ours + "post_feedforward_layernorm");
  both(names.head + names.dense, "masked_head.dense");
  both(names.head + names.norm, "masked_head.norm");
  rows.push_back({names.head + "bias", {"masked_head.bias"}});
  if (c.options.tie_embeddings) return rows;
  rows.push_back({names.head + "decoder.weight", {"lm_head.weight"}});
  // transformers 5 adds this one, and has the other beside it; before, the two were one tensor.
  rows.push_back({names.head + "decoder.bias", {"masked_head.bias"}});
  return rows;
}

std::vector<Row> bert_rows(const ModelConfig& c, const std::string& body, const Names& head) {
  Names names{.embeddings = body + "embeddings.",
              .layer = body + "encoder.layer.{i}.",
              .attention = "attention.self.",
              .output = "attention.output.dense",
              .attention_norm = "attention.output.LayerNorm",
              .up = "intermediate.dense",
              .down = "output.dense",
              .layer_norm = "output.LayerNorm"};
  names.head = head.head, names.dense = head.dense, names.norm = head.norm;
  return rows_of(c, names);
}

// Tables of positions that older files hold, and what does not reach the logits.
std::vector<std::string> read_past(std::vector<std::string> own) {
  own.insert(own.end(), {"embeddings.position_ids", "embeddings.token_type_ids"});
  return own;
}

}  // namespace

Layout bert_layout() {
  return {.name = "bert",
          .summary = "BertForMaskedLM of Hugging Face transformers",
          .model_type = "bert",
          .mechanism = "softmax",
          .read = [](Published& c) { return read_encoder(c, {}, 0, read_activation(c, "hidden_act", "gelu")); },
          .write = [](const ModelConfig& c) { return write_encoder(c, "bert", "BertForMaskedLM"); },
          .rows =
              [](const ModelConfig& c) {
                return bert_rows(
                    c, "bert.",
                    {.head = "cls.predictions.", .dense = "transform.dense", .norm = "transform.LayerNorm"});
              },
          .ignored = read_past({"bert.pooler.dense.weight", "bert.pooler.dense.bias", "cls.seq_relationship.weight",
                                "cls.seq_relationship.bias", "cls.predictions.bias"}),
          .repeated = {{"cls.predictions.decoder.weight", "model.embed_tokens.weight"},
                       {"cls.predictions.decoder.bias", "masked_head.bias"}}};
}

// Positions are counted from behind the padding's id; the head's activation is GELU whatever hidden_act says.
Layout roberta_layout() {
  return {.name = "roberta",
          .summary = "RobertaForMaskedLM of Hugging Face transformers",
          .model_type = "roberta",
          .mechanism = "softmax",
          .read =
              [](Published& c) {
                c.want("hidden_act", "gelu");
                return read_encoder(c, {}, c.integer("pad_token_id", 0, 65535, 1) + 1, "gelu");
              },
          .write =
              [](const ModelConfig& c) {
                json j = write_encoder(c, "roberta", "RobertaForMaskedLM");
                j["pad_token_id"] = std::max<int64_t>(c.options.first_position - 1, 0);
                return j;
              },
          .rows =
              [](const ModelConfig& c) {
                return bert_rows(c, "roberta.", {.head = "lm_head.", .dense = "dense", .norm = "layer_norm"});
              },
          .ignored = read_past({"roberta.pooler.dense.weight", "roberta.pooler.dense.bias", "lm_head.bias"}),
          .repeated = {{"lm_head.decoder.weight", "model.embed_tokens.weight"},
                       {"lm_head.decoder.bias", "masked_head.bias"}},
          .skips_padding = true};
}

Layout albert_layout() {
  return {.name = "albert",
          .summary = "AlbertForMaskedLM of Hugging Face transformers",
          .model_type = "albert",
          .mechanism = "softmax",
          .read =
              [](Published& c) {
                c.want("num_hidden_groups", 1);
                c.want("inner_group_num", 1);
                c.ignore({"num_memory_blocks", "net_structure_type", "gap_size", "down_scale_factor"});
                const json own{{"shared_layers", true}, {"embedding_size", c.integer("embedding_size", 1, 65536, 128)}};
                return read_encoder(c, own, 0, read_activation(c, "hidden_act", "gelu_new"));
              },
          .write =
              [](const ModelConfig& c) {
                json j = write_encoder(c, "albert", "AlbertForMaskedLM");
                j.update({{"embedding_size", c.embedding_width()}, {"num_hidden_groups", 1}, {"inner_group_num", 1}});
                return j;
              },
          .rows =
              [](const ModelConfig& c) {
                const std::string encoder = "albert.encoder.";
                std::vector<Row> rows = rows_of(c, {.embeddings = "albert.embeddings.",
                                                    .layer = encoder + "albert_layer_groups.0.albert_layers.0.",
                                                    .attention = "attention.",
                                                    .output = "attention.dense",
                                                    .attention_norm = "attention.LayerNorm",
                                                    .up = "ffn",
                                                    .down = "ffn_output",
                                                    .layer_norm = "full_layer_layer_norm",
                                                    .head = "predictions.",
                                                    .dense = "dense",
                                                    .norm = "LayerNorm"});
                for (const char* part : {".weight", ".bias"})
                  rows.push_back(
                      {encoder + "embedding_hidden_mapping_in" + part, {std::string("model.embed_projection") + part}});
                return rows;
              },
          .ignored = read_past({"albert.pooler.weight", "albert.pooler.bias", "sop_classifier.classifier.weight",
                                "sop_classifier.classifier.bias", "predictions.bias"}),
          .repeated = {{"predictions.decoder.weight", "model.embed_tokens.weight"},
                       {"predictions.decoder.bias", "masked_head.bias"}}};
}

}  // namespace motet
