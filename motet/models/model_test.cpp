#include "motet/models/model.h"

#include <gtest/gtest.h>

#include <set>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/models/cost.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using namespace testing;

const Tensor kIds = at::arange(8, at::kLong).view({1, 8});

TEST(Model, NamesAreThoseOfLlama) {
  const auto names = fresh(tiny())->named_parameters();
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight", "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.1.post_attention_layernorm.weight", "model.norm.weight", "lm_head.weight"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Model, CountOfLlamasParametersFollowsTheFormula) {  // 2 D hd (H + K) + 3 D I + 2 D a layer, 2 V D + D around
  EXPECT_EQ(fresh(tiny({{"intermediate_size", 40}}, {{"num_kv_heads", 2}}))->num_parameters(),
            2 * (2 * 16 * 4 * 6 + 3 * 16 * 40 + 32) + 2 * 11 * 16 + 16);
}

TEST(Model, SameSeedGivesTheSameModel) {
  for (const char* initializer : {"normal", "kaiming", "xavier", "pythia"}) {
    const ModelConfig config = tiny({{"initializer", initializer}}, {{"mechanism", "dcmha"}});
    EXPECT_TRUE(fresh(config, 3)->forward(kIds).equal(fresh(config, 3)->forward(kIds)));
    EXPECT_FALSE(fresh(config, 3)->forward(kIds).equal(fresh(config, 4)->forward(kIds)));
  }
}

TEST(Model, EveryTensorIsDrawnFromItsOwnStream) {
  const auto start = [](nlohmann::json model, nlohmann::json attention, uint64_t seed) {
    std::map<std::string, Tensor> out;
    for (const auto& item : fresh(tiny(model, attention), seed)->named_parameters()) out[item.key()] = item.value();
    return out;
  };
  const auto plain = start({}, {}, 3), deeper = start({{"num_layers", 3}}, {}, 3), other = start({}, {}, 4);
  const auto composed = start({}, {{"mechanism", "dcmha"}}, 3), wide = start({{"intermediate_size", 50}}, {}, 3);
  for (const auto& [name, tensor] : plain) {
    EXPECT_TRUE(tensor.equal(deeper.at(name))) << name << " does not depend on the layers behind it";
    EXPECT_TRUE(tensor.equal(composed.at(name))) << name << " does not depend on what else a layer has";
    if (name.find("mlp") == std::string::npos) {
      EXPECT_TRUE(tensor.equal(wide.at(name))) << name;
    }
    if (tensor.dim() < 2) continue;
    EXPECT_FALSE(tensor.equal(other.at(name))) << name << " depends on the seed";
    for (const auto& [another, values] : plain)
      if (another != name && values.sizes() == tensor.sizes()) {
        EXPECT_FALSE(tensor.equal(values)) << name << another;
      }
  }
}

TEST(Model, TheStartIsThatOfEveryDtype) {
  const ModelConfig config = tiny({}, {{"mechanism", "dcmha"}, {"static", true}});
  Model narrow = fresh(config, 3), wide(config);
  wide->to(at::kDouble);
  wide->initialize(3);
  for (const auto& item : narrow->named_parameters())
    EXPECT_TRUE(item.value().to(at::kDouble).equal(wide->named_parameters()[item.key()])) << item.key();
}

