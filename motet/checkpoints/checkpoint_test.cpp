#include "motet/checkpoints/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <random>
#include <sstream>

#include "motet/checkpoints/convert.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/process.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::message_of;
using testing::TemporaryFolder;

const std::string kModels = "tests/golden/model/";

TEST(Rows, GivenIsTheReverseOfTaken) {
  const Tensor t = at::arange(2 * 6 * 4 * 5).view({48, 5});
  for (const Order order : {Order::same, Order::blocks, Order::per_head, Order::halves, Order::interleaved}) {
    const bool several = order == Order::blocks || order == Order::per_head;
    const Row row{"s", several ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{"a"}, order, 6};
    EXPECT_TRUE(row.given(row.taken(t)).equal(t)) << static_cast<int>(order);
  }
  const Tensor heads = at::arange(6);
  EXPECT_TRUE((Row{"s", {"a"}, Order::halves, 6}.taken(heads)[0].equal(at::tensor({0, 3, 1, 4, 2, 5}))));
  EXPECT_TRUE((Row{"s", {"a"}, Order::interleaved, 1}.taken(heads)[0].equal(at::tensor({0, 2, 4, 1, 3, 5}))));
  EXPECT_TRUE((Row{"s", {"a", "b", "c"}, Order::per_head, 2}.taken(heads)[1].equal(at::tensor({1, 4}))));
}

class PublishedFolder : public ::testing::Test {
 protected:
  void copy(const std::string& name) {
    fs::remove_all(path());
    fs::copy(kModels + name, path());
  }
  fs::path path() const { return folder_.path() / "m"; }
  json config() const { return read_json((path() / "config.json").string()); }
  void change(const std::function<void(json&)>& change) {
    json j = config();
    change(j);
    write_file_atomic(path() / "config.json", j.dump());
  }
  std::string refusal(const std::string& mechanism = "") {
    const std::string message = message_of<Error>([&] { load_model(open_checkpoint(path(), mechanism)); });
    EXPECT_EQ(message.find(folder_.path().string()), 0u) << message;
    const fs::path never = folder_.path() / "never";
    EXPECT_EQ(
        message_of<Error>([&] { convert_checkpoint(open_checkpoint(path(), mechanism), find_layout("motet"), never); }),
        message);
    EXPECT_FALSE(fs::exists(never));
    return message;
  }
  std::string refusal(const char* key, const json& value) {
    const std::string before = read_file(path() / "config.json");
    change([&](json& j) { j[key] = value; });
    const std::string message = refusal();
    write_file_atomic(path() / "config.json", before);
    return message;
  }
  // The tensors of the folder, changed.
  void rewrite(const std::function<void(std::vector<TensorView>&)>& change) {
    const SafetensorsFile file((path() / "model.safetensors").string());
    std::vector<TensorView> views = file.tensors();
    change(views);
    write_safetensors((path() / "model.safetensors").string(), views, {});
  }
  TemporaryFolder folder_;
};

TEST_F(PublishedFolder, FamiliesAreToldByTheConfig) {
  const std::map<std::string, std::string> layouts{
      {"coca_llama", "coca_llama"}, {"coca_neox", "coca_neox"}, {"dcformer", "dcformer"},      {"dcpythia", "dcpythia"},
      {"gpt_neox", "gpt_neox"},     {"llama_mha", "llama"},     {"diffllama_mha", "diffllama"}};
  for (const auto& [folder, layout] : layouts) EXPECT_EQ(open_checkpoint(kModels + folder).layout->name, layout);
}

