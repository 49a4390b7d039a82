#include "motet/checkpoints/model_folder.h"

#include <gtest/gtest.h>

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/process.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/models/testing.h"
#include "motet/ops/other_device.h"

namespace motet {
namespace {

using namespace testing;

const Tensor kIds = at::arange(8, at::kLong).view({1, 8});

TEST(ModelFolder, RoundTripComputesTheSame) {
  for (const std::string& mechanism : mechanism_names()) {
    const TemporaryFolder folder;
    Model model = fresh(tiny({{"tie_embeddings", mechanism == "coca"}}, {{"mechanism", mechanism}}));
    save_model_folder(folder.path() / "m", *model, {{"tokenizer.json", "{}"}});
    EXPECT_TRUE(load_model_folder(folder.path() / "m")->forward(kIds).equal(model->forward(kIds))) << mechanism;
    EXPECT_EQ(read_json((folder.path() / "m/config.json").string())["model_type"],
              mechanism == "softmax" ? "llama" : "motet");
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "m/tokenizer.json"));
  }
}

// Whoever reads config.json as a LLaMA computes one: what such a reader would leave out makes the model ours.
TEST(ModelFolder, OnlyWhatALlamaComputesIsCalledOne) {
  using nlohmann::json;
  const auto type = [](const json& model, const json& attention) {
    return config_json(tiny(model, attention))["model_type"];
  };
  EXPECT_EQ(type({}, {}), "llama");
  EXPECT_EQ(type({}, {{"num_kv_heads", 2}, {"bias", true}}), "llama");
  for (const json& attention : std::vector<json>{{{"output_gate", true}},
                                                 {{"qk_norm", true}},
                                                 {{"window", 4}},
                                                 {{"window", 4}, {"layers", "last"}},
                                                 {{"head_norm", "plain"}},
                                                 {{"position_bias", "alibi"}},
                                                 {{"rope_pairing", "interleaved"}},
                                                 {{"rope_fraction", 0.5}},
                                                 {{"mechanism", "dcmha"}}})
    EXPECT_EQ(type({}, attention), "motet") << attention;
  for (const json& model : std::vector<json>{
           {{"block", "parallel"}}, {{"causal", false}}, {{"activation", "gelu"}}, {{"embedding_size", 6}}})
    EXPECT_EQ(type(model, {}), "motet") << model;
}

// The class of motet.huggingface that loads it.
TEST(ModelFolder, AnEncoderIsNoCausalModel) {
  const auto named = [](const nlohmann::json& model) {
    return config_json(tiny(model, {{"mechanism", "dcmha"}}))["architectures"][0];
  };
  EXPECT_EQ(named({}), "MotetForCausalLM");
  EXPECT_EQ(named({{"causal", false}}), "MotetForMaskedLM");
}

TEST(ModelFolder, WhatTransformersWritesBesideIsReadPast) {
  nlohmann::json written = config_json(tiny({{"causal", false}}));
  written.update({{"architectures", {"MotetForCausalLM"}},  // as encoders said once
                  {"model_type", "motet"},
                  {"transformers_version", "5.23.0"},
                  {"dtype", "bfloat16"},
                  {"use_cache", true},
                  {"pad_token_id", nullptr}});
  EXPECT_FALSE(config_from_json(written, "config.json").causal());
  EXPECT_EQ(config_json(config_from_json(written, "config.json")), config_json(tiny({{"causal", false}})));
  const auto message = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json wrong = written;
    wrong[key] = value;
    return message_of<Error>([&] { config_from_json(wrong, "config.json"); });
  };
  EXPECT_EQ(message("model_type", "bert"),
            "config.json: model_type is '\"bert\"', want '\"motet\"' as the rest of the file says");
  EXPECT_TRUE(message("hiden_size", 3).starts_with("config.json: unknown key 'hiden_size': nearest is 'hidden_size'"));
}

