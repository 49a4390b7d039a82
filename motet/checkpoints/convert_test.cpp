#include "motet/checkpoints/convert.h"

#include <gtest/gtest.h>

#include <csignal>

#include "motet/checkpoints/model_folder.h"
#include "motet/checkpoints/retrofit.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/interrupt.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors.h"
#include "motet/formats/safetensors_testing.h"
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
  return load_model(open_checkpoint(folder), {at::kDouble})->forward(at::arange(3, 27).view({2, 12}));
}

double difference(const Tensor& a, const Tensor& b) { return ((a - b).abs().max() / b.abs().max()).item<double>(); }

class Convert : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  void convert(const fs::path& from, const std::string& to, const std::string& name,
               const ConvertOptions& options = {}) {
    convert_checkpoint(open_checkpoint(from), find_layout(to), path(name), options);
  }
  // A LLaMA whose tied output matrix is stored too.
  fs::path stored_twice() const {
    const fs::path from = kModels + "llama_mha", to = path("stored_twice");
    fs::create_directory(to);
    nlohmann::json config = read_json((from / "config.json").string());
    config["tie_word_embeddings"] = true;
    write_file_atomic(to / "config.json", config.dump(4));
    const Tensors own = safetensors_tensors((from / "model.safetensors").string());
    std::vector<NamedTensor> tensors;
    for (const auto& [name, stored] : own.all)
      tensors.emplace_back(name,
                           name == "lm_head.weight" ? own.all.at("model.embed_tokens.weight").load() : stored.load());
    write_tensors(to / "model.safetensors", tensors);
    return to;
  }
  // A LLaMA whose config.json has a scaling that we read and do not write.
  fs::path stretched() const {
    const fs::path from = kModels + "llama_mha", to = path("stretched");
    fs::create_directory(to);
    nlohmann::json config = read_json((from / "config.json").string());
    config["rope_scaling"] = {{"rope_type", "ntk"}, {"factor", 2.0}};
    write_file_atomic(to / "config.json", config.dump(4));
    fs::copy_file(from / "model.safetensors", to / "model.safetensors");
    return to;
  }
  TemporaryFolder folder_;
};

TEST_F(Convert, ThroughOursAndBackGivesTheSameConfigAndTensors) {
  std::vector<fs::path> sources{stored_twice(), stretched()};
  for (const std::string& name : recorded_models()) sources.push_back(kModels + name);
  for (const fs::path& source : sources) {
    const std::string name = source.filename().string();
    convert(source, "motet", name + "_ours");
    convert(path(name + "_ours"), open_checkpoint(source).layout->name, name + "_back");
    EXPECT_EQ(read_file(source / "config.json"), read_file(path(name + "_back") / "config.json")) << name;
    EXPECT_TRUE(without_padding(source / "model.safetensors") ==
                without_padding(path(name + "_back") / "model.safetensors"))
        << name;
    EXPECT_TRUE(logits(path(name + "_ours")).equal(logits(source))) << name;
  }
}

TEST_F(Convert, ATiedOutputThatIsStoredTwiceFollowsTheEmbedding) {
  const fs::path source = stored_twice();
  convert(source, "motet", "ours");
  convert(source, "motet", "half", {.dtype = at::kHalf});
  convert(source, "motet", "small", {.weights = WeightType::int8});
  for (const auto& [ours, dtype] :
       {std::pair<std::string, const char*>("ours", "float32"), {"half", "float16"}, {"small", "float32"}}) {
    convert(path(ours), "llama", ours + "_back");
    convert(path(ours), "llama", ours + "_brain", {.dtype = at::kBFloat16});
    for (const auto& [folder, word] : {std::pair(ours + "_back", dtype), {ours + "_brain", "bfloat16"}}) {
      const Checkpoint back = open_checkpoint(path(folder));  // refuses an output that differs from the embedding
      EXPECT_EQ(back.ignored, std::vector<std::string>{"lm_head.weight"}) << folder;
      EXPECT_EQ(back.published["torch_dtype"], word) << folder;
      EXPECT_EQ(back.tensors.all.at("lm_head.weight").dtype,
                back.tensors.all.at("model.layers.0.mlp.up_proj.weight").dtype)
          << folder;
    }
    for (const auto& [name, stored] : open_checkpoint(path(ours + "_brain")).tensors.all)
      EXPECT_EQ(stored.stored_as, "BF16") << name;
  }
}