TEST_F(PublishedFolder, CocaIsNeverTakenSilently) {
  copy("coca_llama");
  change([](json& j) { j.erase("mechanism"), j.erase("form"); });
  EXPECT_NE(refusal().find("k_proj.weight is missing; t_proj is CoCA's: say so with --mechanism coca"),
            std::string::npos);
  EXPECT_EQ(open_checkpoint(path(), "coca").config.attention.at("form"), "slack");
  change([](json& j) { j["mechanism"] = "coca"; });
  EXPECT_NE(refusal().find("the key form is missing"), std::string::npos);
  copy("coca_neox");
  change([](json& j) { j.erase("mechanism"), j.erase("form"); });
  EXPECT_EQ(open_checkpoint(path()).layout->name, "gpt_neox");  // the same names: only the user can know
  EXPECT_EQ(open_checkpoint(path(), "coca").layout->name, "coca_neox");
  copy("llama_mha");
  EXPECT_NE(refusal("dcmha").find("mechanism is 'softmax', not 'dcmha'"), std::string::npos);
  change([](json& j) { j.erase("mechanism"); });
  EXPECT_NE(refusal("coca").find("t_proj.weight is missing"), std::string::npos);
}

TEST_F(PublishedFolder, WrongKeysAreNamed) {
  copy("llama_mha");
  EXPECT_NE(refusal("model_type", "lama").find("unknown model_type 'lama': nearest is 'llama'"), std::string::npos);
  EXPECT_NE(refusal("model_type", nullptr).find("the key model_type is missing"), std::string::npos);
  EXPECT_NE(refusal("hidden_act", "relu").find("hidden_act is 'relu', want silu"), std::string::npos);
  EXPECT_NE(refusal("mlp_bias", true).find("mlp_bias is 'true', want 'false'"), std::string::npos);
  EXPECT_NE(refusal("attention_dropout", 0.1).find("attention_dropout is '0.1', want '0.0'"), std::string::npos);
  EXPECT_NE(refusal("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2}}).find("rope_scaling.rope_type is 'yarn'"),
            std::string::npos);
  EXPECT_NE(refusal("rope_scaling", {{"type", "linear"}}).find("rope_scaling.factor is missing"), std::string::npos);
  EXPECT_NE(
      refusal("rope_parameters", {{"rope_theta", 5.0}}).find("rope_theta is 10000 and rope_parameters.rope_theta"),
      std::string::npos);
  EXPECT_NE(refusal("quantization_config", {{"bits", 4}}).find("quantization_config is"), std::string::npos);
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
                          "max_position_embeddings", "num_key_value_heads"})
    for (const json& value : std::vector<json>{0, -1, 1e18, "8", json::array(), true, 2.5, UINT64_MAX})
      EXPECT_NE(refusal(key, value).find(key), std::string::npos) << key << " " << value;
  copy("dcpythia");
  EXPECT_NE(refusal("query_wise", true).find("query_wise is 'true', want 'false'"), std::string::npos);
  EXPECT_NE(refusal("window_type", "LGX").find("want null, LG, LGLL or LGL6"), std::string::npos);
  EXPECT_NE(refusal("n_head", 3).find("want a divisor of dim 64"), std::string::npos);
}