TEST(ModelFolder, AFactorisedEmbeddingComesBack) {
  const TemporaryFolder folder;
  Model model = fresh(tiny({{"embedding_size", 6}}));
  const Tensor ids = at::arange(8).view({1, 8});
  save_model_folder(folder.path() / "m", *model, {});
  Model again = load_model_folder(folder.path() / "m");
  EXPECT_EQ(again->config().options.embedding_size, 6);
  EXPECT_TRUE(at::equal(model->forward(ids), again->forward(ids)));
  // By hand: rows of the table by the projection.
  const auto parameters = model->named_parameters();
  const Tensor rows = parameters["model.embed_tokens.weight"].index_select(0, ids[0]);
  const Tensor wanted = at::matmul(rows, parameters["model.embed_projection.weight"].t());
  EXPECT_TRUE(at::allclose(model->embedded(ids, ModelImpl::positions(ids))[0], wanted, 1e-6, 1e-7));
  EXPECT_EQ(message_of<UsageError>([] { fresh(tiny({{"embedding_size", 6}, {"tie_embeddings", true}})); }),
            "model.embedding_size: 6 with tie_embeddings, want a model with an output matrix of its own, or model.head "
            "= masked");
}

TEST(ModelFolder, AModelOnAnotherDeviceIsWrittenAlike) {
  const TemporaryFolder folder;
  Model away(tiny(), other_device());
  away->initialize(1);
  save_model_folder(folder.path() / "here", *fresh(tiny()), {});
  save_model_folder(folder.path() / "there", *away, {});
  EXPECT_EQ(read_file(folder / "there/model.safetensors"), read_file(folder / "here/model.safetensors"));
}

TEST(ModelFolder, IdsOfTokensStandInTheConfig) {
  const TemporaryFolder folder;
  const nlohmann::json ids{{"bos_token_id", 3}, {"eos_token_id", {4, 5}}, {"pad_token_id", 0}};
  save_model_folder(folder.path() / "m", *fresh(tiny()), {}, ids);
  const nlohmann::json config = read_json((folder.path() / "m/config.json").string());
  for (const auto& [key, id] : ids.items()) EXPECT_EQ(config[key], id);
  EXPECT_NO_THROW(load_model_folder(folder.path() / "m"));
}

// Autocast and float64 are recorded; the numbers are the very same.
TEST(ModelFolder, WhatARunComputedInComesBack) {
  for (const std::string dtype : {"float32", "float64", "bfloat16"}) {
    const TemporaryFolder folder;
    Model model = fresh(tiny({}, {{"mechanism", "dcmha"}}));
    if (dtype == "float64") model->to(at::kDouble);
    {
      const at::NoGradGuard no_grad;
      for (Tensor p : model->parameters()) p.mul_(1.0 / 3);  // no number of float32
    }
    if (dtype == "bfloat16") model->set_autocast(at::kBFloat16);
    save_model_folder(folder.path() / "m", *model, {});
    const Checkpoint stored = open_checkpoint(folder.path() / "m");
    EXPECT_EQ(trained_dtype(stored), dtype);
    EXPECT_EQ(stored.config.autocast.has_value(), dtype == "bfloat16");
    Model back = load_model(stored, {dtype == "float64" ? at::kDouble : at::kFloat});
    for (const auto& item : model->named_parameters())
      EXPECT_TRUE(item.value().equal(back->named_parameters()[item.key()])) << dtype << " " << item.key();
    EXPECT_TRUE(back->forward(kIds).equal(model->forward(kIds))) << dtype;
  }
}

class BrokenFolder : public ::testing::Test {
 protected:
  BrokenFolder() { save_model_folder(path(), *fresh(tiny()), {}); }
  std::filesystem::path path() const { return folder_.path() / "m"; }
  void change_config(const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json j = read_json((path() / "config.json").string());
    change(j);
    write_file_atomic(path() / "config.json", j.dump());
  }
  std::string message() {
    return message_of<Error>([&] { load_model_folder(path()); });
  }
  TemporaryFolder folder_;
};

