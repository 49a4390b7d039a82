// Encoders of Hugging Face, against the logits that transformers computes of them (scripts/golden_encoders.py).
#include <gtest/gtest.h>

#include "motet/checkpoints/convert.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/checkpoints/retrofit.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors_testing.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using nlohmann::json;

const fs::path kFolder = "tests/golden/encoder";
const std::vector<std::string> kNames{"bert", "roberta", "albert"};

Tensor expected(const std::string& name, const char* what) {
  return safetensors_tensors((kFolder / name / "expected.safetensors").string()).all.at(what).load().clone();
}

double difference(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

Tensor logits(const fs::path& folder, const std::string& name) {
  at::NoGradGuard no_grad;
  return load_model_folder(folder)->forward(expected(name, "ids"), {}, expected(name, "types"));
}

std::map<std::string, Tensor> tensors_of(const fs::path& folder) {
  std::map<std::string, Tensor> all;
  for (const auto& [name, stored] : safetensors_tensors((folder / "model.safetensors").string()).all)
    all[name] = stored.load().clone();
  return all;
}

// A copy of a golden model with other tensors or another config.
class Encoders : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  fs::path copy(const std::string& name, const std::map<std::string, Tensor>& tensors, const json& more = {}) {
    const fs::path to = path("copy");
    fs::remove_all(to), fs::create_directory(to);
    json config = read_json((kFolder / name / "config.json").string());
    if (!more.is_null()) config.update(more);
    write_file_atomic(to / "config.json", config.dump());
    write_tensors(to / "model.safetensors", {tensors.begin(), tensors.end()});
    return to;
  }
  void convert(const fs::path& from, const std::string& to, const std::string& name) {
    convert_checkpoint(open_checkpoint(from), find_layout(to), path(name), {});
  }
  TemporaryFolder folder_;
};

TEST_F(Encoders, LogitsAreThoseOfTransformers) {
  for (const std::string& name : kNames) {
    at::NoGradGuard no_grad;
    Model model = load_model_folder(kFolder / name);
    const Tensor ids = expected(name, "ids"), wanted = expected(name, "logits");
    EXPECT_GT(wanted.std().item<double>(), 0.3) << name;  // it says something
    EXPECT_LT(difference(model->forward(ids, {}, expected(name, "types")), wanted), 1e-5) << name;
    EXPECT_LT(difference(model->forward(ids), expected(name, "logits_of_type_0")), 1e-5) << name;
    if (name == "roberta") continue;  // it has one type
    EXPECT_GT(difference(model->forward(ids), wanted), 1e-2) << name;
  }
}

TEST_F(Encoders, ThroughOursAndBackGivesTheSameConfigAndTensors) {
  for (const std::string& name : kNames) {
    convert(kFolder / name, "motet", name + "_ours");
    EXPECT_EQ(read_json((path(name + "_ours") / "config.json").string())["model_type"], "motet");
    EXPECT_TRUE(logits(path(name + "_ours"), name).equal(logits(kFolder / name, name))) << name;
    convert(path(name + "_ours"), name, name + "_back");
    EXPECT_EQ(read_file(kFolder / name / "config.json"), read_file(path(name + "_back") / "config.json")) << name;
    EXPECT_TRUE(without_padding(kFolder / name / "model.safetensors") ==
                without_padding(path(name + "_back") / "model.safetensors"))
        << name;
  }
}

TEST_F(Encoders, AConfigThatWeWriteMeansTheSame) {
  for (const std::string& name : kNames) {
    convert(kFolder / name, "motet", name + "_ours");
    fs::remove(path(name + "_ours") / "published_config.json");
    convert(path(name + "_ours"), name, name + "_new");
    const json wrote = read_json((path(name + "_new") / "config.json").string()),
               was = read_json((kFolder / name / "config.json").string());
    for (const auto& [key, value] : wrote.items())
      EXPECT_TRUE(key == "hidden_act" || !was.contains(key) || value == was[key]) << name << " " << key;
    EXPECT_TRUE(logits(path(name + "_new"), name).equal(logits(kFolder / name, name))) << name;
    const auto before = tensors_of(kFolder / name), after = tensors_of(path(name + "_new"));
    ASSERT_EQ(before.size(), after.size());
    for (const auto& [tensor, values] : before) EXPECT_TRUE(values.equal(after.at(tensor))) << name << " " << tensor;
  }
}