// What transformers' LlamaConfig, DiffLlamaConfig and GPTNeoXConfig assume of keys that are absent.
TEST(PublishedConfig, AbsentKeysMeanWhatTransformersAssumes) {
  const auto read = [](const char* type, const json& more) {
    json given{{"model_type", type},       {"hidden_size", 48},        {"num_hidden_layers", 2},
               {"num_attention_heads", 6}, {"intermediate_size", 128}, {"vocab_size", 384}};
    given.update(more);
    return read_config(layout_of(given, "c", ""), given, "c");
  };
  for (const auto& [type, eps] : {std::pair("llama", 1e-6), {"diffllama", 1e-5}}) {
    const ModelConfig c = read(type, json::object());
    EXPECT_EQ(c.options.norm_eps, eps) << type;
    EXPECT_FALSE(c.options.tie_embeddings);
    EXPECT_EQ(c.activation(), Activation::silu);
    EXPECT_EQ(c.options.block, BlockKind::sequential);
    EXPECT_EQ(c.context, 2048);
    EXPECT_EQ(kv_heads(c), 6);
    EXPECT_EQ(head_width(c), 8);
    EXPECT_EQ(c.attention.at("bias"), false);
    EXPECT_EQ(c.attention.at("rope_base"), 10000.0);
    EXPECT_EQ(c.attention.at("rope_fraction"), 1.0);
    EXPECT_EQ(c.attention.at("rope_scaling"), "none");
  }
  EXPECT_EQ(read("diffllama", json::object()).attention.at("head_norm_eps"), 1e-5);
  EXPECT_EQ(read("diffllama", {{"rms_norm_eps", 1e-3}}).attention.at("head_norm_eps"), 1e-3);
  const ModelConfig neox = read("gpt_neox", json::object());
  EXPECT_EQ(neox.options.norm_eps, 1e-5);
  EXPECT_EQ(neox.options.block, BlockKind::parallel);
  EXPECT_EQ(read("gpt_neox", {{"use_parallel_residual", false}}).options.block, BlockKind::sequential_layer_norm);
  EXPECT_EQ(neox.activation(), Activation::gelu);
  EXPECT_FALSE(neox.options.tie_embeddings);
  EXPECT_EQ(neox.attention.at("bias"), true);
  EXPECT_EQ(neox.attention.at("rope_fraction"), 0.25);
  EXPECT_EQ(neox.attention.at("rope_base"), 10000.0);
  EXPECT_EQ(neox.context, 2048);
}

// transformers 5 reads rope_theta within rope_scaling; its LLaMA takes a fraction and rotates whole heads all the same.
TEST(PublishedConfig, RotaryKeysAreReadWhereverTheyStand) {
  const auto read = [](const char* type, const json& more) {
    json given{{"model_type", type},       {"hidden_size", 48},        {"num_hidden_layers", 2},
               {"num_attention_heads", 6}, {"intermediate_size", 128}, {"vocab_size", 384}};
    given.update(more);
    return read_config(layout_of(given, "c", ""), given, "c").attention;
  };
  const auto refused = [&](const char* type, const json& more) { return message_of<Error>([&] { read(type, more); }); };
  const json theta{{"rope_type", "default"}, {"rope_theta", 5e5}}, half{{"partial_rotary_factor", 0.5}};
  for (const char* type : {"llama", "gpt_neox"}) {
    EXPECT_EQ(read(type, {{"rope_scaling", theta}}).at("rope_base"), 5e5) << type;
    EXPECT_EQ(read(type, {{"rope_scaling", theta}, {"rope_parameters", theta}}).at("rope_base"), 5e5) << type;
  }
  EXPECT_EQ(read("llama", {{"rope_scaling", theta}, {"rope_theta", 5e5}}).at("rope_base"), 5e5);
  EXPECT_EQ(refused("llama", {{"rope_scaling", theta}, {"rope_theta", 1e4}}),
            "c: rope_theta is 10000 and rope_scaling.rope_theta is 500000, want one of them");
  EXPECT_EQ(read("gpt_neox", {{"rope_scaling", half}}).at("rope_fraction"), 0.5);
  EXPECT_EQ(read("llama", {{"partial_rotary_factor", 1}}).at("rope_fraction"), 1.0);
  for (const char* type : {"llama", "diffllama"}) {
    EXPECT_EQ(refused(type, half),
              "c: partial_rotary_factor is '0.5', want 1, for the code of this model rotates whole heads");
    for (const std::string place : {"rope_scaling", "rope_parameters"})
      EXPECT_EQ(refused(type, {{place, half}}), "c: " + place +
                                                    ".partial_rotary_factor is '0.5', want 1, for the code " +
                                                    "of this model rotates whole heads");
  }
}

