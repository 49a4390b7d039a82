// Recorded models through our loader and model; what was changed must be found.
#include "motet/verify/model_verification.h"

#include <filesystem>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/formats/json.h"
#include "motet/formats/safetensors.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::TemporaryFolder;

void expect_all_pass(const std::string& folder) {
  for (const std::string& path : golden_files({folder})) {
    const FileReport report = verify_model_folder(path, {});
    EXPECT_EQ(report.program, "model");
    for (const Deviation& f : report.failing()) ADD_FAILURE() << path << " " << f.tensor << " " << f.error;
    EXPECT_FALSE(report.outputs.all.empty());
    EXPECT_FALSE(report.gradients.all.empty());
  }
}

TEST(ModelVerification, RecordedModelsPass) { expect_all_pass("tests/golden/model"); }

TEST(ModelVerification, SharedModelsPass) {
  if (!fs::exists("../shared/golden/model")) GTEST_SKIP() << "../shared/golden/model is not here";
  expect_all_pass("../shared/golden/model");
}

class ChangedModel : public ::testing::Test {
 protected:
  ChangedModel() { fs::copy("tests/golden/model/llama_mha", path()); }
  fs::path path() const { return folder_.path() / "m"; }
  void change(const std::string& file, const std::string& tensor) {
    const SafetensorsFile stored((path() / file).string());
    std::map<std::string, std::string> metadata = stored.metadata();
    std::vector<TensorView> views = stored.tensors();
    std::vector<std::byte> bytes;
    for (TensorView& view : views)
      if (view.name == tensor) {
        bytes.assign(view.bytes.begin(), view.bytes.end());
        bytes[bytes.size() - 2] ^= std::byte{0x10};
        view.bytes = bytes;
      }
    write_safetensors((path() / file).string(), views, metadata);
  }
  std::vector<std::string> failing() {
    std::vector<std::string> names;
    for (const Deviation& f : verify_model_folder(path().string(), {}).failing()) names.push_back(f.tensor);
    return names;
  }
  TemporaryFolder folder_;
};

TEST_F(ChangedModel, AChangedWeightFailsEverywhere) {
  change("model.safetensors", "model.layers.1.self_attn.v_proj.weight");
  EXPECT_GT(failing().size(), 10u);
}

TEST_F(ChangedModel, AChangedRecordFailsAlone) {
  change("expected.safetensors", "adamw.param_norm.model.norm.weight");
  EXPECT_EQ(failing(), (std::vector<std::string>{"adamw.param_norm.model.norm.weight"}));
  change("expected.safetensors", "greedy.ids_nocache");
  const std::vector<std::string> names = failing();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()),
            (std::set<std::string>{"adamw.param_norm.model.norm.weight", "greedy.ids_nocache"}));
}

TEST_F(ChangedModel, AWrongConfigFails) {
  nlohmann::json config = read_json((path() / "config.json").string());
  config["rope_theta"] = 20000.0;
  write_file_atomic(path() / "config.json", config.dump());
  EXPECT_FALSE(failing().empty());
}

TEST_F(ChangedModel, WithoutARecordThereIsNothingToCompare) {
  fs::remove(path() / "expected.safetensors");
  EXPECT_NE(message_of<Error>([&] { verify_model_folder(path().string(), {}); }).find("has no expected.safetensors"),
            std::string::npos);
}

}  // namespace
}  // namespace motet
