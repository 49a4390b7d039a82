// Folders in 16 bits: inference keeps their matrices so, with the bits of float32.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "motet/checkpoints/checkpoint.h"
#include "motet/checkpoints/convert.h"
#include "motet/checkpoints/eight_bits.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/checkpoints/testing.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/mechanisms/contender.h"
#include "motet/models/testing.h"
#include "motet/ops/number_type.h"
#include "motet/ops/other_device.h"

namespace motet {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using nlohmann::json;

Tensor logits(const Checkpoint& checkpoint, WeightType type) {
  const at::NoGradGuard no_grad;
  Model model = load_model(checkpoint, {.weights = type});
  model->prepare(type);
  return model->forward(at::tensor({3, 1, 4, 1, 5, 9, 2, 6}, at::kLong).view({1, 8}));
}

class StoredWeights : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  // A model of ours in a type.
  Checkpoint stored(const json& model, const json& attention, at::ScalarType dtype) {
    const std::string name = std::to_string(count_++);
    save_model_folder(path(name), *fresh(tiny(model, attention)), {});
    convert_checkpoint(open_checkpoint(path(name)), find_layout("motet"), path(name + "k"), {.dtype = dtype});
    return open_checkpoint(path(name + "k"));
  }
  TemporaryFolder folder_;
  int count_ = 0;
};

// The checkpoint, what it says of its weights and what it computes with them.
void expect_bits_of_float32(const Checkpoint& checkpoint, WeightType type) {
  SCOPED_TRACE(checkpoint.folder.string() + " " + name(type));
  EXPECT_EQ(stored_weights(checkpoint), type);
  EXPECT_TRUE(logits(checkpoint, type).equal(logits(checkpoint, WeightType::float32)));
  Model model = load_model(checkpoint, {.weights = type});
  for (const auto& [name, layer] : matrices_of(*model)) {
    EXPECT_EQ(layer->operands().weight_NK.values_NK.scalar_type(), dtype_of(type)) << name;
    EXPECT_EQ(layer->weight.numel(), 0) << name;
    const std::string at = file_at(layer->operands().weight_NK.values_NK.const_data_ptr());
    const bool mapped = at.ends_with("model.safetensors");
    EXPECT_EQ(layer->mapped_bytes(), mapped ? layer->kept_bytes() : 0) << name;
  }
}

TEST_F(StoredWeights, OfSixteenBitsStaySoWithTheBitsOfFloat32) {
  for (const WeightType type : {WeightType::bfloat16, WeightType::float16})
    for (const std::string& mechanism : contender_names()) {
      SCOPED_TRACE(mechanism);
      const json attention = parse_contender(mechanism, "");
      expect_bits_of_float32(stored({{"initializer_range", 0.3}}, attention, dtype_of(type)), type);
    }
}

// Tensors that hold several of ours, or their rows in another order.
TEST_F(StoredWeights, OfEveryPublishedLayoutToo) {
  std::vector<fs::path> folders;
  for (const char* of : {"tests/golden/model", "tests/golden/encoder"})
    for (const auto& entry : fs::directory_iterator(of))
      if (fs::exists(entry.path() / "config.json")) folders.push_back(entry.path());
  EXPECT_EQ(folders.size(), 10U);
  for (const fs::path& folder : folders) {
    const Checkpoint published = open_checkpoint(folder);
    for (const WeightType type : {WeightType::bfloat16, WeightType::float16}) {
      const fs::path to = path(folder.filename().string() + name(type));
      convert_checkpoint(published, *published.layout, to, {.dtype = dtype_of(type)});
      expect_bits_of_float32(open_checkpoint(to), type);
    }
  }
}

// A copy is memory that no other process shares, and that is left for caches twice.
TEST_F(StoredWeights, LieInTheMappedFileWhereItsOrderIsOurs) {
  const Checkpoint checkpoint = stored({{"tie_embeddings", true}}, {{"mechanism", "softmax"}}, at::kBFloat16);
  Model model = load_model(checkpoint, {.weights = WeightType::bfloat16});
  model->prepare(WeightType::bfloat16);
  for (const auto& [name, layer] : matrices_of(*model)) {
    const Matrix w = layer->operands().weight_NK;
    EXPECT_EQ(file_at(w.values_NK.const_data_ptr()), fs::canonical(checkpoint.folder) / "model.safetensors") << name;
    EXPECT_EQ(layer->mapped_bytes(), 2 * w.values_NK.numel()) << name;
  }
  EXPECT_GT(model->mapped_bytes(), model->num_parameters());
  model->prepare(WeightType::int8);
  EXPECT_EQ(model->mapped_bytes(), 0);
}