// The code of published models rotates 10 of 36 dimensions by 0.25, with exponents over 9.
TEST(PublishedConfig, ARotaryFractionOfOddWidthIsRefusedBothWays) {
  const json wide{{"model_type", "gpt_neox"}, {"hidden_size", 144},       {"num_hidden_layers", 2},
                  {"num_attention_heads", 4}, {"intermediate_size", 128}, {"vocab_size", 384}};
  EXPECT_EQ(message_of<Error>([&] { read_config(layout_of(wide, "c", ""), wide, "c"); }),
            "c: a rotary fraction of 0.25 gives 9 of a head's 36 dimensions, want an even number");
  json even = wide;
  even["hidden_size"] = 128;
  ModelConfig made = read_config(layout_of(even, "c", ""), even, "c");
  made.attention["rope_fraction"] = 0.16;  // 5 of 32
  EXPECT_EQ(
      message_of<Error>([&] { write_config(find_layout("gpt_neox"), made); }),
      "attention.rope_fraction: a rotary fraction of 0.16 gives 5 of a head's 32 dimensions, want an even number");
}

TEST(PublishedConfig, WordsOfActivationsAreTransformersOwn) {
  const auto read = [](const char* word) {
    json given{{"model_type", "llama"},    {"hidden_size", 48},        {"num_hidden_layers", 2}, {"hidden_act", word},
               {"num_attention_heads", 6}, {"intermediate_size", 128}, {"vocab_size", 384}};
    const ModelConfig c = read_config(find_layout("llama"), given, "c");
    const json options = model_options().write({.activation = c.activation()});
    return options["activation"].get<std::string>() + " " +
           write_config(find_layout("llama"), c)["hidden_act"].get<std::string>();
  };
  for (const char* word : {"silu", "swish"}) EXPECT_EQ(read(word), "silu silu");
  for (const char* word : {"gelu", "gelu_python"}) EXPECT_EQ(read(word), "gelu gelu");
  for (const char* word : {"gelu_new", "gelu_fast", "gelu_pytorch_tanh"})
    EXPECT_EQ(read(word), "gelu_tanh gelu_pytorch_tanh");
}

TEST(PublishedConfig, ScaledContextsAreLongerAndComeBack) {
  const auto read = [](const json& scaling) {
    json given{{"model_type", "llama"},    {"hidden_size", 48},
               {"num_hidden_layers", 2},   {"rope_scaling", scaling},
               {"num_attention_heads", 6}, {"intermediate_size", 128},
               {"vocab_size", 384},        {"max_position_embeddings", 100}};
    const ModelConfig c = read_config(find_layout("llama"), given, "c");
    if (scaling.value("rope_type", "") == "ntk") return c;
    const json back = write_config(find_layout("llama"), c);
    EXPECT_EQ(back["max_position_embeddings"], 100) << scaling;
    EXPECT_EQ(back["rope_scaling"]["rope_type"], scaling.value("rope_type", scaling.value("type", ""))) << scaling;
    EXPECT_EQ(back["rope_scaling"]["factor"], scaling["factor"]);
    return c;
  };
  EXPECT_EQ(read({{"type", "linear"}, {"factor", 2.5}}).context, 250);
  const ModelConfig ntk = read({{"rope_type", "ntk"}, {"factor", 3.0}});
  EXPECT_EQ(ntk.context, 300);
  for (const char* layout : {"llama", "gpt_neox"})
    EXPECT_EQ(message_of<Error>([&] { find_layout(layout).write(ntk); }),
              "attention.rope_scaling is ntk, which the code of published models does not know, want none, linear, "
              "dynamic or llama3");
  const ModelConfig dynamic = read({{"rope_type", "dynamic"}, {"factor", 4.0}});
  EXPECT_EQ(dynamic.context, 400);
  EXPECT_EQ(dynamic.attention.at("rope_trained_length"), 100);
  const ModelConfig llama3 = read({{"rope_type", "llama3"},
                                   {"factor", 8.0},
                                   {"low_freq_factor", 1.5},
                                   {"high_freq_factor", 6.0},
                                   {"original_max_position_embeddings", 32}});
  EXPECT_EQ(llama3.context, 100);
  EXPECT_EQ(llama3.attention.at("rope_trained_length"), 32);
  EXPECT_EQ(llama3.attention.at("rope_low_freq_factor"), 1.5);
  EXPECT_EQ(llama3.attention.at("rope_high_freq_factor"), 6.0);
}