// Deviation of drawn numbers, and for uniform ones their bound.
TEST(Model, InitialisersDrawWhatTheySay) {
  struct Wanted {
    const char* initializer;
    double up, down, bound_up;  // deviations of up_proj [172,64] and down_proj [64,172]; bound of up_proj, 0: none
  };
  const double kaiming = 1 / std::sqrt(64.0), xavier = std::sqrt(6 / (64.0 + 172));
  for (const Wanted& w :
       {Wanted{"normal", 0.05, 0.05, 0}, Wanted{"kaiming", kaiming / std::sqrt(3), 1 / std::sqrt(3 * 172.0), kaiming},
        Wanted{"xavier", xavier / std::sqrt(3), xavier / std::sqrt(3), xavier},
        Wanted{"pythia", std::sqrt(2 / (5 * 64.0)), 2 / (2 * std::sqrt(64.0)), 0}}) {
    Model model = fresh(tiny({{"hidden_size", 64},
                              {"intermediate_size", 172},
                              {"initializer", w.initializer},
                              {"initializer_range", 0.05}}));
    const auto deviation = [&](const char* name) { return model->named_parameters()[name].std().item<double>(); };
    EXPECT_NEAR(deviation("model.layers.1.mlp.up_proj.weight") / w.up, 1, 0.04) << w.initializer;
    EXPECT_NEAR(deviation("model.layers.1.mlp.down_proj.weight") / w.down, 1, 0.04) << w.initializer;
    EXPECT_NEAR(deviation("model.embed_tokens.weight") / 0.05, 1, 0.1) << w.initializer;
    const double most = model->named_parameters()["model.layers.0.mlp.up_proj.weight"].abs().max().item<double>();
    if (w.bound_up > 0) {
      EXPECT_LE(most, w.bound_up);
      EXPECT_GT(most, 0.99 * w.bound_up);
    }
  }
  Model biased = fresh(tiny({{"block", "parallel"}}, {{"bias", true}}));
  for (const auto& item : biased->named_parameters())
    if (item.key().ends_with("bias")) {
      EXPECT_EQ(item.value().abs().max().item<double>(), 0) << item.key();
    }
}

// The exceptions of every mechanism by name; all other matrices but the embedding decay, and no vector does.
TEST(Model, WeightDecayLeavesMixesGatesAndLambdaAlone) {
  const std::vector<std::pair<nlohmann::json, std::set<std::string>>> cases{
      {{{"mechanism", "softmax"}, {"bias", true}, {"qk_norm", true}}, {}},
      {{{"mechanism", "softmax"}, {"position_bias", "relative"}}, {"relative_bias"}},
      {{{"mechanism", "key_size"}}, {}},
      {{{"mechanism", "coca"}}, {}},
      {{{"mechanism", "talking_heads"}, {"dynamic", "both"}}, {"logits_mix", "weights_mix"}},
      {{{"mechanism", "dcmha"}, {"static", true}}, {"compose_gate", "compose_static_pre", "compose_static_post"}},
      {{{"mechanism", "differential"}}, {}},
      {{{"mechanism", "differential"}, {"version", "v2"}}, {"lambda_proj.weight"}}};
  for (const auto& [attention, excepted] : cases) {
    Model model = fresh(tiny({{"block", "parallel"}}, attention));
    std::set<std::string> found;
    for (const auto& item : model->named_parameters()) {
      const std::string& name = item.key();
      const bool decays = model->decays(name, item.value());
      if (item.value().dim() < 2 || name == "model.embed_tokens.weight") {
        EXPECT_FALSE(decays) << name;
      } else if (!decays) {
        found.insert(name.substr(name.find("self_attn.") + 10));
      }
    }
    EXPECT_EQ(found, excepted) << attention;
  }
}

TEST(Model, EveryMechanismFitsEveryBlock) {
  for (const char* block : {"sequential", "parallel", "sequential_layer_norm"})
    for (const std::string& mechanism : mechanism_names())
      for (bool causal : {true, false}) {
        Model model =
            fresh(tiny({{"block", block}, {"causal", causal}, {"tie_embeddings", causal}}, {{"mechanism", mechanism}}));
        const Tensor logits = model->forward(kIds);
        EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{1, 8, 11}));
        ops::token_loss(logits, kIds).backward();
        for (const auto& p : model->named_parameters())
          EXPECT_TRUE(p.value().grad().defined()) << mechanism << " " << p.key();
      }
}

TEST(Model, BlockAttendsToAMemory) {
  Block block(tiny({{"causal", false}}, {{"mechanism", "dcmha"}}), 0);
  const Tensor x = at::randn({2, 3, 16}), memory = at::randn({2, 5, 16});
  EXPECT_EQ(block->forward(x, Positions::range(0, 3, 3), memory, Positions::range(0, 5, 5)).sizes(), x.sizes());
}

