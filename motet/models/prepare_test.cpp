// The form of a model that is kept for inference: made by prepare(), read by all, dropped by train() and to().
#include <gtest/gtest.h>

#include <thread>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/mechanisms/contender.h"
#include "motet/models/testing.h"
#include "motet/ops/other_device.h"

namespace motet {
namespace {

using namespace testing;

const Tensor kIds = at::tensor({3, 1, 4, 1, 5, 9, 2, 6}, at::kLong).view({1, 8});

std::vector<std::string> variants() {
  std::vector<std::string> all = contender_names();
  for (const char* more : {"dcmha:groups=2", "dcmha:sides=key", "dcmha:low_rank=false", "dcmha:gates=false",
                           "talking_heads:dynamic=both", "mha:bias=true"})
    all.push_back(more);
  return all;
}

Model model_of(const std::string& contender, const char* block = "sequential") {
  return fresh(tiny({{"block", block}, {"initializer_range", 0.3}}, parse_contender(contender, "")));
}

Tensor inferred(ModelImpl& model, const Tensor& ids = kIds) {
  const at::NoGradGuard no_grad;
  return model.forward(ids);
}

double largest(const Tensor& t) { return t.detach().abs().max().item<double>(); }

// Changes every parameter in a way that shows in the logits.
void change(ModelImpl& model) {
  const at::NoGradGuard no_grad;
  for (Tensor p : model.parameters()) p.mul_(1.3);
}

TEST(Prepare, APreparedModelComputesTheSame) {
  for (const char* block : {"sequential", "parallel", "sequential_layer_norm"})
    for (const std::string& name : variants()) {
      Model model = model_of(name, block);
      const Tensor wanted = model->forward(kIds).detach();
      model->prepare();
      EXPECT_LE(largest(inferred(*model) - wanted), 1e-5 * largest(wanted)) << name << " " << block;
      EXPECT_LE(largest(model->forward(kIds) - wanted), 1e-5 * largest(wanted)) << "with gradients: " << name;
      const Tensor many = kIds.repeat({4, 1});
      EXPECT_LE(largest(inferred(*model, many)[3] - wanted[0]), 1e-5 * largest(wanted)) << name;
    }
}

TEST(Prepare, FewerBitsAreCloseAndKeptAlone) {
  for (const WeightType type : {WeightType::bfloat16, WeightType::float16, WeightType::int8}) {
    Model model = model_of("dcmha");
    const Tensor wanted = model->forward(kIds).detach();
    model->prepare(type);
    const double error = largest(inferred(*model) - wanted) / largest(wanted);
    EXPECT_GT(error, 1e-6);
    EXPECT_LT(error, 0.05);
    EXPECT_EQ(model->named_parameters()["lm_head.weight"].numel(), 0);
    EXPECT_NE(message_of<Error>([&] { model->forward(kIds); }).find("want train() called before a pass with gradients"),
              std::string::npos);
  }
}

// It reads the hidden state as a linear layer does, and is as large as one where there are many heads.
TEST(Prepare, AGeneratorIsKeptInTheTypeOfTheMatrices) {
  for (const char* name : {"dcmha", "dcmha:groups=2", "dcmha:low_rank=false", "differential_v1:compose=true"})
    for (const bool all : {true, false}) {
      SCOPED_TRACE(text(name, " ", all));
      Model model = model_of(name), rounded = model_of(name);
      for (auto& item : rounded->named_parameters())
        if (item.key().ends_with("compose_hidden") || item.key().ends_with("compose_gate"))
          item.value().set_data(item.value().detach().to(at::kBFloat16).to(at::kFloat));
      const Tensor exact = inferred(*model);
      EXPECT_FALSE(inferred(*rounded).equal(exact));
      for (Model m : {model, rounded})
        if (all)
          m->prepare(WeightType::bfloat16);
        else
          m->keep_matrices(WeightType::bfloat16);
      EXPECT_TRUE(inferred(*model).equal(inferred(*rounded)));
    }
}

// What reads a copy that was made before shows the old parameters.
TEST(Prepare, TrainDropsWhatWasPrepared) {
  for (const std::string& name : variants()) {
    Model model = model_of(name);
    model->prepare();
    model->eval();
    model->train();
    change(*model);
    EXPECT_LE(largest(inferred(*model) - model->forward(kIds)), 1e-5 * largest(model->forward(kIds))) << name;
  }
}

TEST(Prepare, MovingDropsWhatWasPrepared) {
  const std::vector<std::function<void(ModelImpl&)>> moves{[](ModelImpl& m) { m.to(at::kDouble); },
                                                           [](ModelImpl& m) { m.to(at::kCPU); },
                                                           [](ModelImpl& m) { m.to(at::kCPU, at::kDouble); }};
  for (const auto& move : moves)
    for (const std::string& name : variants()) {
      Model model = model_of(name);
      model->prepare();
      move(*model);
      change(*model);
      const Tensor wanted = model->forward(kIds).detach();
      EXPECT_LE(largest(inferred(*model) - wanted), 1e-5 * largest(wanted)) << name;
    }
}

TEST(Prepare, PassesWithGradientsReadTheParameters) {
  Model model = model_of("dcmha");
  model->prepare();
  ops::token_loss(model->forward(kIds), kIds).backward();
  for (const auto& item : model->named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
}

TEST(Prepare, DroppedBitsComeBackAsParametersThatLearn) {
  Model model = model_of("mha");
  model->prepare(WeightType::int8);
  const Tensor before = inferred(*model);
  model->train();
  EXPECT_LE(largest(inferred(*model) - before), 1e-5 * largest(before));
  ops::token_loss(model->forward(kIds), kIds).backward();
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_EQ(item.value().grad().sizes(), item.value().sizes()) << item.key();
  }
}

TEST(Prepare, AgainIsAnew) {
  Model model = model_of("dcmha");
  model->prepare(WeightType::bfloat16);
  model->prepare(WeightType::float32);
  EXPECT_GT(model->named_parameters()["lm_head.weight"].numel(), 0);
  change(*model);
  model->prepare();
  EXPECT_LE(largest(inferred(*model) - model->forward(kIds)), 1e-5 * largest(model->forward(kIds)));
}

// 8 bits of what 8 bits stand for can be others, and a mapped file must be neither read nor copied.
TEST(Prepare, WhatIsKeptInTheTypeStaysWhereItLies) {
  for (const WeightType type : {WeightType::bfloat16, WeightType::float16, WeightType::int8}) {
    Model model = model_of("dcmha");
    const LinearImpl& output = *model->named_modules()["lm_head"]->as<LinearImpl>();
    model->prepare(type);
    const Matrix before = output.operands().weight_NK;
    model->prepare(type);
    EXPECT_EQ(output.operands().weight_NK.values_NK.const_data_ptr(), before.values_NK.const_data_ptr());
    model->prepare(type == WeightType::bfloat16 ? WeightType::float16 : WeightType::bfloat16);
    EXPECT_NE(output.operands().weight_NK.values_NK.scalar_type(), before.values_NK.scalar_type());
    EXPECT_EQ(output.operands().weight_NK.values_NK.sizes(), before.values_NK.sizes());
  }
}

// Kept numbers are those of the CPU, and so is what is made of them; what is dropped becomes a parameter there again.
TEST(Prepare, OnAnotherDeviceItIsAsOnTheCpu) {
  for (const std::string& name : contender_names())
    for (const WeightType type : {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8}) {
      SCOPED_TRACE(text(name, " ", motet::name(type)));
      const ModelConfig config = tiny({{"initializer_range", 0.3}}, parse_contender(name, ""));
      Model here(config), there(config, other_device());
      for (Model model : {here, there}) model->initialize(1), model->prepare(type);
      const Tensor wanted = inferred(*here);
      EXPECT_LE(largest(inferred(*there, kIds.to(other_device())).cpu() - wanted), 1e-5 * largest(wanted));
      for (const Tensor& p : there->parameters()) EXPECT_EQ(p.device(), other_device());
      there->train();
      here->train();
      const auto dropped = there->parameters(), own = here->parameters();
      for (size_t i = 0; i < own.size(); ++i) {
        EXPECT_EQ(dropped[i].device(), other_device());
        EXPECT_TRUE(dropped[i].cpu().equal(own[i]));
      }
    }
}

TEST(Prepare, OnlyFloat32IsKept) {
  Model model = model_of("mha");
  model->to(at::kDouble);
  EXPECT_NE(message_of<Error>([&] { model->prepare(WeightType::int8); }).find("Double"), std::string::npos);
}

TEST(Prepare, ThreadsShareAPreparedModel) {
  Model model = model_of("dcmha");
  model->prepare();
  std::vector<Tensor> wanted, found(8);
  for (int64_t i = 0; i < 8; ++i) wanted.push_back(inferred(*model, (kIds + i).remainder(11)));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round)
        found[i] = inferred(*model, (kIds + static_cast<int64_t>(i)).remainder(11));
    });
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(found[i].equal(wanted[i])) << i;
}

TEST(Meta, AModelOfShapesAloneTakesNoMemory) {
  for (const std::string& name : contender_names()) {
    Model model(tiny({}, parse_contender(name, "")), at::kMeta);
    for (const Tensor& p : model->parameters()) EXPECT_TRUE(p.is_meta());
  }
}

}  // namespace
}  // namespace motet
