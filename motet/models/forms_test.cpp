// The forms that encoders have: post-norm, learned positions, token types, shared layers, BERT's head.
#include <gtest/gtest.h>

#include <set>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/models/cost.h"
#include "motet/models/testing.h"
#include "motet/ops/ops.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

const Tensor kIds = at::arange(8, at::kLong).view({1, 8});

const json kBert{{"block", "sequential_layer_norm"}, {"norm_place", "post"}, {"positions", "learned"},
                 {"embedding_norm", true},           {"token_types", 2},     {"head", "masked"},
                 {"tie_embeddings", true},           {"causal", false}};

json bert_with(const json& more) {
  json model = kBert;
  model.update(more);
  return model;
}

// A model whose biases and norms are not at their start, so that one which is left out is seen.
Model stirred(const ModelConfig& config) {
  at::NoGradGuard no_grad;
  Model model = fresh(config);
  model->to(at::kDouble);
  const auto generator = at::detail::createCPUGenerator(5);
  for (Tensor p : model->parameters()) p.add_(at::empty_like(p).normal_(0, 0.2, generator));
  return model;
}

Tensor layer_normed(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor centred = x - x.mean(-1, true);
  return centred / (centred.square().mean(-1, true) + 1e-5).sqrt() * weight + bias;
}

// The whole of BERT once more, by the names of its parameters.
TEST(Forms, BertIsWhatItsPaperSays) {
  at::NoGradGuard no_grad;
  Model model = stirred(tiny(bert_with({{"num_layers", 1}}), {{"num_heads", 1}, {"bias", true}}));
  auto p = model->named_parameters();
  const auto norm = [&](const Tensor& x, const std::string& name) {
    return layer_normed(x, p[name + ".weight"], p[name + ".bias"]);
  };
  const auto dense = [&](const Tensor& x, const std::string& name) {
    return at::matmul(x, p[name + ".weight"].t()) + p[name + ".bias"];
  };
  const Tensor types = at::tensor({0, 1, 1, 0, 1, 0, 0, 1});
  const Tensor x =
      norm(p["model.embed_tokens.weight"].slice(0, 0, 8) + p["model.embed_positions.weight"].slice(0, 0, 8) +
               p["model.embed_types.weight"].index_select(0, types),
           "model.embed_norm");
  const std::string layer = "model.layers.0.", attention = layer + "self_attn.";
  const Tensor weights =
      (at::matmul(dense(x, attention + "q_proj"), dense(x, attention + "k_proj").t()) / 4.0).softmax(-1);
  const Tensor attended = dense(at::matmul(weights, dense(x, attention + "v_proj")), attention + "o_proj");
  const Tensor h = norm(x + attended, layer + "post_attention_layernorm");
  const Tensor inner = at::gelu(dense(h, layer + "mlp.up_proj"));
  const Tensor y = norm(h + dense(inner, layer + "mlp.down_proj"), layer + "post_feedforward_layernorm");
  const Tensor before = norm(at::gelu(dense(y, "masked_head.dense")), "masked_head.norm");
  const Tensor logits = at::matmul(before, p["model.embed_tokens.weight"].t()) + p["masked_head.bias"];
  EXPECT_TRUE(at::allclose(model->forward(kIds, {}, types.unsqueeze(0))[0], logits, 1e-10, 1e-12));
  EXPECT_TRUE(model->forward(kIds).equal(model->forward(kIds, {}, at::zeros_like(kIds))));
  EXPECT_FALSE(p.contains("model.norm.weight"));
  EXPECT_FALSE(p.contains(layer + "input_layernorm.weight"));
}

TEST(Forms, PostNormOfLlamasLayerHasItsNorms) {
  const auto names = fresh(tiny({{"norm_place", "post"}}))->named_parameters();
  EXPECT_TRUE(names.contains("model.layers.1.post_feedforward_layernorm.weight"));
  EXPECT_FALSE(names.contains("model.layers.1.post_feedforward_layernorm.bias"));  // an RMS norm
  EXPECT_TRUE(names.contains("model.layers.1.mlp.gate_proj.weight"));
}

