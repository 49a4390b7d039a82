#include <gtest/gtest.h>

#include "motet/checkpoints/checkpoint.h"
#include "motet/checkpoints/companions.h"
#include "motet/checkpoints/eight_bits.h"
#include "motet/checkpoints/testing.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/gguf.h"
#include "motet/formats/gguf_testing.h"
#include "motet/models/testing.h"
#include "motet/ops/number_type.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using namespace testing;

constexpr int64_t kHeads = 4, kKeyHeads = 2, kVocabulary = 11, kContext = 24;

std::string bytes_of(const Tensor& t, at::ScalarType dtype = at::kFloat) {
  const Tensor whole = t.detach().to(dtype).contiguous();
  return {static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()};
}

// Rows of rotary pairs (j, j + D/2) of each head where llama.cpp and llama2.c have (2j, 2j + 1).
Tensor interleaved(const Tensor& rows, int64_t heads) {
  const int64_t width = rows.size(0) / heads;
  std::vector<Tensor> out;
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t i = 0; i < width; ++i) out.push_back(rows[head * width + i / 2 + (i % 2) * (width / 2)]);
  return at::stack(out);
}

ModelConfig grouped(bool tied) {
  return tiny({{"hidden_size", 16}, {"intermediate_size", 24}, {"tie_embeddings", tied}, {"norm_eps", 1e-5}},
              {{"num_heads", kHeads}, {"num_kv_heads", kKeyHeads}, {"rope_base", 5000.0}}, kVocabulary, kContext);
}

class SingleFile : public ::testing::Test {
 protected:
  Tensor stored(const std::string& name) {
    const Tensor t = parameters_[name];
    if (name.ends_with("q_proj.weight")) return interleaved(t, kHeads);
    return name.ends_with("k_proj.weight") ? interleaved(t, kKeyHeads) : t;
  }
  void expect_same(const std::string& path) {
    const Checkpoint made = open_checkpoint(path);
    Model model = load_model(made);
    for (const auto& item : model->named_parameters())
      EXPECT_TRUE(item.value().equal(parameters_[item.key()])) << item.key();
    EXPECT_EQ(model->config().context, kContext);
    const Tensor ids = at::arange(kVocabulary).unsqueeze(0);
    EXPECT_TRUE(model->forward(ids).equal(model_->forward(ids)));
  }
  std::string grouped_gguf(bool tied, const std::vector<std::string>& more);
  void begin(bool tied, at::ScalarType matrices = at::kFloat) {
    model_ = fresh(grouped(tied));
    type_ = matrices;
    for (const auto& [name, layer] : matrices_of(*model_)) layer->weight.copy_(layer->weight.to(matrices));
    for (const auto& item : model_->named_parameters()) parameters_[item.key()] = item.value();
  }

  at::NoGradGuard no_grad_;
  TemporaryFolder folder_;
  Model model_{nullptr};
  at::ScalarType type_ = at::kFloat;  // of the matrices in the file
  std::map<std::string, Tensor> parameters_;
};

std::string gguf(const std::vector<std::string>& metadata, const std::vector<std::pair<std::string, Tensor>>& tensors,
                 at::ScalarType matrices) {
  std::string head = "GGUF" + raw<uint32_t>(3) + raw<uint64_t>(tensors.size()) + raw<uint64_t>(metadata.size()), data;
  for (const std::string& one : metadata) head += one;
  for (const auto& [name, t] : tensors) {
    head += word(name) + raw(static_cast<uint32_t>(t.dim()));
    for (int64_t i = t.dim(); i-- > 0;) head += raw(static_cast<uint64_t>(t.size(i)));  // the fastest axis first
    const at::ScalarType type = t.dim() == 2 ? matrices : at::kFloat;
    head += raw<uint32_t>(type == at::kHalf ? 1 : type == at::kBFloat16 ? 30 : 0) + raw<uint64_t>(data.size());
    data += bytes_of(t, type);
    data.resize((data.size() + 31) / 32 * 32);
  }
  head.resize((head.size() + 31) / 32 * 32);
  return head + data;
}

// The file of begin(): the metadata of the model and more, and its tensors.
std::string SingleFile::grouped_gguf(bool tied, const std::vector<std::string>& more) {
  const auto count = [](const char* key, uint32_t n) { return entry(key, GgufType::u32, raw(n)); };
  std::vector<std::string> metadata{entry("general.architecture", GgufType::string, word("llama")),
                                    count("llama.embedding_length", 16),
                                    count("llama.context_length", kContext),
                                    count("llama.block_count", 2),
                                    count("llama.feed_forward_length", 24),
                                    count("llama.attention.head_count", kHeads),
                                    count("llama.attention.head_count_kv", kKeyHeads),
                                    entry("llama.attention.layer_norm_rms_epsilon", GgufType::f32, raw(1e-5f)),
                                    entry("llama.rope.freq_base", GgufType::f32, raw(5000.0f)),
                                    count("tokenizer.ggml.bos_token_id", 1),
                                    count("tokenizer.ggml.eos_token_id", 2),
                                    count("tokenizer.ggml.padding_token_id", 3),
                                    count("tokenizer.ggml.eot_token_id", 7),
                                    entry("tokenizer.chat_template", GgufType::string, word("{{ messages }}"))};
  std::vector<std::pair<std::string, Tensor>> tensors{{"token_embd.weight", stored("model.embed_tokens.weight")},
                                                      {"output_norm.weight", stored("model.norm.weight")}};
  if (!tied) tensors.emplace_back("output.weight", stored("lm_head.weight"));
  for (const char* layer : {"0", "1"})
    for (const auto& [theirs, ours] : {std::pair("attn_norm", "input_layernorm"),
                                       {"ffn_norm", "post_attention_layernorm"},
                                       {"attn_q", "self_attn.q_proj"},
                                       {"attn_k", "self_attn.k_proj"},
                                       {"attn_v", "self_attn.v_proj"},
                                       {"attn_output", "self_attn.o_proj"},
                                       {"ffn_gate", "mlp.gate_proj"},
                                       {"ffn_up", "mlp.up_proj"},
                                       {"ffn_down", "mlp.down_proj"}})
      tensors.emplace_back(text("blk.", layer, ".", theirs, ".weight"),
                           stored(text("model.layers.", layer, ".", ours, ".weight")));
  metadata.insert(metadata.end(), more.begin(), more.end());
  return gguf(metadata, tensors, type_);
}