TEST_F(BrokenFolder, TruncatedTensorsAreNamed) {
  const std::string bytes = read_file(path() / "model.safetensors");
  write_file_atomic(path() / "model.safetensors", std::string_view(bytes).substr(0, bytes.size() - 5));
  EXPECT_NE(message().find("model.safetensors"), std::string::npos) << message();
}

TEST_F(BrokenFolder, MissingTensorIsNamed) {
  change_config([](auto& j) { j["num_hidden_layers"] = 3; });
  EXPECT_NE(message().find("tensor model.layers.2."), std::string::npos) << message();
  EXPECT_NE(message().find("is missing"), std::string::npos);
}

TEST_F(BrokenFolder, TensorTooManyIsNamed) {
  change_config([](auto& j) { j["num_hidden_layers"] = 1; });
  EXPECT_NE(message().find("belongs to no part of the model"), std::string::npos) << message();
}

TEST_F(BrokenFolder, OtherShapeIsNamed) {
  change_config([](auto& j) { j["vocab_size"] = 12; });
  EXPECT_NE(message().find("has shape [11, 16], want [12, 16]"), std::string::npos) << message();
}

TEST_F(BrokenFolder, WrongKeysOfTheConfigAreNamed) {
  change_config([](auto& j) { j.erase("hidden_size"); });
  EXPECT_NE(message().find("the key hidden_size is missing"), std::string::npos) << message();
  change_config([](auto& j) { j["hidden_size"] = -4; });
  EXPECT_NE(message().find("hidden_size: -4 is below 1"), std::string::npos) << message();
}

TEST_F(BrokenFolder, KeysThatAreUnknownOrDisagreeAreNamed) {
  const std::string good = read_file(path() / "config.json");
  const auto says = [&](const char* key, const nlohmann::json& value, const std::string& wanted) {
    change_config([&](auto& j) { j[key] = value; });
    EXPECT_NE(message().find("config.json: " + wanted), std::string::npos) << message();
    write_file_atomic(path() / "config.json", good);
  };
  says("num_attention_heads", 7, "num_attention_heads is '7', want '4' as the rest of the file says");
  says("rope_theta", 5.0, "rope_theta is '5.0', want '10000.0'");
  says("model_type", "gpt2", "model_type is '\"gpt2\"', want '\"llama\"'");
  says("hidden_act", "relu", "hidden_act is 'relu', want silu, swish");
  says("hidden_size", "16", "hidden_size is '\"16\"', want '16'");
  says("head_dim", 5, "head_dim is '5', want '4'");
  says("foo", 1, "unknown key 'foo'");
  change_config([](auto& j) { j["attention_options"]["rope_base"] = "10000"; });
  EXPECT_NE(message().find("attention_options.rope_base is '\"10000\"', want '10000.0'"), std::string::npos)
      << message();
  write_file_atomic(path() / "config.json", good);
  change_config([](auto& j) { j["torch_dtype"] = "bfloat16", j.erase("num_key_value_heads"); });
  EXPECT_NO_THROW(load_model_folder(path()));
}

TEST_F(BrokenFolder, SizesAreComparedBeforeMemoryIsTaken) {
  const int64_t before = resident_bytes();
  change_config([](auto& j) { j["vocab_size"] = 100000000; });
  EXPECT_NE(message().find("has shape [11, 16], want [100000000, 16]"), std::string::npos) << message();
  change_config([](auto& j) { j["vocab_size"] = 11, j["num_hidden_layers"] = 1024, j["intermediate_size"] = 1000000; });
  EXPECT_NE(message().find("mlp.down_proj.weight has shape [16, 43], want [16, 1000000]"), std::string::npos)
      << message();
  EXPECT_LT(resident_bytes() - before, 64 << 20);
}

TEST(ModelFolder, MissingFolderIsNamed) {
  EXPECT_EQ(message_of<Error>([] { load_model_folder("no/such"); }), "no/such: no such model folder");
}

}  // namespace
}  // namespace motet