// Nothing else says where a token stands: with equal rows the tokens of an encoder are a set.
TEST(Forms, LearnedPositionsAreTheOnlyOnes) {
  at::NoGradGuard no_grad;
  for (const std::string& mechanism : mechanism_names()) {
    if (mechanism == "coca") continue;  // it is made of the rotary embedding
    Model model = stirred(tiny(kBert, {{"mechanism", mechanism}}));
    const Tensor order = at::tensor({3, 0, 7, 1, 6, 2, 5, 4});
    const Tensor straight = model->forward(kIds)[0].index_select(0, order),
                 turned = model->forward(kIds.index_select(1, order))[0];
    EXPECT_FALSE(at::allclose(straight, turned, 1e-3, 1e-3)) << mechanism;
    Tensor table = model->named_parameters()["model.embed_positions.weight"];
    table.copy_(table[0].expand_as(table).clone());
    EXPECT_TRUE(at::allclose(model->forward(kIds)[0].index_select(0, order),
                             model->forward(kIds.index_select(1, order))[0], 1e-10, 1e-12))
        << mechanism;
  }
}

TEST(Forms, TheTableOfPositionsBeginsWhereItIsTold) {
  at::NoGradGuard no_grad;
  Model plain = stirred(tiny(kBert)), moved(tiny(bert_with({{"first_position", 2}})));
  moved->to(at::kDouble);
  for (auto& item : moved->named_parameters()) {
    const Tensor from = plain->named_parameters()[item.key()];
    const bool table = item.key() == "model.embed_positions.weight";
    (table ? item.value().slice(0, 2) : item.value()).copy_(from);
  }
  EXPECT_TRUE(moved->forward(kIds).equal(plain->forward(kIds)));
  EXPECT_EQ(moved->num_parameters(), plain->num_parameters() + 2 * 16);
}

TEST(Forms, DocumentsKeptApartAreThoseComputedAlone) {
  at::NoGradGuard no_grad;
  const Tensor documents = at::tensor({0, 0, 0, 1, 1, 1, 1, 1}).view({1, 8});
  for (const bool causal : {true, false}) {
    Model model = stirred(tiny(bert_with({{"causal", causal}})));
    const Tensor packed = model->forward(kIds, documents);
    for (const auto& [begin, end] : {std::pair(0, 3), {3, 8}})
      EXPECT_TRUE(at::allclose(packed.slice(1, begin, end), model->forward(kIds.slice(1, begin, end)), 1e-10, 1e-12))
          << begin;
    EXPECT_FALSE(at::allclose(packed, model->forward(kIds), 1e-3, 1e-3));
  }
}

TEST(Forms, SharedLayersAreOneUsedAgain) {
  at::NoGradGuard no_grad;
  const json three{{"num_layers", 3}, {"embedding_size", 6}};
  Model shared = stirred(tiny(bert_with({{"num_layers", 3}, {"embedding_size", 6}, {"shared_layers", true}})));
  Model apart(tiny(bert_with(three)));
  apart->to(at::kDouble);
  int64_t of_a_layer = 0;
  const auto own = shared->named_parameters();
  for (auto& item : apart->named_parameters()) {
    std::string name = item.key();
    if (name.starts_with("model.layers.")) name[13] = '0';
    item.value().copy_(own[name]);
    if (item.key().starts_with("model.layers.1.")) of_a_layer += item.value().numel();
  }
  EXPECT_TRUE(shared->forward(kIds).equal(apart->forward(kIds)));
  EXPECT_EQ(shared->num_parameters(), apart->num_parameters() - 2 * of_a_layer);
  const ModelCost one = model_cost(*shared), many = model_cost(*apart);
  EXPECT_EQ(one.parameters, shared->num_parameters());
  EXPECT_DOUBLE_EQ(one.flops_per_token, many.flops_per_token);  // it works as much as they do
  EXPECT_EQ(one.cache_bytes_per_token, many.cache_bytes_per_token);
  EXPECT_EQ(shared->states(kIds, ModelImpl::positions(kIds)).size(), 4u);
}

TEST(Forms, WorkOfTheEmbeddingsTablesIsNone) {  // of the same shapes of matrices
  const auto cost = [](const json& more) { return model_cost(*fresh(tiny(bert_with(more)))); };
  const ModelCost with = cost(json::object()), without = cost({{"token_types", 0}, {"positions", "rope"}});
  EXPECT_DOUBLE_EQ(with.flops_per_token, without.flops_per_token);
  EXPECT_EQ(with.parameters - without.parameters, (16 + 2) * 16);
  EXPECT_EQ(with.parts.at("embedding") - without.parts.at("embedding"), (16 + 2) * 16);
  EXPECT_EQ(with.parts.at("output"), 16 * 16 + 16 + 2 * 16 + 11);  // dense, norm and the bias; the matrix is tied
}

TEST(Forms, TablesAndVectorsDoNotDecay) {
  Model model = fresh(tiny(bert_with({{"embedding_size", 6}})));
  std::set<std::string> kept;
  for (const auto& item : model->named_parameters())
    if (!item.key().starts_with("model.layers.") && model->decays(item.key(), item.value())) kept.insert(item.key());
  EXPECT_EQ(kept, (std::set<std::string>{"model.embed_projection.weight", "masked_head.dense.weight"}));
}

