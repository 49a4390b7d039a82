// model.attention.layers = last: the last layer has the mechanism, the others are plain attention to all keys.
#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/models/cost.h"
#include "motet/models/lengthen.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

const json kThreeLayers{{"num_layers", 3}};
const json kLight{{"mechanism", "dcmha"}, {"where", "post"}, {"window", 4}};

json light_in(const char* layers) {
  json attention = kLight;
  attention["layers"] = layers;
  return attention;
}

// The parameters of `from` that `to` has too.
void copy_shared(Model& to, Model& from) {
  at::NoGradGuard no_grad;
  auto own = to->named_parameters();
  for (const auto& item : from->named_parameters())
    if (Tensor* found = own.find(item.key())) found->copy_(item.value());
}

TEST(LastLayer, IsOfTheMechanismAndTheOthersArePlain) {
  at::NoGradGuard no_grad;
  Model last = fresh(tiny(kThreeLayers, light_in("last"))), plain = fresh(tiny(kThreeLayers)),
        all = fresh(tiny(kThreeLayers, light_in("all")));
  copy_shared(plain, last), copy_shared(all, last);
  const Tensor ids = at::randint(11, {2, 16}, at::kLong);
  const Positions at = ModelImpl::positions(ids);
  Tensor x = last->embedded(ids, at);
  const auto through = [&](Model& model, size_t layer) { x = Block(model->blocks()[layer])->forward(x, at); };
  through(plain, 0), through(plain, 1), through(all, 2);
  EXPECT_TRUE(last->hidden(ids).equal(last->normed(x)));
}

TEST(LastLayer, HasTheWindowAlone) {
  const Model model = fresh(tiny(kThreeLayers, light_in("last")));
  std::vector<int64_t> windows;
  for (const Block& block : model->blocks()) windows.push_back(block->self_attn->window(Pass::whole));
  EXPECT_EQ(windows, (std::vector<int64_t>{0, 0, 4}));
}

TEST(LastLayer, ItsWindowHasPatternAndMask) {
  json attention = light_in("last");
  attention.update(json{{"window_pattern", "LG"}, {"window_mask", "released"}});
  EXPECT_EQ(fresh(tiny({{"num_layers", 3}}, attention))->blocks()[2]->self_attn->window(Pass::whole), 5);
}

// What the scaling of the training had is forgotten with it; what is given has to have an effect.
TEST(Lengthened, AnotherScalingTakesNothingOfTheOldOne) {
  const ModelConfig trained = tiny({}, {{"rope_scaling", "llama3"}, {"rope_factor", 4}, {"rope_low_freq_factor", 2}});
  const ModelConfig plain = lengthened(trained, 0, {{"rope_scaling", "none"}});
  EXPECT_EQ(plain.attention.at("rope_factor"), 1);
  EXPECT_EQ(plain.attention.at("rope_low_freq_factor"), 1);
  EXPECT_EQ(lengthened(trained, 0, nullptr).attention, trained.attention);
  EXPECT_THROW(lengthened(trained, 0, {{"rope_scaling", "none"}, {"rope_factor", 2}}), UsageError);
}

TEST(LastLayer, KeepsTheOptionsThatPlainAttentionShares) {
  json attention = light_in("last");
  attention.update(json{{"num_kv_heads", 2}, {"qk_norm", true}, {"bias", true}, {"output_gate", true}});
  const auto names = fresh(tiny(kThreeLayers, attention))->named_parameters();
  for (const char* name : {"q_norm.weight", "k_proj.bias", "gate_proj.weight"})
    for (const char* layer : {"0", "2"})
      EXPECT_TRUE(names.contains(text("model.layers.", layer, ".self_attn.", name))) << layer << name;
  EXPECT_EQ(names["model.layers.0.self_attn.k_proj.weight"].size(0), 8);
  EXPECT_FALSE(names.contains("model.layers.1.self_attn.compose_up"));
  EXPECT_TRUE(names.contains("model.layers.2.self_attn.compose_up"));
}

// Two layers of one kind and one of the other.
TEST(LastLayer, CostsWhatItsLayersCost) {
  const auto cost = [](const json& attention) {
    Model model = fresh(tiny(kThreeLayers, attention));
    return model_cost(*model);
  };
  const ModelCost last = cost(light_in("last")), plain = cost({}), all = cost(light_in("all"));
  const auto mixed = [](auto a, auto b) { return (2 * a + b) / 3; };
  EXPECT_EQ(last.cache_bytes_per_token, mixed(plain.cache_bytes_per_token, all.cache_bytes_per_token));
  EXPECT_EQ(last.parts.at("attention"), mixed(plain.parts.at("attention"), all.parts.at("attention")));
  EXPECT_GT(all.flops_per_token, 0);
  const double rest = 2.0 * 16 * 11;  // of the output matrix
  EXPECT_NEAR(last.flops_per_token - rest, mixed(plain.flops_per_token - rest, all.flops_per_token - rest), 1e-6);
}

TEST(LastLayer, CannotShareItsParameters) {
  json model = kThreeLayers;
  model["shared_layers"] = true;
  json attention = light_in("last");
  attention["window"] = 0;
  EXPECT_EQ(message_of<UsageError>([&] { fresh(tiny(model, attention)); }),
            "model.shared_layers: one layer has one mechanism, want model.attention.layers = all and not last");
}

}  // namespace
}  // namespace motet