// As older writers left it: the header ends at any byte, and numbers that are not aligned are copied.
TEST_F(StoredWeights, BehindAnOddHeaderAreCopied) {
  const Checkpoint checkpoint = stored({}, {{"mechanism", "softmax"}}, at::kBFloat16);
  const fs::path file = checkpoint.folder / "model.safetensors";
  std::string bytes = read_file(file);
  ++bytes[0];
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes.insert(sizeof header + header - 1, " ");
  std::ofstream(file, std::ios::binary) << bytes;
  const Checkpoint odd = open_checkpoint(checkpoint.folder);
  Model model = load_model(odd, {.weights = stored_weights(odd)});
  EXPECT_EQ(model->mapped_bytes(), 0);
  EXPECT_TRUE(logits(odd, WeightType::bfloat16).equal(logits(odd, WeightType::float32)));
}

TEST_F(StoredWeights, OnAnotherDeviceAreFloat32UnlessInEightBits) {
  Checkpoint halves = stored({}, {{"mechanism", "softmax"}}, at::kHalf);
  EXPECT_EQ(usual_weights(halves, at::kCPU), WeightType::float16);
  EXPECT_EQ(usual_weights(halves, other_device()), WeightType::float32);
  halves.in_8_bits = true;
  EXPECT_EQ(usual_weights(halves, other_device()), WeightType::int8);
}

TEST_F(StoredWeights, OfSeveralTypesAreFloat32) {
  const Checkpoint float32 = stored({}, {{"mechanism", "softmax"}}, at::kFloat);
  EXPECT_EQ(stored_weights(float32), WeightType::float32);
  Checkpoint mixed = stored({}, {{"mechanism", "softmax"}}, at::kBFloat16);
  EXPECT_EQ(stored_weights(mixed), WeightType::bfloat16);
  mixed.tensors.all.at("model.norm.weight").dtype = at::kFloat;  // no matrix
  EXPECT_EQ(stored_weights(mixed), WeightType::bfloat16);
  mixed.tensors.all.at("lm_head.weight").dtype = at::kHalf;
  EXPECT_EQ(stored_weights(mixed), WeightType::float32);
  Checkpoint composed = stored({}, {{"mechanism", "dcmha"}}, at::kBFloat16);
  EXPECT_EQ(stored_weights(composed), WeightType::bfloat16);
  composed.tensors.all.at("model.layers.0.self_attn.compose_gate").dtype = at::kFloat;  // kept as a matrix is
  EXPECT_EQ(stored_weights(composed), WeightType::float32);
}

// 16 bits of the other kind do not hold them; 8 are made of the same numbers.
TEST_F(StoredWeights, AreKeptInAnotherTypeWhereThatIsAskedFor) {
  const Checkpoint checkpoint = stored({{"initializer_range", 0.3}}, {{"mechanism", "dcmha"}}, at::kBFloat16);
  Model wide = load_model(checkpoint);
  for (const WeightType type : {WeightType::float16, WeightType::int8}) {
    Model model = load_model(checkpoint, {.weights = type});
    model->prepare(type);
    WeightArena arena(1 << 20);
    for (const auto& [name, layer] : matrices_of(*model)) {
      const Matrix want = kept_in(type, wide->named_parameters()[name], arena), have = layer->operands().weight_NK;
      EXPECT_TRUE(have.values_NK.equal(want.values_NK)) << name;
    }
  }
  EXPECT_TRUE(load_model(checkpoint, {.dtype = at::kDouble, .weights = WeightType::bfloat16})
                  ->parameters()[0]
                  .equal(wide->parameters()[0].to(at::kDouble)));
}

}  // namespace
}  // namespace motet