TEST(Forms, EveryPartIsDrawnAndEveryParameterHasAGradient) {
  for (const std::string& mechanism : mechanism_names())
    for (const json& more : {json{{"embedding_size", 6}, {"shared_layers", true}}, json{{"tie_embeddings", false}},
                             json{{"positions", "rope"}, {"block", "sequential"}}}) {
      if (mechanism == "coca" && !more.contains("positions")) continue;
      const ModelConfig config = tiny(bert_with(more), {{"mechanism", mechanism}});
      Model model = fresh(config, 3), again = fresh(config, 3), other = fresh(config, 4);
      EXPECT_TRUE(model->forward(kIds).equal(again->forward(kIds))) << mechanism << more;
      EXPECT_FALSE(model->forward(kIds).equal(other->forward(kIds))) << mechanism << more;
      ops::token_loss(model->forward(kIds), kIds).backward();
      for (const auto& item : model->named_parameters()) {
        ASSERT_TRUE(item.value().grad().defined()) << mechanism << " " << item.key();
        EXPECT_TRUE(at::isfinite(item.value()).all().item<bool>()) << mechanism << " " << item.key();
      }
    }
}

TEST(Forms, RecomputedLayersHaveTheSameGradients) {
  for (const auto& [shared, narrow] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
    Model model = stirred(tiny(bert_with({{"num_layers", 3}, {"shared_layers", shared}})));
    if (narrow) model->to(at::kFloat), model->set_autocast(at::kBFloat16);
    std::vector<Tensor> gradients;
    for (const bool again : {false, true}) {
      model->set_recompute(again);
      model->zero_grad();
      ops::token_loss(model->forward(kIds), kIds).backward();
      for (const Tensor& p : model->parameters()) gradients.push_back(p.grad().clone());
    }
    for (size_t i = 0; i < gradients.size() / 2; ++i) {
      const Tensor &a = gradients[i], &b = gradients[gradients.size() / 2 + i];
      EXPECT_TRUE(narrow ? a.equal(b) : at::allclose(a, b, 1e-12, 1e-14)) << shared << narrow << i;
    }
  }
}

TEST(Forms, PreparedModelsComputeTheSame) {
  at::NoGradGuard no_grad;
  for (const bool shared : {false, true}) {
    Model model = stirred(tiny(bert_with({{"num_layers", 3}, {"shared_layers", shared}, {"embedding_size", 6}})));
    model->to(at::kFloat);
    const Tensor before = model->forward(kIds);
    model->prepare();
    EXPECT_TRUE(at::allclose(model->forward(kIds), before, 1e-4, 1e-5)) << shared;
    model->prepare(WeightType::bfloat16);
    EXPECT_TRUE(at::allclose(model->forward(kIds), before, 0.1, 0.1)) << shared;
    EXPECT_GT(model_cost(*model).flops_per_token, 0);
  }
}

TEST(Forms, WhatDoesNotGoTogetherIsNamed) {
  const auto refusal = [](const json& model, const json& attention = {}) {
    return message_of<UsageError>([&] { fresh(tiny(model, attention)); });
  };
  EXPECT_EQ(refusal({{"norm_place", "post"}, {"block", "parallel"}}),
            "model.norm_place: post with model.block = parallel, want a sequential block");
  EXPECT_EQ(refusal({{"first_position", 2}}),
            "model.first_position: 2 without a table, want model.positions = learned");
  EXPECT_EQ(refusal({{"shared_layers", true}}, {{"window", 4}, {"window_pattern", "LG"}}),
            "model.shared_layers: one layer has one window, want model.attention.window_pattern = local and not LG");
  EXPECT_EQ(refusal({{"embedding_size", 6}, {"tie_embeddings", true}}),
            "model.embedding_size: 6 with tie_embeddings, want a model with an output matrix of its own, or model.head "
            "= masked");
  EXPECT_EQ(refusal({{"positions", "learned"}}, {{"mechanism", "coca"}}),
            "model.positions: learned with the exact form of coca, whose keys are tied by what rotates, want rope");
  EXPECT_EQ(message_of<UsageError>([] { fresh(tiny())->forward(kIds, {}, at::zeros_like(kIds)); }),
            "the model has no token types, want none given");
  EXPECT_THROW(fresh(tiny(kBert, {}, 11, 4))->forward(kIds), UsageError);  // longer than the table
}

}  // namespace
}  // namespace motet
