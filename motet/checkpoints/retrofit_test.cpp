#include "motet/checkpoints/retrofit.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using namespace testing;

const Tensor kIds = at::arange(3, 27).view({2, 12});

std::vector<std::string> sources() {
  std::vector<std::string> folders{"tests/golden/model/llama_mha", "tests/golden/model/gpt_neox"};
  for (const char* shared : {"llama_gqa_tied", "llama_llama3_rope"})
    if (std::filesystem::exists(std::string("../shared/golden/model/") + shared))
      folders.push_back(std::string("../shared/golden/model/") + shared);
  return folders;
}

TEST(Retrofit, TheModelComputesTheSameAtTheStart) {
  at::NoGradGuard no_grad;
  for (const std::string& source : sources()) {
    const Checkpoint checkpoint = open_checkpoint(source);
    const Tensor before = load_model(checkpoint, {at::kDouble})->forward(kIds);
    for (const std::string& name : retrofit_names()) {
      if (!starts_equal(name)) continue;
      Model model = load_model(as_checkpoint(retrofitted(checkpoint, name, 1), checkpoint), {at::kDouble});
      const double error = ((model->forward(kIds) - before).abs().max() / before.abs().max()).item<double>();
      EXPECT_LT(error, 1e-6) << source << " " << name;  // the factor sqrt(2) is rounded to float32
    }
  }
}

TEST(Retrofit, WhatIsNewLearns) {
  const Checkpoint checkpoint = open_checkpoint("tests/golden/model/llama_mha");
  for (const std::string& name : retrofit_names()) {
    Model model = load_model(as_checkpoint(retrofitted(checkpoint, name, 1), checkpoint));
    double first = 0, last = 0;
    std::map<std::string, Tensor> before;
    for (const auto& item : model->named_parameters()) before[item.key()] = item.value().detach().clone();
    for (int step = 0; step < 10; ++step) {
      model->zero_grad();
      const Tensor loss = ops::token_loss(model->forward(kIds).slice(1, 0, -1), kIds.slice(1, 1));
      loss.backward();
      at::NoGradGuard no_grad;
      for (Tensor& p : model->parameters()) p.sub_(p.grad().sign(), 1e-3);
      (step == 0 ? first : last) = loss.item<double>();
    }
    EXPECT_LT(last, first) << name;
    for (const auto& item : model->named_parameters())
      EXPECT_FALSE(item.value().equal(before[item.key()])) << name << " " << item.key();
  }
}

// Glorot's deviation in, that of a fan-in out, and the seed alone decides.
TEST(Retrofit, FreshNumbersHaveTheirDeviationAndTheirSeed) {
  at::NoGradGuard no_grad;
  const Checkpoint checkpoint = open_checkpoint("tests/golden/model/llama_mha");  // 6 heads, width 48
  const auto fresh = [&](const char* name, uint64_t seed, const char* tensor) {
    return retrofitted(checkpoint, name, seed).tensors.at(std::string("model.layers.1.self_attn.") + tensor)();
  };
  const Tensor hidden = fresh("dcmha", 1, "compose_hidden"), up = fresh("dcmha", 1, "compose_up");
  const auto near = [](const Tensor& t, double wanted) {  // five standard errors of a standard deviation
    const double error = wanted / std::sqrt(2.0 * static_cast<double>(t.numel()));
    EXPECT_NEAR(t.std().item<double>(), wanted, 5 * error);
  };
  near(hidden, std::sqrt(2.0 / (48 + 24)));
  near(up.slice(3, 0, 2), 1 / std::sqrt(24.0));
  EXPECT_TRUE(up.slice(3, 2).eq(0).all().item<bool>());
  near(fresh("coca", 1, "t_proj.weight"), 0.02);
  near(fresh("key_size", 1, "q_proj.weight").unflatten(0, {6, 16}).slice(1, 8), 0.02);
  for (const auto& [name, tensor] : {std::pair("dcmha", "compose_hidden"), {"coca", "t_proj.weight"}}) {
    EXPECT_TRUE(fresh(name, 1, tensor).equal(fresh(name, 1, tensor)));
    EXPECT_FALSE(fresh(name, 1, tensor).equal(fresh(name, 2, tensor)));
    EXPECT_FALSE(
        fresh(name, 1, tensor)
            .equal(retrofitted(checkpoint, name, 1).tensors.at(std::string("model.layers.0.self_attn.") + tensor)()));
  }
}

TEST(Retrofit, CocaKeepsAllButTheKeys) {
  for (const std::string& source : sources()) {
    const Checkpoint checkpoint = open_checkpoint(source);
    Model before = load_model(checkpoint),
          model = load_model(as_checkpoint(retrofitted(checkpoint, "coca", 1), checkpoint));
    EXPECT_EQ(model->config().attention.at("form"), "slack");
    const auto old = before->named_parameters();
    for (const auto& item : model->named_parameters()) {
      const bool fresh = item.key().find("t_proj") != std::string::npos;
      EXPECT_EQ(old.contains(item.key()), !fresh) << item.key();
      EXPECT_TRUE(fresh || item.value().equal(old[item.key()])) << item.key();
    }
  }
}

TEST(Retrofit, OptionsThatTheMechanismCannotKeepAreRefused) {
  const auto refused = [](const char* option, const char* value, const std::string& name) {
    Checkpoint checkpoint = open_checkpoint("tests/golden/model/llama_mha");
    checkpoint.config.attention[option] = value;
    return message_of<Error>([&] { retrofitted(checkpoint, name, 1); });
  };
  for (const std::string& name : retrofit_names())
    EXPECT_EQ(refused("head_norm", "plain", name), "retrofit " + name +
                                                       ": the model has model.attention.head_norm = plain, which " +
                                                       name + " has no place for, want none");
  for (const std::string bias : {"alibi", "relative"})
    EXPECT_EQ(refused("position_bias", bias.c_str(), "differential_v2"),
              "retrofit differential_v2: the model has model.attention.position_bias = " + bias +
                  ", which the two heads of a pair would not share, want none");
}

// A position bias belongs to its head, and the other mechanisms keep the heads.
TEST(Retrofit, APositionBiasStaysWhereItIs) {
  at::NoGradGuard no_grad;
  Checkpoint checkpoint = open_checkpoint("tests/golden/model/llama_mha");
  checkpoint.config.attention["position_bias"] = "alibi";
  const Tensor before = load_model(checkpoint, {at::kDouble})->forward(kIds);
  for (const char* name : {"dcmha", "key_size", "talking_heads"}) {
    Model model = load_model(as_checkpoint(retrofitted(checkpoint, name, 1), checkpoint), {at::kDouble});
    EXPECT_LT(((model->forward(kIds) - before).abs().max() / before.abs().max()).item<double>(), 1e-6) << name;
  }
}

TEST(Retrofit, OthersAreRefused) {
  const Checkpoint llama = open_checkpoint("tests/golden/model/llama_mha"),
                   dcformer = open_checkpoint("tests/golden/model/dcformer");
  EXPECT_NE(message_of<UsageError>([&] { retrofitted(llama, "dcmah", 1); }).find("nearest is 'dcmha'"),
            std::string::npos);
  EXPECT_NE(message_of<Error>([&] { retrofitted(dcformer, "dcmha", 1); }).find("has the mechanism dcmha, want softmax"),
            std::string::npos);
}

}  // namespace
}  // namespace motet
