#include <charconv>
#include <cstdlib>

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/error.h"
#include "motet/formats/gguf.h"
#include "motet/formats/gguf_blocks.h"
#include "motet/formats/llama2c.h"

// Models in one file that says everything: GGUF of llama.cpp and llama2.c's .bin. Both are LLaMA with interleaved
// rotary pairs; ours get the order (j, j + D/2) of Hugging Face.
namespace motet {
namespace {

using nlohmann::json;

Row interleaved(std::string stored, const std::string& ours, int64_t heads) {
  return {std::move(stored), {ours}, Order::interleaved, heads};
}

// F32, F16 and BF16 as they lie; quantised numbers as float32.
StoredTensor stored(const std::shared_ptr<const GgufFile>& file, const GgufTensor& tensor) {
  const GgufElement& element = *find_gguf_element(tensor.type);
  if (element.block == 1) return tensor_in(file, tensor.bytes, tensor.shape, tensor.type, file->path());
  const auto decoded = [file, &tensor, &element] {
    Tensor out = at::empty(tensor.shape, at::kFloat);
    decode_blocks(element, tensor.bytes, {out.mutable_data_ptr<float>(), static_cast<size_t>(out.numel())});
    return out;
  };
  return {tensor.shape, at::kFloat, decoded, tensor.type};
}

// llama.cpp's name -> ours, in layer {i} or, after it, around the layers.
constexpr std::pair<const char*, const char*> kGgufNames[] = {
    {"blk.{i}.attn_norm", "model.layers.{i}.input_layernorm"},
    {"blk.{i}.attn_q", "model.layers.{i}.self_attn.q_proj"},
    {"blk.{i}.attn_k", "model.layers.{i}.self_attn.k_proj"},
    {"blk.{i}.attn_v", "model.layers.{i}.self_attn.v_proj"},
    {"blk.{i}.attn_output", "model.layers.{i}.self_attn.o_proj"},
    {"blk.{i}.ffn_norm", "model.layers.{i}.post_attention_layernorm"},
    {"blk.{i}.ffn_gate", "model.layers.{i}.mlp.gate_proj"},
    {"blk.{i}.ffn_up", "model.layers.{i}.mlp.up_proj"},
    {"blk.{i}.ffn_down", "model.layers.{i}.mlp.down_proj"},
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"}};

// A number of the metadata in its range; `otherwise` when it may be absent.
int64_t integer(const GgufFile& file, const std::string& key, double most, std::optional<int64_t> otherwise = {}) {
  const auto value = file.integer(key);
  if (!value && otherwise) return *otherwise;
  if (!value) fail(file.path(), ": metadata ", quote(key), " is missing");
  if (*value < 1 || static_cast<double>(*value) > most)
    fail(file.path(), ": metadata ", quote(key), " is ", *value, ", want 1 to ", static_cast<int64_t>(most));
  return *value;
}

double number(const GgufFile& file, const std::string& key, double min, double max, double otherwise) {
  double value = file.number(key).value_or(otherwise);
  // A float32 stands for the shortest decimal that rounds to it: 1e-5, not 9.99999974e-6.
  char shortest[32] = {};
  if (static_cast<double>(static_cast<float>(value)) == value) {
    std::to_chars(shortest, shortest + sizeof shortest - 1, static_cast<float>(value));
    value = std::strtod(shortest, nullptr);
  }
  if (!(value >= min && value <= max))
    fail(file.path(), ": metadata ", quote(key), " is ", value, ", want ", min, " to ", max);
  return value;
}

// Older files write the scaling as rope.scale_linear, and a factor without a type is linear.
void add_scaling(const GgufFile& file, int64_t context, json& attention) {
  const auto given = file.word("llama.rope.scaling.type");
  const std::string type = given.value_or("linear");
  const double linear = number(file, "llama.rope.scale_linear", 1, 1e6, 1);
  const double factor = number(file, "llama.rope.scaling.factor", 0, 1e6, linear);
  if (type != "none" && type != "linear")
    fail(file.path(), ": metadata 'llama.rope.scaling.type' is ", quote(type), ", want none or linear");
  if (type == "none" || factor == 0 || factor == 1) return;
  if (factor < 1)
    fail(file.path(), ": metadata 'llama.rope.scaling.factor' is ", factor, ", want 0 for none or at least 1");
  attention["rope_scaling"] = "linear";
  attention["rope_factor"] = factor;
}

ModelConfig gguf_config(const GgufFile& file, bool tied) {
  const std::string type = file.word("general.architecture").value_or("");
  if (type != "llama") fail(file.path(), ": general.architecture is ", quote(type), ", want llama");
  if (file.find("rope_freqs.weight"))
    fail(file.path(),
         ": tensor rope_freqs.weight: frequencies as a table are not supported, convert the original model");
  if (file.find("blk.0.ffn_gate_inp.weight")) fail(file.path(), ": a mixture of experts is not supported");
  const int64_t width = integer(file, "llama.embedding_length", 65536),
                context = integer(file, "llama.context_length", 1e8);
  const int64_t heads = integer(file, "llama.attention.head_count", 1024);
  if (width % heads)
    fail(file.path(), ": metadata 'llama.attention.head_count' is ", heads, ", want a divisor of ", width);
  const int64_t head = integer(file, "llama.attention.key_length", 4096, width / heads);
  for (const char* same : {"llama.attention.value_length", "llama.rope.dimension_count"})
    if (integer(file, same, 4096, head) != head)
      fail(file.path(), ": metadata ", quote(same), " is ", *file.integer(same), ", want the head width ", head);
  json attention{{"num_heads", heads},
                 {"num_kv_heads", integer(file, "llama.attention.head_count_kv", 1024, heads)},
                 {"head_dim", head},
                 {"rope_base", number(file, "llama.rope.freq_base", 1, 1e12, 10000)}};
  add_scaling(file, context, attention);
  const json options{{"hidden_size", width},
                     {"num_layers", integer(file, "llama.block_count", 1024)},
                     {"intermediate_size", integer(file, "llama.feed_forward_length", 1e6)},
                     {"norm_eps", number(file, "llama.attention.layer_norm_rms_epsilon", 0, 1, 1e-5)},
                     {"tie_embeddings", tied}};
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2)
    fail(file.path(), ": tensor token_embd.weight is missing or no matrix");
  return resolved(options, attention, embedding->shape[0], context, file.path());
}

std::vector<Row> gguf_rows(const ModelConfig& c) {
  std::vector<Row> rows;
  for (const auto& [stored, ours] : kGgufNames) {
    const std::string theirs = std::string(stored) + ".weight", own = std::string(ours) + ".weight";
    if (own == "lm_head.weight" && c.options.tie_embeddings) continue;
    const bool query = own.ends_with("q_proj.weight"), key = own.ends_with("k_proj.weight");
    rows.push_back(query || key
                       ? interleaved(theirs, own, query ? c.attention.at("num_heads").get<int64_t>() : kv_heads(c))
                       : Row{theirs, {own}});
  }
  return expanded(rows, c.num_layers());
}

}  // namespace

Checkpoint open_gguf(const std::string& path) {
  const auto file = std::make_shared<const GgufFile>(path);
  Checkpoint c{.format = "gguf", .layout = &find_layout("llama")};
  c.config = gguf_config(*file, !file->find("output.weight"));
  c.rows = gguf_rows(c.config);
  c.tensors = {.where = path, .all = {}, .files = file};
  for (const GgufTensor& tensor : file->tensors()) c.tensors.all[tensor.name] = stored(file, tensor);
  match_names(c);
  return c;
}

Checkpoint open_llama2c(const std::string& path) {
  const auto file = std::make_shared<const Llama2cFile>(path);
  const Llama2cSizes& s = file->sizes();
  Checkpoint c{.format = "llama2c", .layout = &find_layout("llama")};
  const json options{{"hidden_size", s.hidden_size},
                     {"num_layers", s.num_layers},
                     {"intermediate_size", s.intermediate_size},
                     {"norm_eps", 1e-5},
                     {"tie_embeddings", s.tied}};
  const json attention{
      {"num_heads", s.num_heads}, {"num_kv_heads", s.num_kv_heads}, {"head_dim", s.hidden_size / s.num_heads}};
  c.config = resolved(options, attention, s.vocab_size, s.context, path);
  c.tensors = {.where = path, .all = {}, .files = file};
  for (const TensorView& view : file->tensors()) {
    const bool query = view.name.ends_with("q_proj.weight"), key = view.name.ends_with("k_proj.weight");
    c.rows.push_back(query || key ? interleaved(view.name, view.name, query ? s.num_heads : s.num_kv_heads)
                                  : Row{view.name, {view.name}});
    c.tensors.all[view.name] = {view.shape, at::kFloat,
                                [file, &view] {
                                  return at::from_blob(const_cast<std::byte*>(view.bytes.data()), view.shape,
                                                       at::TensorOptions(at::kFloat));
                                },
                                "F32"};
  }
  return c;
}

}  // namespace motet