// Each document of a packed row is what it is alone, whatever lies around it.
TEST(Model, DocumentsKeptApartAreThoseComputedAlone) {
  at::NoGradGuard no_grad;
  const Tensor ids = at::randint(0, 11, {2, 12}, at::kLong);
  const Tensor documents =
      at::tensor({0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 3, 3, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2}).view({2, 12});
  std::vector<nlohmann::json> variants;
  for (const std::string& mechanism : mechanism_names()) variants.push_back({{"mechanism", mechanism}});
  variants.push_back({{"window", 3}});
  variants.push_back({{"mechanism", "dcmha"}, {"window", 2}, {"qk_norm", true}});
  for (const char* bias : {"alibi", "relative"}) variants.push_back({{"position_bias", bias}, {"rope_fraction", 0}});
  for (const nlohmann::json& attention : variants)
    for (const bool causal : {true, false}) {
      if (!causal && attention.contains("window")) continue;
      Model model = fresh(tiny({{"causal", causal}}, attention));
      model->to(at::kDouble);
      const Tensor packed = model->forward(ids, documents);
      for (int64_t row = 0; row < 2; ++row)
        for (int64_t begin = 0, end = 0; begin < 12; begin = end) {
          while (end < 12 && documents[row][end].equal(documents[row][begin])) ++end;
          const Tensor alone = model->forward(ids.slice(0, row, row + 1).slice(1, begin, end));
          const double error = (packed[row].slice(0, begin, end) - alone[0]).abs().max().item<double>();
          EXPECT_LE(error, 1e-12) << attention << " row " << row << " from " << begin;
        }
      EXPECT_FALSE(packed.allclose(model->forward(ids))) << attention;
    }
}

TEST(Model, DocumentsThatAreOneChangeNothing) {
  for (const std::string& mechanism : mechanism_names()) {
    Model model = fresh(tiny({}, {{"mechanism", mechanism}}));
    const Tensor one = model->forward(kIds, at::zeros_like(kIds));
    EXPECT_LE((one - model->forward(kIds)).abs().max().item<double>(), 1e-5) << mechanism;
  }
}

// The gradient of one document's loss is that of the document alone.
TEST(Model, DocumentsKeptApartHaveGradientsOfTheirOwn) {
  const Tensor ids = at::randint(0, 11, {1, 12}, at::kLong),
               documents = (at::arange(12) >= 5).to(at::kLong).view({1, 12});
  for (const std::string& mechanism : mechanism_names()) {
    Model model = fresh(tiny({}, {{"mechanism", mechanism}}));
    model->to(at::kDouble);
    std::vector<Tensor> gradients;
    for (const bool packed : {true, false}) {
      model->zero_grad();
      const Tensor logits = packed ? model->forward(ids, documents).slice(1, 5) : model->forward(ids.slice(1, 5));
      ops::token_loss(logits, ids.slice(1, 5)).backward();
      for (const Tensor& p : model->parameters()) gradients.push_back(p.grad().clone());
    }
    const size_t half = gradients.size() / 2;
    for (size_t i = 0; i < half; ++i)
      EXPECT_LE((gradients[i] - gradients[half + i]).abs().max().item<double>(), 1e-12) << mechanism << " " << i;
  }
}

TEST(Model, DynamicScalingHasOneBaseForAPlannedLength) {
  at::NoGradGuard no_grad;
  Model model = fresh(
      tiny({}, {{"rope_scaling", "dynamic"}, {"rope_factor", 4.0}, {"rope_trained_length", 4}, {"num_heads", 2}}));
  const Tensor whole = model->hidden(kIds), begun = kIds.slice(1, 0, 6);
  EXPECT_TRUE(model->hidden(begun, 8).allclose(whole.slice(1, 0, 6), 1e-5, 1e-6));
  EXPECT_FALSE(model->hidden(begun).allclose(whole.slice(1, 0, 6), 1e-5, 1e-6));
  EXPECT_THROW(model->hidden(kIds, 7), UsageError);
}

TEST(Model, TooLongInputIsRefused) { EXPECT_THROW(fresh(tiny({}, {}, 11, 4))->forward(kIds), UsageError); }

TEST(Model, PrecisionIsThatOfEachLinearLayer) {
  Model model = fresh(tiny({{"num_layers", 2}}, {{"mechanism", "dcmha"}}));
  const auto layers = [&] {
    std::vector<LinearImpl*> all;
    for (const auto& module : model->modules())
      if (auto* layer = module->as<LinearImpl>()) all.push_back(layer);
    return all;
  };
  ASSERT_GT(layers().size(), 14u);
  for (LinearImpl* layer : layers()) layer->precision = Precision::high;
  model->set_precision(Precision::highest, "--precision");
  for (LinearImpl* layer : layers()) EXPECT_EQ(layer->operands().precision, Precision::highest);
}

