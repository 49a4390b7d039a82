#include "motet/checkpoints/model_folder.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/models/testing.h"

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

TEST(ModelFolder, MissingFolderIsNamed) {
  EXPECT_EQ(message_of<Error>([] { load_model_folder("no/such"); }), "no/such: no such model folder");
}

}  // namespace
}  // namespace motet