TEST_F(PublishedFolder, KeysThatNobodyKnowsGetAWarning) {
  copy("llama_mha");
  change([](json& j) { j["new_trick"] = 3, j["other"] = nullptr, j["off"] = false; });
  ::testing::internal::CaptureStderr();
  open_checkpoint(path());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "motet: warning: " + (path() / "config.json").string() +
                ": the key 'new_trick' is not known and has no effect here\n");
}

TEST_F(PublishedFolder, ATiedOutputMayBeStoredTwice) {
  copy("llama_mha");
  change([](json& j) { j["tie_word_embeddings"] = true; });
  std::vector<std::byte> kept;
  rewrite([&](auto& views) {
    for (const TensorView& v : views)
      if (v.name == "model.embed_tokens.weight") kept.assign(v.bytes.begin(), v.bytes.end());
    for (TensorView& v : views)
      if (v.name == "lm_head.weight") v.bytes = kept;
  });
  EXPECT_EQ(open_checkpoint(path()).ignored, std::vector<std::string>{"lm_head.weight"});
}

TEST(Tensors, NumbersThatAreNotFiniteAreCountedInEveryType) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kFloat8_e5m2}) {
    const Tensor t = at::tensor({1.0f, -2.0f, INFINITY, -INFINITY, NAN, 0.0f}).to(type).view({2, 3});
    EXPECT_EQ(count_non_finite(t), 3) << type;
    EXPECT_EQ(count_non_finite(t.slice(0, 0, 1)), 1) << type;
  }
  EXPECT_EQ(count_non_finite(at::tensor({1, 2})), 0);
}

TEST_F(PublishedFolder, ModelsAreRegularFiles) {
  copy("llama_mha");
  fs::remove(path() / "model.safetensors");
  ASSERT_EQ(::mkfifo((path() / "model.safetensors").c_str(), 0600), 0);  // nobody writes: opening would wait for ever
  EXPECT_EQ(message_of<Error>([&] { open_checkpoint(path()); }),
            "cannot read '" + (path() / "model.safetensors").string() + "': no regular file, want one");
  ASSERT_EQ(::mkfifo((folder_ / "m.gguf").c_str(), 0600), 0);
  for (const std::string& device : {folder_ / "m.gguf", std::string("/dev/zero")})
    EXPECT_EQ(message_of<Error>([&] { open_checkpoint(device); }), device + ": is no regular file, want one");
}

TEST_F(PublishedFolder, TensorsMissingTooManyAndOfOtherShapesAreNamed) {
  copy("gpt_neox");
  rewrite([](auto& views) { views.push_back({"gpt_neox.extra", "U8", {0}, {}}); });
  EXPECT_NE(refusal().find("tensor gpt_neox.extra belongs to no part of the model"), std::string::npos);
  copy("gpt_neox");
  rewrite([](auto& views) {
    std::erase_if(views, [](const TensorView& v) { return v.name.ends_with("1.attention.query_key_value.bias"); });
  });
  EXPECT_NE(refusal().find("layers.1.attention.query_key_value.bias is missing"), std::string::npos);
  copy("gpt_neox");
  rewrite([](auto& views) {
    for (TensorView& v : views)
      if (v.name.ends_with("0.attention.query_key_value.weight")) v.shape = {72, 96};
  });
  EXPECT_NE(refusal().find("query_key_value.weight has shape [72, 96], want [144, 48]"), std::string::npos);
  copy("llama_mha");
  rewrite([](auto& views) {
    for (TensorView& v : views)
      if (v.name == "model.norm.weight") v.dtype = "I32";
  });
  EXPECT_NE(refusal().find("model.norm.weight has dtype I32, want F32, F64, BF16 or F16"), std::string::npos);
  copy("llama_mha");
  change([](json& j) { j["tie_word_embeddings"] = true; });
  EXPECT_NE(refusal().find("lm_head.weight differs from the embedding"), std::string::npos);
  copy("dcformer");
  std::vector<float> map(16, 0.5F);
  rewrite([&](auto& views) {
    for (TensorView& v : views)
      if (v.name == "layers.0.attention.dyn_w_proj.pre_proj.w") v.bytes = std::as_bytes(std::span(map));
  });
  EXPECT_NE(refusal().find("pre_proj.w is no identity"), std::string::npos);
}

