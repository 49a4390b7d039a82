// Folders in 8 bits: written by convert, mapped for inference, widened for everything else.
#include "motet/checkpoints/eight_bits.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motet/checkpoints/checkpoint.h"
#include "motet/checkpoints/convert.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/checkpoints/testing.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors.h"
#include "motet/mechanisms/contender.h"
#include "motet/models/testing.h"
#include "motet/ops/other_device.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using nlohmann::json;

const Tensor kIds = at::tensor({3, 1, 4, 1, 5, 9, 2, 6}, at::kLong).view({1, 8});
const std::string kQuery = "model.layers.1.self_attn.q_proj.weight";

Tensor logits(ModelImpl& model) {
  const at::NoGradGuard no_grad;
  return model.forward(kIds);
}

Model mapped(const fs::path& folder) {
  Model model = load_model(open_checkpoint(folder), {.weights = WeightType::int8});
  model->prepare(WeightType::int8);
  return model;
}

class EightBitFolder : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  void write(const std::string& name, const json& model, const json& attention) {
    save_model_folder(path(name), *fresh(tiny(model, attention)), {});
    convert_checkpoint(open_checkpoint(path(name)), find_layout("motet"), path(name + "8"),
                       {.weights = WeightType::int8});
  }
  TemporaryFolder folder_;
};

TEST_F(EightBitFolder, MapsToTheBitsThatLoadingMakes) {
  const json untied{{"initializer_range", 0.3}}, tied{{"initializer_range", 0.3}, {"tie_embeddings", true}};
  std::vector<std::pair<json, json>> all{
      {untied, {{"num_kv_heads", 2}, {"window", 3}}},
      {tied, {{"num_kv_heads", 1}, {"window", 2}, {"window_pattern", "LG"}, {"bias", true}}},
      {{{"initializer_range", 0.3}, {"embedding_size", 6}, {"positions", "learned"}, {"block", "parallel"}}, {}}};
  for (const std::string& name : contender_names()) {
    all.emplace_back(untied, parse_contender(name, ""));
    all.emplace_back(tied, parse_contender(name, ""));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [options, attention] = all[i];
    const std::string name = std::to_string(i);
    write(name, options, attention);
    Model loaded = load_model_folder(path(name)), found = mapped(path(name + "8"));
    loaded->prepare(WeightType::int8);
    const auto wanted = matrices_of(*loaded), made = matrices_of(*found);
    ASSERT_EQ(wanted.size(), made.size()) << attention;
    for (const auto& [matrix, layer] : wanted) {
      const Matrix a = layer->operands().weight_NK, b = made.at(matrix)->operands().weight_NK;
      EXPECT_TRUE(a.values_NK.equal(b.values_NK) && a.scale_N.equal(b.scale_N)) << matrix << " of " << attention;
    }
    EXPECT_TRUE(logits(*loaded).equal(logits(*found))) << options << attention;
  }
}

// The file's own numbers go there, not those of what they stand for.
TEST_F(EightBitFolder, GoesToAnotherDeviceAsItIs) {
  write("m", {}, {{"mechanism", "dcmha"}});
  const at::Device device = testing::other_device();
  Model here = mapped(path("m8")),
        there = load_model(open_checkpoint(path("m8")), {.device = device, .weights = WeightType::int8});
  for (const auto& [name, layer] : matrices_of(*there)) EXPECT_EQ(layer->weight.numel(), 0) << name;
  there->prepare(WeightType::int8);
  const auto wanted = matrices_of(*here), made = matrices_of(*there);
  for (const auto& [name, layer] : made) {
    const Matrix a = wanted.at(name)->operands().weight_NK, b = layer->operands().weight_NK;
    EXPECT_EQ(b.values_NK.device(), device) << name;
    EXPECT_TRUE(a.values_NK.equal(b.values_NK.cpu()) && a.scale_N.equal(b.scale_N.cpu())) << name;
  }
  const at::NoGradGuard no_grad;
  EXPECT_LE((there->forward(kIds.to(device)).cpu() - logits(*here)).abs().max().item<double>(), 1e-4);
}