TEST_F(Convert, TensorsThatDoNotFitTheConfigAreRefused) {
  struct Case {
    const char* key;
    int more;
    const char* message;
  };
  save_model_folder(path("ours"), *fresh(tiny()), {});
  fs::copy(kModels + "llama_mha", path("published"));
  for (const char* folder : {"ours", "published"}) {
    const nlohmann::json good = read_json((path(folder) / "config.json").string());
    for (const Case& wrong : {Case{"vocab_size", 10, "tensor model.embed_tokens.weight has shape ["},
                              Case{"num_hidden_layers", 1, "is missing"},
                              Case{"num_hidden_layers", -1, "belongs to no part of the model"}}) {
      nlohmann::json config = good;
      config[wrong.key] = good[wrong.key].get<int>() + wrong.more;
      write_file_atomic(path(folder) / "config.json", config.dump());
      for (const char* to : {"motet", "llama"})
        EXPECT_NE(message_of<Error>([&] { convert(path(folder), to, "never"); }).find(wrong.message), std::string::npos)
            << folder << wrong.message << to;
    }
  }
  EXPECT_FALSE(fs::exists(path("never")));
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
  convert(kModels + "llama_mha", "llama", "half", {.dtype = at::kBFloat16});
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
  EXPECT_EQ(refusal({}, {}, "diff_transformer"),
            "the layout diff_transformer holds the mechanism differential, not softmax");
  EXPECT_EQ(refusal({}, {{"mechanism", "coca"}}, "dcformer"),
            "the layout dcformer holds the mechanism dcmha, not coca");
  EXPECT_NE(
      refusal({}, {{"mechanism", "differential"}, {"version", "v2"}}, "diffllama").find("attention.version = \"v2\""),
      std::string::npos);
  EXPECT_EQ(refusal({}, {{"window", 4}}, "llama"), "the layout llama cannot say attention.window = 4, only 0");
  EXPECT_NE(refusal({{"block", "parallel"}}, {}, "llama").find("cannot say block = \"parallel\""), std::string::npos);
  EXPECT_NE(refusal({}, {}, "gpt_neox").find("the layout gpt_neox cannot say"), std::string::npos);
  EXPECT_FALSE(fs::exists(path("never")));
}

// A model of which one number of one tensor is changed.
void write_number(const fs::path& folder, const std::string& tensor, double number, at::ScalarType type) {
  at::NoGradGuard no_grad;
  Model model = fresh(tiny());
  for (auto& item : model->named_parameters())
    if (item.key() == tensor) item.value().view(-1)[3] = number;
  const fs::path wide = folder.string() + "_float32";
  save_model_folder(wide, *model, {});
  convert_checkpoint(open_checkpoint(wide), find_layout("motet"), folder, {.dtype = type});
}

TEST_F(Convert, NumbersThatDoNotFitAreNamedAndRefused) {
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  write_number(path("m"), name, -65520, at::kFloat);  // float16 rounds it to infinity, 65519 to 65504
  const auto refusal = [&](at::ScalarType type) {
    return message_of<Error>([&] { convert(path("m"), "llama", "never", {.dtype = type}); });
  };
  EXPECT_EQ(refusal(at::kHalf), "tensor " + name +
                                    ": 1 number, -65520, would become infinite in float16, want a wider --dtype or "
                                    "--allow-overflow");
  EXPECT_FALSE(fs::exists(path("never")));
  convert(path("m"), "llama", "brain", {.dtype = at::kBFloat16});
  convert(path("m"), "llama", "allowed", {.dtype = at::kHalf, .allow_overflow = true});
  EXPECT_EQ(count_non_finite(open_checkpoint(path("allowed")).tensors.all.at(name).load()), 1);

  write_number(path("fits"), name, -65519, at::kFloat);
  convert(path("fits"), "llama", "half", {.dtype = at::kHalf});
  EXPECT_EQ(open_checkpoint(path("half")).tensors.all.at(name).load().min().item<double>(), -65504);

  write_number(path("infinite"), name, INFINITY, at::kFloat);  // no number before: nothing is lost
  convert(path("infinite"), "llama", "infinite_half", {.dtype = at::kHalf});
}