TEST(Model, PrecisionIsThatOfEachLayersAttention) {
  Model model = fresh(tiny({{"num_layers", 3}}));
  const auto set = [&] { model->set_precision(Precision::high, "--precision"); };
  if (const std::string reason = why_not_high(at::kCPU, at::kFloat); !reason.empty())
    EXPECT_EQ(message_of<UsageError>(set), "--precision: high, want highest: " + reason);
  else
    set();
  model->set_autocast(at::kBFloat16);
  EXPECT_NE(message_of<UsageError>(set).find(", not BFloat16"), std::string::npos);
  model->set_autocast({});
  // The last layer alone: the operator says what it was asked for, or computes it.
  model->set_precision(Precision::highest, "--precision");
  const Tensor highest = model->hidden(kIds);
  model->blocks().back()->self_attn->precision = Precision::high;
  try {
    EXPECT_FALSE(at::equal(model->hidden(kIds), highest));
  } catch (const c10::ValueError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("composed_attention: precision is high, want highest: "));
  }
  model->set_precision(Precision::highest, "--precision");
  EXPECT_TRUE(at::equal(model->hidden(kIds), highest));
}

TEST(Model, StatesAreTheEmbeddingAndTheOutputOfEachLayer) {
  at::NoGradGuard no_grad;
  Model model = fresh(tiny({{"num_layers", 3}}));
  const Positions at = Positions::range(0, kIds.size(1), kIds.size(1));
  const std::vector<Tensor> states = model->states(kIds, at);
  ASSERT_EQ(states.size(), 4u);
  EXPECT_TRUE(states[0].equal(model->embedded(kIds, at)));
  Block second = model->blocks()[1];
  EXPECT_TRUE(states[2].equal(second->forward(states[1], at)));
  EXPECT_TRUE(model->normed(states[3]).equal(model->hidden(kIds)));
  EXPECT_TRUE(model->attention_inputs(kIds)[1].equal(second->input_layernorm(states[1])));
}

TEST(Model, FirstNonFiniteNamesTheLayer) {
  Model model = fresh(tiny({{"num_layers", 3}}));
  EXPECT_EQ(model->first_non_finite(kIds), "");
  at::NoGradGuard no_grad;
  model->named_parameters()["model.layers.1.mlp.down_proj.weight"].fill_(NAN);
  EXPECT_EQ(model->first_non_finite(kIds), "layer 1");
}

TEST(Cost, CacheHoldsKeysValuesAndWhatTheMixNeeds) {
  const auto bytes = [](nlohmann::json attention) {
    return model_cost(*fresh(tiny({}, attention))).cache_bytes_per_token;
  };
  EXPECT_EQ(bytes({}), 2 * 4 * (16 + 16));
  EXPECT_EQ(bytes({{"num_kv_heads", 2}}), 2 * 4 * (8 + 8));
  EXPECT_EQ(bytes({{"mechanism", "dcmha"}}), 2 * 4 * (32 + 10 * 4));  // 10 N numbers a token: dcmha's side band
  EXPECT_EQ(bytes({{"mechanism", "dcmha"}, {"sides", "query"}}), 2 * 4 * 32);
  EXPECT_EQ(bytes({{"mechanism", "differential"}}), 2 * 4 * 32);
}

TEST(Cost, WindowsAndShortContextsCostLess) {
  const auto flops = [](nlohmann::json attention, int64_t context) {
    return model_cost(*fresh(tiny({}, attention, 11, context))).flops_per_token;
  };
  EXPECT_LT(flops({{"window", 4}}, 64), flops({}, 64));
  EXPECT_LT(flops({}, 16), flops({}, 64));
  // Scores and values of 4 heads of 4, over (64 + 1) / 2 keys, in two layers, beside 2 for each matrix element.
  const double matrices = 2 * (4 * 16 * 16 + 3 * 16 * 43) + 11 * 16;
  EXPECT_DOUBLE_EQ(flops({}, 64), 2 * (matrices + 2 * 32 * 32.5));
}

}  // namespace
}  // namespace motet