// A copy, of whatever type, is memory that no other process shares.
TEST_F(EightBitFolder, LiesInTheMappedFile) {
  write("m", {}, {{"mechanism", "dcmha"}});
  Model model = mapped(path("m8"));
  for (const auto& [name, layer] : matrices_of(*model)) {
    const Matrix w = layer->operands().weight_NK;
    for (const void* at : {w.values_NK.const_data_ptr(), w.scale_N.const_data_ptr()})
      EXPECT_EQ(file_at(at), fs::canonical(path("m8")) / "model.safetensors") << name;
    EXPECT_EQ(layer->weight.numel(), 0) << name;
    EXPECT_EQ(layer->mapped_bytes(), layer->kept_bytes()) << name;
  }
}

TEST_F(EightBitFolder, IsReadByEverythingElseAsTheNumbersItStandsFor) {
  write("m", {}, {{"mechanism", "differential"}});
  Model prepared = load_model_folder(path("m"));
  prepared->prepare(WeightType::int8);
  prepared->train();  // what was kept comes back as float32
  convert_checkpoint(open_checkpoint(path("m8")), find_layout("motet"), path("wide"));
  EXPECT_FALSE(read_json((path("wide") / "config.json").string()).contains("quantization_config"));
  for (const char* name : {"m8", "wide"}) {
    Model found = load_model_folder(path(name)), exact = load_model(open_checkpoint(path(name)), {at::kDouble});
    for (const auto& item : prepared->named_parameters()) {
      EXPECT_TRUE(item.value().equal(found->named_parameters()[item.key()])) << item.key();
      EXPECT_TRUE(exact->named_parameters()[item.key()].equal(item.value().to(at::kDouble))) << item.key();
    }
  }
}

TEST_F(EightBitFolder, WhatIsNoMatrixKeepsItsBytes) {
  save_model_folder(path("m"), *fresh(tiny({}, {{"mechanism", "dcmha"}})), {{"tokenizer.json", "{}"}});
  convert_checkpoint(open_checkpoint(path("m")), find_layout("motet"), path("half"), {.dtype = at::kBFloat16});
  convert_checkpoint(open_checkpoint(path("half")), find_layout("motet"), path("m8"), {.weights = WeightType::int8});
  const Checkpoint before = open_checkpoint(path("half")), after = open_checkpoint(path("m8"));
  EXPECT_EQ(before.tensors.all.size(), after.tensors.all.size());
  int64_t matrices = 0;
  for (const auto& [name, stored] : after.tensors.all) {
    const bool matrix = stored.stored_as == "I8";
    matrices += matrix;
    if (matrix) continue;
    EXPECT_EQ(stored.stored_as, "BF16") << name;
    EXPECT_TRUE(stored.load().equal(before.tensors.all.at(name).load())) << name;
  }
  EXPECT_EQ(matrices, 2 + 2 * 7) << "tables and output; q, k, v, o and three of the feed-forward in each layer";
  EXPECT_EQ(read_file(path("m8") / "tokenizer.json"), "{}");
}

// A reader of LLaMA's folders would compute with the steps in place of the numbers.
TEST_F(EightBitFolder, IsNoLlama) {
  write("m", {}, {});
  EXPECT_EQ(read_json((path("m") / "config.json").string())["model_type"], "llama");
  const json config = read_json((path("m8") / "config.json").string());
  EXPECT_EQ(config["model_type"], "motet");
  EXPECT_EQ(config["architectures"][0], "MotetForCausalLM");
  EXPECT_EQ(config["quantization_config"], (json{{"quant_method", "motet"}, {"weights", "int8"}, {"version", 1}}));
}

TEST_F(EightBitFolder, OtherLayoutsHaveNone) {
  save_model_folder(path("m"), *fresh(tiny()), {});
  EXPECT_EQ(message_of<UsageError>([&] {
              convert_checkpoint(open_checkpoint(path("m")), find_layout("llama"), path("never"),
                                 {.weights = WeightType::int8});
            }),
            "the layout llama holds no weights in 8 bits, want motet");
}