TEST_F(Convert, WhatWasWrittenIsCountedAndNamed) {
  const Checkpoint source = open_checkpoint(kModels + "gpt_neox");
  int64_t numbers = 0;
  for (const auto& [name, parameter] : load_model(source)->named_parameters().pairs()) numbers += parameter.numel();
  for (const auto& [type, word] :
       {std::pair(at::kHalf, "float16"), {at::kDouble, "float64"}, {at::kFloat, "float32"}}) {
    const Converted made = convert_checkpoint(source, find_layout("motet"), path(word), {.dtype = type});
    EXPECT_EQ(made.numbers, numbers);
    EXPECT_EQ(made.tensors, load_model(source)->parameters().size());
    EXPECT_FALSE(made.restored);
    EXPECT_EQ(read_json((path(word) / "config.json").string())["torch_dtype"], word);
  }
  EXPECT_TRUE(convert_checkpoint(open_checkpoint(path("float32")), find_layout("gpt_neox"), path("back")).restored);
}

TEST_F(Convert, AnInterruptLeavesNothing) {
  interrupt(SIGINT);
  EXPECT_THROW(convert(kModels + "coca_llama", "motet", "left"), Interrupted);
  interrupt(0);
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(Convert, SeveralLostNumbersAreCounted) {
  at::NoGradGuard no_grad;
  Model model = fresh(tiny());
  model->named_parameters()["model.norm.weight"].fill_(1e38);
  save_model_folder(path("m"), *model, {});
  convert(path("m"), "motet", "wide", {.dtype = at::kDouble});
  convert(path("wide"), "motet", "narrow", {.dtype = at::kFloat});  // they fit
  EXPECT_NE(message_of<Error>([&] {
              convert(path("m"), "motet", "never", {.dtype = at::kHalf});
            }).find("tensor model.norm.weight: 16 numbers, the first is 1e+38, would become infinite in float16"),
            std::string::npos);
}

TEST_F(Convert, WhatLiesBesideAModelComesAlong) {
  fs::copy(kModels + "llama_mha", path("m"));
  const char* const beside[] = {"tokenizer.json",         "tokenizer.model",   "tokenizer_config.json",  "merges.txt",
                                "generation_config.json", "vocab.json",        "encoder.json",           "vocab.bpe",
                                "chat_template.jinja",    "added_tokens.json", "special_tokens_map.json"};
  for (const char* name : beside) write_file_atomic(path("m") / name, std::string("{\"is\": \"") + name + "\"}");
  convert(path("m"), "motet", "ours");
  convert(path("ours"), "llama", "back");
  fs::remove(path("ours") / "published_config.json");
  convert(path("ours"), "llama", "new", {.extra = {{"merges.txt", "mine"}}});
  const Checkpoint source = open_checkpoint(path("m"));
  convert_checkpoint(as_checkpoint(retrofitted(source, "dcmha", 1), source), find_layout("motet"), path("dcmha"));
  for (const char* made : {"ours", "back", "new", "dcmha"}) {
    for (const std::string name : beside)
      EXPECT_EQ(read_file(path(made) / name),
                made == std::string("new") && name == "merges.txt" ? "mine" : "{\"is\": \"" + name + "\"}");
    EXPECT_FALSE(fs::exists(path(made) / "expected.safetensors"));
    const nlohmann::json config = read_json((path(made) / "config.json").string());
    EXPECT_EQ(config["bos_token_id"], 1) << made;
    EXPECT_EQ(config["eos_token_id"], 2) << made;
    EXPECT_FALSE(config.contains("pad_token_id")) << made;
    EXPECT_EQ(companions_of(open_checkpoint(path(made))).token_ids,
              (nlohmann::json{{"bos_token_id", 1}, {"eos_token_id", 2}}));
  }
}

}  // namespace
}  // namespace motet