TEST_F(PublishedFolder, APickleGetsAdvice) {
  copy("llama_mha");
  fs::rename(path() / "model.safetensors", path() / "pytorch_model.bin");
  try {
    open_checkpoint(path());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("torch.load("), std::string::npos);
  }
}

TEST_F(PublishedFolder, ShardsAreReadLikeOneFile) {
  copy("llama_mha");
  const at::Tensor ids = at::arange(8).view({1, 8});
  const at::Tensor whole = load_model(open_checkpoint(path()))->forward(ids);
  {
    const SafetensorsFile file((path() / "model.safetensors").string());
    std::vector<TensorView> parts[2];
    json map;
    for (size_t i = 0; i < file.tensors().size(); ++i) {
      parts[i % 2].push_back(file.tensors()[i]);
      map[file.tensors()[i].name] = text("part", i % 2, ".safetensors");
    }
    for (int i : {0, 1}) write_safetensors((path() / text("part", i, ".safetensors")).string(), parts[i], {});
    write_file_atomic(path() / "model.safetensors.index.json", json{{"weight_map", map}}.dump());
  }
  EXPECT_NE(refusal().find("want one of them"), std::string::npos);
  fs::remove(path() / "model.safetensors");
  EXPECT_TRUE(load_model(open_checkpoint(path()))->forward(ids).equal(whole));
}