TEST_F(EightBitFolder, NumbersThatEightBitsCannotHoldAreRefused) {
  for (const float number : {INFINITY, -INFINITY, NAN}) {
    Model model = fresh(tiny());
    {
      const at::NoGradGuard no_grad;
      model->named_parameters()[kQuery].select(0, 5).select(0, 3).fill_(number);
    }
    save_model_folder(path("m"), *model, {});
    EXPECT_EQ(message_of<Error>([&] {
                convert_checkpoint(open_checkpoint(path("m")), find_layout("motet"), path("never"),
                                   {.weights = WeightType::int8});
              }),
              "tensor " + kQuery + " has an infinite number or NaN in row 5, which 8 bits cannot hold");
    EXPECT_FALSE(fs::exists(path("never")));
  }
}

// A folder in 8 bits, broken in one place; mapped or widened, it is refused alike.
class BrokenEightBits : public EightBitFolder {
 protected:
  BrokenEightBits() { write("m", {}, {}); }
  std::string file() const { return (path("m8") / "model.safetensors").string(); }
  std::string message() {
    const std::string one = message_of<Error>([&] { mapped(path("m8")); }),
                      other = message_of<Error>([&] { load_model_folder(path("m8")); });
    EXPECT_EQ(one, other);
    for (const std::string& where : {file(), (path("m8") / "config.json").string()})
      if (one.starts_with(where + ": ")) return one.substr(where.size() + 2);
    return "elsewhere: " + one;
  }
  // What is said of a file whose tensors were changed.
  std::string after(const std::function<void(std::map<std::string, TensorView>&)>& change) {
    const std::string good = read_file(file());
    {
      const SafetensorsFile from(file());
      std::map<std::string, TensorView> all;
      for (const TensorView& one : from.tensors()) all[one.name] = one;
      change(all);
      std::vector<TensorView> list;
      for (auto& [name, one] : all) list.push_back({name, one.dtype, one.shape, one.bytes});
      write_safetensors(file(), list, {});
    }
    const std::string said = message();
    write_file_atomic(file(), good);
    return said;
  }
  std::string with_scale(float number) {
    return after([&](auto& all) {
      TensorView& scale = all.at(kQuery + "_scale");
      numbers_.assign(static_cast<size_t>(scale.shape[0]), 1);
      numbers_[3] = number;
      scale.bytes = std::as_bytes(std::span(numbers_));
    });
  }
  std::string declaring(const json& quantization) {
    const std::string place = (path("m8") / "config.json").string(), good = read_file(place);
    json config = parse_json(good, place);
    config["quantization_config"] = quantization;
    write_file_atomic(place, config.dump());
    const std::string said = message();
    write_file_atomic(place, good);
    return said;
  }
  std::vector<float> numbers_;
};

TEST_F(BrokenEightBits, ScalesThatAreNoneAreNamed) {
  const std::string what = "tensor " + kQuery + "_scale has ", wanted = " in row 3, want finite numbers of at least 0";
  EXPECT_EQ(with_scale(NAN), what + "nan" + wanted);
  EXPECT_EQ(with_scale(INFINITY), what + "inf" + wanted);
  EXPECT_EQ(with_scale(-0.5F), what + "-0.5" + wanted);
}

TEST_F(BrokenEightBits, ScalesOfAnotherFormAreNamed) {
  const std::string scale = kQuery + "_scale";
  EXPECT_EQ(after([&](auto& all) { all.erase(scale); }),
            "tensor " + scale + ", the scales of " + kQuery + ", is missing");
  EXPECT_EQ(after([&](auto& all) { all.at(scale).shape = {4, 4}; }),
            "tensor " + scale + " has shape [4, 4], want [16], a scale for each row");
  EXPECT_EQ(after([&](auto& all) { all.at(scale).shape = {16, 1}; }),
            "tensor " + scale + " has shape [16, 1], want [16], a scale for each row");
  EXPECT_EQ(after([&](auto& all) { all.at(scale).dtype = "I32"; }), "tensor " + scale + " has dtype I32, want F32");
  EXPECT_EQ(after([&](auto& all) { all["model.norm.weight_scale"] = all.at(scale); }),
            "tensor model.norm.weight_scale belongs to no part of the model");
}