// What files of the Hub hold beside or in other words.
TEST_F(Encoders, OlderFilesAreReadAndWhatDoesNotReachTheLogitsIsReadPast) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, values] : tensors_of(kFolder / "bert")) {
    std::string older = name;
    if (const size_t at = name.find("LayerNorm."); at != std::string::npos)
      older = name.substr(0, at + 10) + (name.ends_with("weight") ? "gamma" : "beta");
    tensors[older] = values;
  }
  tensors["bert.pooler.dense.weight"] = at::randn({24, 24}), tensors["bert.pooler.dense.bias"] = at::randn({24});
  tensors["cls.seq_relationship.weight"] = at::randn({2, 24}), tensors["cls.seq_relationship.bias"] = at::randn({2});
  tensors["bert.embeddings.position_ids"] = at::arange(14).view({1, 14});
  tensors["cls.predictions.decoder.weight"] = tensors.at("bert.embeddings.word_embeddings.weight");
  tensors["cls.predictions.decoder.bias"] = tensors.at("cls.predictions.bias");
  const fs::path old = copy("bert", tensors);
  EXPECT_TRUE(logits(old, "bert").equal(logits(kFolder / "bert", "bert")));
  convert(old, "motet", "ours");
  convert(path("ours"), "bert", "back");
  const auto after = tensors_of(path("back"));  // with the published names: gamma and beta were never ours
  for (const char* kept : {"bert.pooler.dense.weight", "cls.seq_relationship.bias", "bert.embeddings.position_ids"})
    EXPECT_TRUE(after.at(kept).equal(tensors.at(kept))) << kept;
  EXPECT_TRUE(logits(path("back"), "bert").equal(logits(kFolder / "bert", "bert")));
}

TEST_F(Encoders, ATensorThatRepeatsAnotherMustBeTheSame) {
  const auto refusal = [&](const char* name, const char* more, const Tensor& values) {
    std::map<std::string, Tensor> tensors = tensors_of(kFolder / name);
    tensors[more] = values;
    return message_of<Error>([&] { open_checkpoint(copy(name, tensors)); });
  };
  EXPECT_NE(refusal("bert", "cls.predictions.decoder.bias", at::ones({48}))
                .find("tensor cls.predictions.decoder.bias differs from the tensor that it repeats"),
            std::string::npos);
  EXPECT_NE(refusal("albert", "predictions.decoder.weight", at::ones({48, 10}))
                .find("tensor predictions.decoder.weight differs from the embedding"),
            std::string::npos);
  EXPECT_NE(refusal("roberta", "lm_head.extra", at::ones({1})).find("belongs to no part of the model"),
            std::string::npos);
}

TEST_F(Encoders, AnOutputMatrixOfItsOwnIsKept) {
  std::map<std::string, Tensor> tensors = tensors_of(kFolder / "albert");
  tensors["predictions.decoder.weight"] = tensors.at("albert.embeddings.word_embeddings.weight") * 2;
  const fs::path untied = copy("albert", tensors, {{"tie_word_embeddings", false}});
  EXPECT_GT(difference(logits(untied, "albert"), expected("albert", "logits")), 1e-2);
  convert(untied, "motet", "ours");
  convert(path("ours"), "albert", "back");
  EXPECT_TRUE(
      tensors_of(path("back")).at("predictions.decoder.weight").equal(tensors.at("predictions.decoder.weight")));
}

// transformers 5 adds decoder.bias and has `bias` beside it; of older files the two were one tensor under one name.
TEST_F(Encoders, TheBiasOfAnOutputMatrixOfItsOwnIsTheOneThatIsAdded) {
  for (const auto& [name, head] : {std::pair<std::string, std::string>("bert", "cls.predictions."),
                                   {"roberta", "lm_head."},
                                   {"albert", "predictions."}}) {
    std::map<std::string, Tensor> tensors = tensors_of(kFolder / name);
    const std::string body = name + ".embeddings.word_embeddings.weight";
    tensors[head + "decoder.weight"] = tensors.at(body);
    const Tensor tied = expected(name, "logits"), bias = tensors.at(head + "bias");
    EXPECT_LT(difference(logits(copy(name, tensors, {{"tie_word_embeddings", false}}), name), tied), 1e-5) << name;
    const Tensor own = at::arange(bias.size(0), at::kFloat);
    tensors[head + "decoder.bias"] = own;
    const fs::path untied = copy(name, tensors, {{"tie_word_embeddings", false}});
    EXPECT_LT(difference(logits(untied, name), tied - bias + own), 1e-5) << name;
    convert(untied, "motet", name + "_ours");
    convert(path(name + "_ours"), name, name + "_back");
    const auto restored = tensors_of(path(name + "_back"));
    EXPECT_TRUE(restored.at(head + "bias").equal(bias) && restored.at(head + "decoder.bias").equal(own)) << name;
    fs::remove(path(name + "_ours") / "published_config.json");
    convert(path(name + "_ours"), name, name + "_new");
    const auto written = tensors_of(path(name + "_new"));
    EXPECT_TRUE(written.at(head + "bias").equal(own) && written.at(head + "decoder.bias").equal(own)) << name;
  }
}

