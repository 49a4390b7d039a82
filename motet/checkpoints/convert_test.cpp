#include "motet/checkpoints/convert.h"

#include <gtest/gtest.h>

#include "motet/checkpoints/model_folder.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using namespace testing;

const std::string kModels = "tests/golden/model/";

std::vector<std::string> recorded_models() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kModels)) names.push_back(entry.path().filename().string());
  return names;
}

Tensor logits(const fs::path& folder) {
  at::NoGradGuard no_grad;
  return load_model(open_checkpoint(folder), at::kDouble)->forward(at::arange(3, 27).view({2, 12}));
}

double difference(const Tensor& a, const Tensor& b) { return ((a - b).abs().max() / b.abs().max()).item<double>(); }

class Convert : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  void convert(const fs::path& from, const std::string& to, const std::string& name,
               std::optional<at::ScalarType> dtype = {}) {
    convert_checkpoint(open_checkpoint(from), find_layout(to), path(name), dtype);
  }
  TemporaryFolder folder_;
};

TEST_F(Convert, ThroughOursAndBackGivesTheSameBytes) {
  for (const std::string& name : recorded_models()) {
    const fs::path source = kModels + name;
    convert(source, "motet", name + "_ours");
    convert(path(name + "_ours"), open_checkpoint(source).layout->name, name + "_back");
    for (const char* file : {"config.json", "model.safetensors"})
      EXPECT_TRUE(read_file(source / file) == read_file(path(name + "_back") / file)) << name << " " << file;
    EXPECT_TRUE(logits(path(name + "_ours")).equal(logits(source))) << name;
  }
}

TEST_F(Convert, AConfigThatWeWriteMeansTheSame) {
  for (const std::string& name : recorded_models()) {
    const fs::path source = kModels + name;
    const std::string layout = open_checkpoint(source).layout->name;
    convert(source, "motet", name + "_ours");
    fs::remove(path(name + "_ours") / "published_config.json");
    convert(path(name + "_ours"), layout, name + "_new");
    EXPECT_EQ(open_checkpoint(path(name + "_new")).layout->name, layout);
    EXPECT_TRUE(logits(path(name + "_new")).equal(logits(source))) << name;
    convert(path(name + "_new"), layout, name + "_again");  // from now on nothing changes any more
    for (const char* file : {"config.json", "model.safetensors"})
      EXPECT_TRUE(read_file(path(name + "_new") / file) == read_file(path(name + "_again") / file)) << name;
  }
}

TEST_F(Convert, DifferentialLayoutsShareAFunction) {
  const fs::path source = kModels + "diffllama_mha";
  convert(source, "diff_transformer", "ms");
  const auto config = read_json((path("ms") / "config.json").string());
  EXPECT_EQ(config["num_attention_heads"], 3);  // the authors count pairs
  EXPECT_LT(difference(logits(path("ms")), logits(source)), 1e-13);
  convert(path("ms"), "diffllama", "back");
  EXPECT_TRUE(logits(path("back")).equal(logits(source)));

  // A weight of the head norm other than 1 goes into the output projection.
  Model model = load_model(open_checkpoint(path("ms")));
  {
    at::NoGradGuard no_grad;
    for (auto& item : model->named_parameters())
      if (item.key().ends_with("subln.weight")) item.value().uniform_(0.5, 2);
  }
  save_model_folder(path("weighted"), *model, {});
  convert(path("weighted"), "diffllama", "folded");
  EXPECT_LT(difference(logits(path("folded")), logits(path("weighted"))), 1e-6);  // products rounded to float32
}

TEST_F(Convert, SecondVersionKeepsItsNames) {
  const ModelConfig config = tiny({}, {{"mechanism", "differential"}, {"version", "v2"}, {"num_kv_heads", 2}}, 30, 32);
  save_model_folder(path("v2"), *fresh(config), {});
  convert(path("v2"), "diff_transformer", "ms");
  const Checkpoint made = open_checkpoint(path("ms"));
  EXPECT_TRUE(made.tensors.all.contains("model.layers.0.self_attn.lambda_proj.weight"));
  EXPECT_EQ(made.config.attention.at("rope_pairing"), "interleaved");
  EXPECT_LT(difference(logits(path("ms")), logits(path("v2"))), 1e-13);
}

TEST_F(Convert, NumbersKeepTheirTypeUnlessAsked) {
  convert(kModels + "llama_mha", "llama", "half", at::kBFloat16);
  EXPECT_EQ(read_json((path("half") / "config.json").string())["torch_dtype"], "bfloat16");
  convert(path("half"), "motet", "ours");
  for (const auto& [name, stored] : open_checkpoint(path("ours")).tensors.all) EXPECT_EQ(stored.stored_as, "BF16");
  EXPECT_LT(difference(logits(path("ours")), logits(kModels + "llama_mha")), 0.1);
}

TEST_F(Convert, WhatALayoutCannotSayIsNamed) {
  const auto refusal = [&](const nlohmann::json& model, const nlohmann::json& attention, const std::string& to) {
    save_model_folder(path("m"), *fresh(tiny(model, attention)), {});
    return message_of<Error>([&] { convert(path("m"), to, "never"); });
  };
  EXPECT_EQ(refusal({}, {{"mechanism", "dcmha"}}, "llama"), "the layout llama holds the mechanism softmax, not dcmha");
  EXPECT_EQ(refusal({}, {{"window", 4}}, "llama"), "the layout llama cannot say attention.window = 4, only 0");
  EXPECT_NE(refusal({{"block", "parallel"}}, {}, "llama").find("cannot say block = \"parallel\""), std::string::npos);
  EXPECT_NE(refusal({}, {}, "gpt_neox").find("the layout gpt_neox cannot say"), std::string::npos);
  EXPECT_FALSE(fs::exists(path("never")));
}

TEST_F(Convert, FilesOfTheTokenizerComeAlong) {
  fs::copy(kModels + "llama_mha", path("m"));
  write_file_atomic(path("m") / "tokenizer.json", "{}");
  convert(path("m"), "motet", "ours");
  EXPECT_EQ(read_file(path("ours") / "tokenizer.json"), "{}");
  EXPECT_FALSE(fs::exists(path("ours") / "expected.safetensors"));
}

}  // namespace
}  // namespace motet