TEST_F(BrokenEightBits, MatricesOfAnotherFormAreNamed) {
  EXPECT_EQ(after([&](auto& all) { all.at(kQuery).shape = {16, 2, 8}; }),
            "tensor " + kQuery + " has dtype I8 and shape [16, 2, 8], want [N,K]");
  EXPECT_EQ(after([&](auto& all) { all.at(kQuery).shape = {8, 32}; }),
            "tensor " + kQuery + "_scale has shape [16], want [8], a scale for each row");
  EXPECT_EQ(after([&](auto& all) {
              all.erase(kQuery + "_scale");
              numbers_.assign(256, 1);
              all.at(kQuery).dtype = "F32", all.at(kQuery).bytes = std::as_bytes(std::span(numbers_));
            }),
            "tensor " + kQuery + " has dtype F32, want I8, as quantization_config in config.json says");
  EXPECT_EQ(
      after([&](auto& all) { all.at(kQuery).shape = {16, 8}, all.at(kQuery).bytes = all.at(kQuery).bytes.first(128); }),
      "tensor " + kQuery + " has shape [16, 8], want [16, 16]");
}

TEST_F(BrokenEightBits, ABiasIsNoMatrix) {
  const std::string name = "model.layers.0.self_attn.relative_bias";
  write("biased", {}, {{"position_bias", "relative"}});
  fs::remove_all(path("m8"));
  fs::rename(path("biased8"), path("m8"));
  const Checkpoint c = open_checkpoint(path("m8"));
  ASSERT_TRUE(c.tensors.all.contains(name));
  const std::vector<int64_t> shape = c.tensors.all.at(name).shape;
  const std::vector<int8_t> steps(static_cast<size_t>(shape[0] * shape[1]), 1);
  numbers_.assign(static_cast<size_t>(shape[0]), 1);
  EXPECT_EQ(after([&](auto& all) {
              all[name] = {name, "I8", shape, std::as_bytes(std::span(steps))};
              all[name + "_scale"] = {name, "F32", {shape[0]}, std::as_bytes(std::span(numbers_))};
            }),
            "tensor " + name + " has dtype I8, want F32, F64, BF16 or F16");
}

TEST_F(BrokenEightBits, AnotherWayOfStoringIsNamed) {
  const std::string as = ", as motet convert --weights int8 writes it";
  json said{{"quant_method", "motet"}, {"weights", "int8"}, {"version", 2}};
  EXPECT_EQ(declaring(said), "quantization_config.version is '2', want '1'" + as);
  said["version"] = 1, said["weights"] = "int4";
  EXPECT_EQ(declaring(said), "quantization_config.weights is '\"int4\"', want '\"int8\"'" + as);
  said["weights"] = "int8", said["quant_method"] = "awq";
  EXPECT_EQ(declaring(said), "quantization_config.quant_method is '\"awq\"', want '\"motet\"'" + as);
  said["quant_method"] = "motet", said["block"] = 32;
  EXPECT_EQ(declaring(said), "unknown key 'block' in quantization_config");
  EXPECT_EQ(declaring({{"quant_method", "motet"}, {"weights", "int8"}}),
            "quantization_config.version is 'null', want '1'" + as);
  EXPECT_EQ(declaring("int8"), "quantization_config is '\"int8\"', want an object");
  EXPECT_EQ(declaring(nullptr), "tensor lm_head.weight has dtype I8, want F32, F64, BF16 or F16")
      << "8 bits that nobody declared";
}

TEST_F(BrokenEightBits, AFileThatIsCutShortIsNamed) {
  const std::string bytes = read_file(file());
  for (const size_t less : {size_t{5}, bytes.size() / 2, bytes.size() - 4}) {
    write_file_atomic(file(), std::string_view(bytes).substr(0, bytes.size() - less));
    const std::string said = message_of<Error>([&] { mapped(path("m8")); });
    EXPECT_TRUE(said.starts_with(file())) << said;
  }
}

}  // namespace
}  // namespace motet