// RoBERTa's positions begin behind the id of padding: another id would move them.
TEST_F(Encoders, RobertasPositionsBeginBehindThePaddingOfTheModel) {
  convert(kFolder / "roberta", "motet", "ours");
  fs::remove(path("ours") / "published_config.json");
  const std::string file = (path("ours") / "config.json").string();
  json config = read_json(file);
  config["pad_token_id"] = 0;
  write_file_atomic(file, config.dump());
  EXPECT_EQ(message_of<Error>([&] { convert(path("ours"), "roberta", "never"); }),
            "the layout roberta begins positions behind padding, here token 1, and the model's pad_token_id is 0, want "
            "model.first_position = pad_token_id + 1");
  config["pad_token_id"] = 1;
  write_file_atomic(file, config.dump());
  convert(path("ours"), "roberta", "new");
  EXPECT_TRUE(logits(path("new"), "roberta").equal(logits(kFolder / "roberta", "roberta")));
}

TEST_F(Encoders, WhatIsNotComputedIsRefusedInALine) {
  const auto refusal = [&](const char* name, const json& more) {
    return message_of<Error>([&] { open_checkpoint(copy(name, tensors_of(kFolder / name), more)); });
  };
  const std::string where = (path("copy") / "config.json").string() + ": ";
  EXPECT_EQ(refusal("bert", {{"position_embedding_type", "relative_key"}}),
            where + "position_embedding_type is 'relative_key', want 'absolute', for no other is computed here");
  EXPECT_EQ(refusal("bert", {{"is_decoder", true}}),
            where + "is_decoder is 'true', want 'false', for no other is computed here");
  EXPECT_EQ(refusal("albert", {{"num_hidden_groups", 2}}),
            where + "num_hidden_groups is '2', want '1', for no other is computed here");
  EXPECT_EQ(refusal("roberta", {{"hidden_act", "relu"}}),
            where + "hidden_act is 'relu', want 'gelu', for no other is computed here");
  const auto cannot = [&](const json& model, const json& attention, const std::string& to) {
    save_model_folder(path("m"), *fresh(tiny(model, attention)), {});
    return message_of<Error>([&] { convert(path("m"), to, "never"); });
  };
  const json form{{"block", "sequential_layer_norm"},
                  {"norm_place", "post"},
                  {"positions", "learned"},
                  {"embedding_norm", true},
                  {"head", "masked"},
                  {"tie_embeddings", true},
                  {"causal", false},
                  {"shared_layers", true}};
  EXPECT_EQ(cannot(form, {{"mechanism", "dcmha"}}, "bert"), "the layout bert holds the mechanism softmax, not dcmha");
  EXPECT_EQ(cannot(form, {{"bias", true}}, "bert"), "the layout bert cannot say shared_layers = true, only false");
  EXPECT_EQ(cannot(form, {}, "albert"), "the layout albert cannot say attention.bias = false, only true");
  EXPECT_EQ(cannot(form, {{"bias", true}}, "roberta"), "the layout roberta cannot say first_position = 0, only 1");
  EXPECT_NE(cannot({}, {}, "bert").find("the layout bert cannot say "), std::string::npos);
}

// Another mechanism in the place of plain attention: computing the same at first, in our own layout alone.
TEST_F(Encoders, ARetrofittedEncoderComputesTheSame) {
  for (const std::string& name : kNames)
    for (const std::string& retrofit : retrofit_names()) {
      if (!starts_equal(retrofit)) continue;
      at::NoGradGuard no_grad;
      const Checkpoint checkpoint = open_checkpoint(kFolder / name);
      const Adaptation made = retrofitted(checkpoint, retrofit, 3);
      Model model = load_model(as_checkpoint(made, checkpoint));
      EXPECT_LT(
          difference(model->forward(expected(name, "ids"), {}, expected(name, "types")), expected(name, "logits")),
          5e-5)
          << name << " " << retrofit;
    }
}

TEST_F(Encoders, OurOwnFolderHoldsEveryForm) {
  for (const json& model : {json{{"norm_place", "post"}}, json{{"positions", "learned"}, {"first_position", 1}},
                            json{{"token_types", 3}}, json{{"shared_layers", true}},
                            json{{"embedding_norm", true}, {"embedding_size", 6}}, json{{"head", "masked"}}}) {
    Model first = fresh(tiny(model));
    save_model_folder(path("m"), *first, {});
    EXPECT_EQ(read_json((path("m") / "config.json").string())["model_type"], "motet") << model;
    const Model again = load_model_folder(path("m"));
    const Tensor ids = at::arange(8).view({1, 8});
    EXPECT_TRUE(first->forward(ids).equal(again.ptr()->forward(ids))) << model;
  }
}

}  // namespace
}  // namespace motet
