#include "motet/formats/llama2c.h"

#include <cstring>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/formats/model_file.h"

namespace motet {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

// dim 4, hidden_dim 3, 2 layers, 2 heads over 1, vocabulary 5, context 2
std::string file_of(std::vector<int32_t> header = {4, 3, 2, 2, 1, 5, 2}) {
  const size_t layer = 4 + 16 + 8 + 8 + 16 + 4 + 3 * 12, own = header[5] < 0 ? 20 : 0;
  std::vector<float> numbers(20 + 2 * layer + 4 + 2 * 2 + own);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
  std::string out(reinterpret_cast<const char*>(header.data()), 28);
  return out + std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 4);
}

Llama2cContent parse(const std::string& file) { return parse_llama2c(std::as_bytes(std::span(file)), "f"); }

std::string refusal(const std::string& file) {
  return message_of<Error>([&] { parse(file); });
}

TEST(Llama2c, MatricesAreFoundInTheirOrder) {
  const std::string file = file_of();
  const Llama2cContent content = parse(file);
  EXPECT_TRUE(content.sizes.tied);
  EXPECT_EQ(content.sizes.num_kv_heads, 1);
  ASSERT_EQ(content.tensors.size(), 2u + 2 * 9);
  const auto first = [&](const std::string& name) {
    for (const TensorView& t : content.tensors)
      if (t.name == name) {
        float number;
        std::memcpy(&number, t.bytes.data(), sizeof number);
        return number;
      }
    return -1.0f;
  };
  EXPECT_EQ(first("model.embed_tokens.weight"), 0);
  EXPECT_EQ(first("model.layers.1.input_layernorm.weight"), 24);
  EXPECT_EQ(first("model.layers.0.self_attn.q_proj.weight"), 28);
  EXPECT_EQ(first("model.layers.1.self_attn.k_proj.weight"), 28 + 32 + 8);
  EXPECT_EQ(first("model.layers.0.mlp.up_proj.weight"), 28 + 32 + 16 + 16 + 32 + 8 + 24 + 24);
  EXPECT_EQ(first("model.norm.weight"), 20 + 2 * 92);
  const Llama2cContent own = parse(file_of({4, 3, 2, 2, 1, -5, 2}));
  EXPECT_FALSE(own.sizes.tied);
  EXPECT_EQ(own.sizes.vocab_size, 5);
  EXPECT_EQ(own.tensors.back().name, "lm_head.weight");
}

TEST(Llama2c, EveryTruncationAndAnyMoreIsRefused) {
  const std::string whole = file_of();
  for (size_t size = 0; size < whole.size(); ++size) refusal(whole.substr(0, size));
  EXPECT_EQ(refusal(whole + "x"), "f: 1 bytes follow the last tensor");
}

TEST(Llama2c, SizesOutOfRangeAreNamed) {
  const auto with = [](int place, int32_t value) {
    std::vector<int32_t> header{4, 3, 2, 2, 1, 5, 2};
    header[static_cast<size_t>(place)] = value;
    return refusal(file_of(header));
  };
  for (int place = 0; place < 7; ++place)
    for (int32_t value : {0, INT32_MAX, INT32_MIN}) with(place, value);
  EXPECT_NE(with(2, 1024).find("the file ends inside"), std::string::npos);  // the most
  EXPECT_NE(with(2, 1025).find("n_layers is 1025, want 1 to 1024"), std::string::npos);
  EXPECT_NE(with(0, -4).find("dim is -4, want 1 to"), std::string::npos);
  EXPECT_NE(with(3, 3).find("n_heads is 3, want a divisor of dim 4"), std::string::npos);
  EXPECT_NE(with(3, 4).find("heads of even width"), std::string::npos);
  EXPECT_NE(with(4, 2).find("the file ends inside"), std::string::npos);
  EXPECT_NE(with(0, 0x616b3432).find("version 1 or 2"), std::string::npos);
}

TEST(ModelFile, KindsAreTold) {
  const TemporaryFolder folder;
  const auto kind = [&](const std::string& name, const std::string& bytes) {
    write_file_atomic(folder / name, bytes);
    return model_file_kind(folder / name);
  };
  EXPECT_EQ(kind("a", "GGUF"), ModelFileKind::gguf);
  EXPECT_EQ(kind("a.gguf", ""), ModelFileKind::gguf);
  EXPECT_EQ(kind("a.bin", "PK\x03\x04"), ModelFileKind::pickle);
  EXPECT_EQ(kind("b.bin", "\x80\x02}q"), ModelFileKind::pickle);
  EXPECT_EQ(kind("b.bin", "\x80\x05\x95"), ModelFileKind::pickle);
  for (const char* name : {"c.pt", "c.pth", "c.pkl", "c.ckpt"}) EXPECT_EQ(kind(name, "x"), ModelFileKind::pickle);
  EXPECT_EQ(kind("d.bin", std::string("\x80\x02\0\0", 4)), ModelFileKind::llama2c);
  EXPECT_EQ(kind("e.safetensors", std::string("\x80\x02\0\0\0\0\0\0{", 9)), ModelFileKind::safetensors);
  EXPECT_EQ(kind("f.safetensors.index.json", "{}"), ModelFileKind::safetensors_index);
  EXPECT_NE(message_of<Error>([&] { kind("g.txt", "x"); }).find("no model file"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] { model_file_kind(folder / "none"); }).find("no such file"), std::string::npos);
  EXPECT_NE(message_of<Error>([&] { model_file_kind(folder.path().string()); }).find("is a folder"), std::string::npos);
  const std::string advice = pickle_advice("m/pytorch_model.bin");
  EXPECT_EQ(std::count(advice.begin(), advice.end(), '\n'), 3);
  EXPECT_NE(advice.find("torch.load(\"m/pytorch_model.bin\""), std::string::npos);
}

}  // namespace
}  // namespace motet