// Any value in any place: a model or one line, in little memory.
TEST_F(PublishedFolder, RandomConfigsGiveAModelOrOneLine) {
  const std::vector<json> values{nullptr,
                                 true,
                                 -1,
                                 0,
                                 1,
                                 3,
                                 1e300,
                                 -0.5,
                                 1 << 20,
                                 "x",
                                 "",
                                 2.5,
                                 INT64_MAX,
                                 UINT64_MAX,
                                 json::array({1}),
                                 json::object(),
                                 7,
                                 "dynamic",
                                 64,
                                 1024,
                                 {{"type", "dynamic"}, {"factor", 1e6}}};
  std::mt19937_64 random(3);
  const int64_t before = resident_bytes();
  for (const char* name : {"llama_mha", "gpt_neox", "dcpythia", "dcformer", "diffllama_mha", "coca_neox"}) {
    copy(name);
    const json good = config();
    std::vector<std::string> keys{"rope_scaling", "rope_parameters", "head_dim"};
    for (const auto& item : good.items()) keys.push_back(item.key());
    for (int i = 0; i < 150; ++i) {
      json changed = good;
      for (int n = 0; n < 1 + i % 2; ++n) changed[keys[random() % keys.size()]] = values[random() % values.size()];
      write_file_atomic(path() / "config.json", changed.dump());
      try {
        load_model(open_checkpoint(path()));
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_LT(resident_bytes() - before, 100 << 20);
}

// Bytes of a mapped file that this process has touched.
int64_t touched_bytes(const std::string& path) {
  std::istringstream maps(read_file("/proc/self/smaps"));
  int64_t kilobytes = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos || line.find('-') < colon) inside = line.ends_with(path);  // a new mapping begins
    if (inside && line.starts_with("Rss:")) kilobytes += std::stoll(line.substr(4));
  }
  return kilobytes << 10;
}

TEST_F(PublishedFolder, TensorsThatAreNotUsedAreNotTouched) {
  constexpr size_t kUnused = 32 << 20;
  const std::string unused = "gpt_neox.layers.9.attention.masked_bias";
  copy("gpt_neox");
  const std::vector<std::byte> mask(kUnused);
  rewrite([&](auto& views) { views.push_back({unused, "U8", {static_cast<int64_t>(kUnused)}, mask}); });
  const std::string file = (path() / "model.safetensors").string();
  const Checkpoint checkpoint = open_checkpoint(path());
  load_model(checkpoint);
  EXPECT_GT(touched_bytes(file), 0);
  EXPECT_LT(touched_bytes(file), static_cast<int64_t>(kUnused / 4));
  checkpoint.tensors.all.at(unused).load().sum();
  EXPECT_GE(touched_bytes(file), static_cast<int64_t>(kUnused));
}

// Every size that a config may ask for, at its largest, alone and all together: one line, before memory is taken.
TEST_F(PublishedFolder, LargestAttentionOptionsAreRefusedInLittleMemory) {
  for (const MechanismEntry& entry : mechanism_registry()) {
    const json softmax{{"mechanism", entry.name}, {"num_heads", 4}};
    ModelConfig small{model_options().parse({{"hidden_size", 16}, {"num_layers", 1}}, ""),
                      resolve_attention(softmax, "attention"), 20, 8};
    Model model(small);
    save_model_folder(path(), *model, {});
    const Checkpoint good = open_checkpoint(path());
    load_model(good);
    Checkpoint all = good;
    if (!reset_peak_resident()) GTEST_SKIP() << "the kernel does not reset the peak";
    const int64_t before = peak_resident_bytes();
    for (const Option& option : attention_options(entry)) {
      if (option.type != OptionType::integer || option.max > 4096) continue;
      Checkpoint large = good;
      large.config.attention[option.name] = all.config.attention[option.name] = static_cast<int64_t>(option.max);
      if (!has_effect(option, large.config.attention))
        large.config.attention[option.where.option] = option.where.values[0];
      try {
        load_model(large);
        ADD_FAILURE() << entry.name << " " << option.name;
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      }
    }
    all.config.attention["static"] = true;
    message_of<Error>([&] { load_model(all); });
    EXPECT_LT(peak_resident_bytes() - before, 20 << 20) << entry.name;
  }
}

std::string decoded_story(const std::string& vocabulary, const std::vector<int64_t>& ids) {
  std::vector<std::string> pieces;
  for (size_t at = 4; at < vocabulary.size();) {
    int32_t size;
    std::memcpy(&size, vocabulary.data() + at + 4, 4);
    pieces.push_back(vocabulary.substr(at + 8, static_cast<size_t>(size)));
    at += 8 + static_cast<size_t>(size);
  }
  std::string out;
  int64_t before = 1;
  for (const int64_t id : ids) {
    std::string piece = pieces[static_cast<size_t>(id)];
    if (before == 1 && piece[0] == ' ') piece.erase(0, 1);
    if (piece.starts_with("<0x")) piece = std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
    out += piece;
    before = id;
  }
  return out;
}

TEST(SingleFiles, Stories260KTellsItsStory) {
  const std::string folder = "../shared/data/model/";
  if (!fs::exists(folder + "stories260K.bin")) GTEST_SKIP() << folder << "stories260K.bin is not here";
  at::NoGradGuard no_grad;
  Model model = load_model(open_checkpoint(folder + "stories260K.bin"));
  const std::string wanted = read_file(folder + "stories260K.greedy256.expected.txt"),
                    vocabulary = read_file(folder + "tok512.bin");
  std::vector<int64_t> ids{1};
  while (ids.size() < 256) {
    const at::Tensor last = model->forward(at::tensor(ids).unsqueeze(0))[0][-1];
    ids.push_back(last.argmax().item<int64_t>());
    if (ids.back() == 1) break;
  }
  const std::string story = decoded_story(vocabulary, {ids.begin() + 1, ids.end()});
  EXPECT_GT(story.size(), 400u);
  EXPECT_EQ(story.substr(0, std::min(story.size(), wanted.size())),
            wanted.substr(0, std::min(story.size(), wanted.size())));
  EXPECT_LE(wanted.size(), story.size() + 2);
}

}  // namespace
}  // namespace motet