TEST_F(SingleFile, GgufWithGroupedHeadsIsTheModelItWasMadeOf) {
  for (const bool tied : {false, true}) {
    begin(tied);
    const std::string path = folder_ / "m.gguf";
    write_file_atomic(path, grouped_gguf(tied, {}));
    expect_same(path);
    for (const Companions& beside : {companions_of(open_checkpoint(path)), companions_of_tokenizer(path)}) {
      EXPECT_EQ(beside.token_ids, (nlohmann::json{{"bos_token_id", 1}, {"eos_token_id", {2, 7}}, {"pad_token_id", 3}}));
      EXPECT_EQ(beside.files, (ExtraFiles{{"chat_template.jinja", "{{ messages }}"}}));
    }
  }
}

// Queries and keys come in another order and are copied; all else lies in the file.
TEST_F(SingleFile, GgufIn16BitsStaysSoAndIsMapped) {
  for (const WeightType type : {WeightType::bfloat16, WeightType::float16}) {
    SCOPED_TRACE(name(type));
    begin(true, dtype_of(type));
    const std::string path = folder_ / "m.gguf";
    write_file_atomic(path, grouped_gguf(true, {}));
    expect_same(path);
    const Checkpoint made = open_checkpoint(path);
    EXPECT_EQ(stored_weights(made), type);
    Model model = load_model(made, {.weights = type});
    for (const auto& [name, layer] : matrices_of(*model)) {
      const bool copied = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
      EXPECT_EQ(file_at(layer->operands().weight_NK.values_NK.const_data_ptr()) == fs::canonical(path), !copied)
          << name;
    }
    EXPECT_GT(model->mapped_bytes(), 0);
    const Tensor ids = at::arange(kVocabulary).unsqueeze(0);
    EXPECT_TRUE(model->forward(ids).equal(model_->forward(ids)));
  }
}

// As llama.cpp: a factor is linear where no type is named, and counts for nothing where the type is none.
TEST_F(SingleFile, GgufScalesPositionsAsItsTypeSays) {
  begin(false);
  const auto scaling = [&](const std::string& type, float factor) {
    std::vector<std::string> more{entry("llama.rope.scaling.factor", GgufType::f32, raw(factor))};
    if (!type.empty()) more.push_back(entry("llama.rope.scaling.type", GgufType::string, word(type)));
    write_file_atomic(folder_ / "m.gguf", grouped_gguf(false, more));
    const nlohmann::json attention = open_checkpoint(folder_ / "m.gguf").config.attention;
    return text(attention.at("rope_scaling").get<std::string>(), " ", attention.at("rope_factor").get<double>());
  };
  EXPECT_EQ(scaling("none", 4), "none 1");
  EXPECT_EQ(scaling("linear", 4), "linear 4");
  EXPECT_EQ(scaling("", 4), "linear 4");
  EXPECT_EQ(scaling("", 0), "none 1");
  EXPECT_EQ(scaling("linear", 1), "none 1");
  EXPECT_NE(message_of<Error>([&] { scaling("linear", 0.5f); }).find("factor' is 0.5, want 0 for none or at least 1"),
            std::string::npos);
  EXPECT_NE(message_of<Error>([&] { scaling("yarn", 4); }).find("is 'yarn', want none or linear"), std::string::npos);
}

TEST_F(SingleFile, Llama2cWithGroupedHeadsIsTheModelItWasMadeOf) {
  for (const bool tied : {false, true}) {
    ModelConfig config = grouped(tied);
    config.attention["rope_base"] = 10000.0;  // the only one of the format
    model_ = fresh(config);
    for (const auto& item : model_->named_parameters()) parameters_[item.key()] = item.value();
    const auto vocabulary = static_cast<int32_t>(tied ? kVocabulary : -kVocabulary);
    std::string file;
    for (const int32_t n : {16, 24, 2, static_cast<int32_t>(kHeads), static_cast<int32_t>(kKeyHeads), vocabulary,
                            static_cast<int32_t>(kContext)})
      file += raw(n);
    file += bytes_of(stored("model.embed_tokens.weight"));
    for (const char* name :
         {"input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "post_attention_layernorm", "mlp.gate_proj", "mlp.down_proj", "mlp.up_proj"})
      for (const char* layer : {"0", "1"}) file += bytes_of(stored(text("model.layers.", layer, ".", name, ".weight")));
    file += bytes_of(stored("model.norm.weight")) + std::string(2 * kContext * 2 * sizeof(float), '\0');
    if (!tied) file += bytes_of(stored("lm_head.weight"));
    write_file_atomic(folder_ / "m.bin", file);
    expect_same(folder_ / "m.bin");
    EXPECT_TRUE(companions_of(open_checkpoint(folder_ / "m.bin")).files.empty());
  }
}

}  // namespace
}  // namespace motet
