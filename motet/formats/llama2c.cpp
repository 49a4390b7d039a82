#include "motet/formats/llama2c.h"

#include <cstdlib>

#include "motet/core/checked.h"
#include "motet/core/error.h"
#include "motet/formats/byte_reader.h"

namespace motet {
namespace {

constexpr uint32_t kLaterMagic = 0x616b3432;  // "ak42": versions 1 and 2
constexpr int64_t kMostSize = 1 << 24, kMostLayers = 1024;

int64_t size_of(ByteReader& reader, const char* name, int64_t most) {
  const int64_t size = reader.number<int32_t>(name);
  if (size < 1 || size > most)
    fail(reader.where(), ": ", name, " is ", size, ", want 1 to ", most, "; is this a llama2.c model?");
  return size;
}

Llama2cSizes read_sizes(ByteReader& reader) {
  Llama2cSizes s;
  s.hidden_size = size_of(reader, "dim", kMostSize);
  s.intermediate_size = size_of(reader, "hidden_dim", kMostSize);
  s.num_layers = size_of(reader, "n_layers", kMostLayers);
  s.num_heads = size_of(reader, "n_heads", kMostLayers);
  s.num_kv_heads = size_of(reader, "n_kv_heads", kMostLayers);
  const int64_t vocabulary = reader.number<int32_t>("vocab_size");
  s.tied = vocabulary > 0;  // a negative size marks an output matrix of its own
  s.vocab_size = std::abs(vocabulary);
  if (s.vocab_size < 1 || s.vocab_size > kMostSize)
    fail(reader.where(), ": vocab_size is ", vocabulary, ", want 1 to ", kMostSize, " or its negative");
  s.context = size_of(reader, "seq_len", kMostSize);
  if (s.hidden_size % s.num_heads || s.hidden_size / s.num_heads % 2)
    fail(reader.where(), ": n_heads is ", s.num_heads, ", want a divisor of dim ", s.hidden_size,
         " that leaves heads of even width");
  if (s.num_heads % s.num_kv_heads)
    fail(reader.where(), ": n_kv_heads is ", s.num_kv_heads, ", want a divisor of n_heads ", s.num_heads);
  return s;
}

// Takes matrices from the file, one stack of layers after the other.
class Stacks {
 public:
  Stacks(ByteReader& reader, std::vector<TensorView>& out) : reader_(reader), out_(out) {}

  void one(const std::string& name, std::vector<int64_t> shape) {
    std::optional<uint64_t> size = sizeof(float);
    for (const int64_t n : shape) size = size ? checked_multiply(*size, static_cast<uint64_t>(n)) : size;
    if (!size) fail(reader_.where(), ": ", name, " is too large");
    out_.push_back({name, "F32", std::move(shape), reader_.take(*size, name)});
  }

  void each(int64_t layers, const std::string& name, const std::vector<int64_t>& shape) {
    for (int64_t i = 0; i < layers; ++i) one(text("model.layers.", i, ".", name, ".weight"), shape);
  }

 private:
  ByteReader& reader_;
  std::vector<TensorView>& out_;
};

}  // namespace

Llama2cContent parse_llama2c(std::span<const std::byte> bytes, const std::string& where) {
  ByteReader reader(bytes, where);
  if (bytes.size() >= 4 && ByteReader(bytes, where).number<uint32_t>("the magic") == kLaterMagic)
    fail(where, ": a llama2.c file of version 1 or 2, want version 0 (export.py --version 0)");
  Llama2cContent content{.sizes = read_sizes(reader), .tensors = {}};
  const Llama2cSizes& s = content.sizes;
  const int64_t C = s.hidden_size, F = s.intermediate_size, L = s.num_layers, D = C / s.num_heads,
                kv = s.num_kv_heads * D;
  Stacks stacks(reader, content.tensors);
  stacks.one("model.embed_tokens.weight", {s.vocab_size, C});
  stacks.each(L, "input_layernorm", {C});
  stacks.each(L, "self_attn.q_proj", {C, C});
  stacks.each(L, "self_attn.k_proj", {kv, C});
  stacks.each(L, "self_attn.v_proj", {kv, C});
  stacks.each(L, "self_attn.o_proj", {C, C});
  stacks.each(L, "post_attention_layernorm", {C});
  stacks.each(L, "mlp.gate_proj", {F, C});
  stacks.each(L, "mlp.down_proj", {C, F});
  stacks.each(L, "mlp.up_proj", {F, C});
  stacks.one("model.norm.weight", {C});
  for (const char* table : {"freq_cis_real", "freq_cis_imag"})  // of the rotary embedding: computed anew
    reader.take(static_cast<uint64_t>(s.context) * static_cast<uint64_t>(D / 2) * sizeof(float), table);
  if (!s.tied) stacks.one("lm_head.weight", {s.vocab_size, C});
  if (reader.left() > 0) fail(where, ": ", reader.left(), " bytes follow the last tensor");
  return content;
}

}  // namespace motet
