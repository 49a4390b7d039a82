// The rows `cuda` beside the rows `torch`: the emulated kernels on tensors of the CPU, and where there is a GPU the
// library's on it. Values, gradients, dtypes and shapes; in 16 bits neither is further from float64 than the row torch.
#include "motet/ops/cuda.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <functional>

#include "motet/cuda/emulation.h"

namespace motet {
namespace {

using TensorVector = std::vector<Tensor>;

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kBFloat16, at::kHalf};

Tensor drawn_at_random(at::IntArrayRef shape, at::ScalarType type, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::kDouble).to(type);
}

/// A function of tensors by the row cuda or torch.
struct StepCase {
  const char* name;
  TensorVector inputs;  // those of floating dtypes want gradients
  std::function<TensorVector(const TensorVector&)> cuda, torch;
};

struct Computed {
  TensorVector outputs, gradients;
};

/// The outputs, and the gradients of all inputs from random ones of the outputs; on the device, in `type` if given.
Computed results(const StepCase& one, bool by_cuda, at::Device device, std::optional<at::ScalarType> type = {}) {
  TensorVector inputs;
  for (const Tensor& t : one.inputs) {
    const bool floats = t.is_floating_point();
    inputs.push_back(t.to(device, floats && type ? *type : t.scalar_type()).detach());
    if (!t.is_contiguous())
      inputs.back() = at::empty_strided(t.sizes(), t.strides(), inputs.back().options()).copy_(inputs.back());
    if (floats) inputs.back().requires_grad_();
  }
  Computed made{(by_cuda ? one.cuda : one.torch)(inputs), {}};
  TensorVector starts, leaves;
  for (const Tensor& t : made.outputs)
    starts.push_back(drawn_at_random(t.sizes(), at::kBFloat16, starts.size() + 50).to(t.options()));
  for (const Tensor& t : inputs)
    if (t.requires_grad()) leaves.push_back(t);
  made.gradients = torch::autograd::grad(made.outputs, leaves, starts);
  return made;
}

double distance(const Tensor& x, const Tensor& reference) {
  const Tensor want = reference.to(at::kDouble).cpu();
  return ((x.to(at::kDouble).cpu() - want).norm() / want.norm().clamp_min(1e-30)).item<double>();
}

void expect_like_torch(const StepCase& one, at::Device device) {
  SCOPED_TRACE(one.name);
  const Computed have = results(one, true, device), torch = results(one, false, device),
                 exact = results(one, false, at::kCPU, at::kDouble);
  const auto compare = [&](const char* what, const TensorVector& mine, const TensorVector& theirs,
                           const TensorVector& reference) {
    ASSERT_EQ(mine.size(), theirs.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      ASSERT_EQ(mine[i].scalar_type(), theirs[i].scalar_type()) << what << ' ' << i;
      ASSERT_EQ(mine[i].sizes(), theirs[i].sizes()) << what << ' ' << i;
      const double error = distance(mine[i], reference[i]), other = distance(theirs[i], reference[i]);
      EXPECT_LE(error, 1.02 * other + 1e-6) << what << ' ' << i << " of dtype " << mine[i].scalar_type();
    }
  };
  compare("output", have.outputs, torch.outputs, exact.outputs);
  compare("gradient", have.gradients, torch.gradients, exact.gradients);
}

/// x as a slice of rows that are twice as long, as a fused projection makes them.
Tensor slice_of(const Tensor& x) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape[static_cast<size_t>(x.dim() - 2)] *= 2;
  return at::zeros(shape, x.options()).slice(x.dim() - 2, 0, x.size(-2)).copy_(x);
}

std::vector<StepCase> norms(const cuda::StepKernels& kernels) {
  std::vector<StepCase> all;
  const auto add = [&](const Tensor& x, const Tensor& weight) {
    const auto weight_of = [](const TensorVector& t) { return t.size() > 1 ? t[1] : Tensor(); };
    all.push_back(
        {"rms_norm", weight.defined() ? TensorVector{x, weight} : TensorVector{x},
         [=, &kernels](const TensorVector& t) {
           return TensorVector{cuda_rms_norm(t[0], weight_of(t), 1e-3, kernels)};
         },
         [=](const TensorVector& t) { return TensorVector{ops::rms_norm(t[0], weight_of(t), 1e-3, "torch")}; }});
  };
  for (const at::ScalarType x : kTypes) {
    for (const at::ScalarType w : kTypes) add(drawn_at_random({2, 5, 64}, x, 1), drawn_at_random({64}, w, 2));
    add(drawn_at_random({40, 37}, x, 1), drawn_at_random({37}, x, 2));
    add(slice_of(drawn_at_random({2, 3, 4, 16}, x, 1)), {});
    add(drawn_at_random({48}, x, 1), {});
  }
  return all;
}

std::vector<StepCase> rotations(const cuda::StepKernels& kernels) {
  std::vector<StepCase> all;
  for (const at::ScalarType type : kTypes)
    for (const bool interleaved : {false, true})
      for (const int64_t tables : {1, 2}) {
        const Tensor x = drawn_at_random({2, 5, 3, 24}, type, 3),
                     angle = drawn_at_random({tables, 5, 1, 8}, at::kDouble, 4);
        const auto by = [=](const Tensor& on) {
          const auto type = on.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
          const Tensor turn = angle.to(at::kFloat).to(on.device());
          return Rotation{turn.cos().to(type), turn.sin().to(type), interleaved};
        };
        all.push_back(
            {"rotate",
             {tables == 2 ? slice_of(x) : x},
             [=, &kernels](const TensorVector& t) { return TensorVector{cuda_rotate(t[0], by(t[0]), kernels)}; },
             [=](const TensorVector& t) { return TensorVector{ops::rotate(t[0], by(t[0]), "torch")}; }});
      }
  return all;
}

std::vector<StepCase> products(const cuda::StepKernels& kernels) {
  std::vector<StepCase> all;
  for (const at::ScalarType gate : kTypes)
    for (const at::ScalarType up : kTypes)
      all.push_back({"silu_times",
                     {slice_of(drawn_at_random({3, 5, 40}, gate, 5)), drawn_at_random({3, 5, 40}, up, 6)},
                     [&kernels](const TensorVector& t) { return TensorVector{cuda_silu_times(t[0], t[1], kernels)}; },
                     [](const TensorVector& t) { return TensorVector{ops::silu_times(t[0], t[1], "torch")}; }});
  return all;
}

std::vector<StepCase> losses(const cuda::StepKernels& kernels) {
  std::vector<StepCase> all;
  for (const at::ScalarType type : kTypes)
    for (const Loss loss : {Loss::mean, Loss::each})
      for (const int64_t classes : {11, 3000}) {
        Tensor targets = at::arange(8, at::kLong).mul(7).remainder(classes).view({2, 4});
        targets[1][2] = -100;
        const Tensor logits = drawn_at_random({2, 5, classes}, type, 7).mul(3).slice(1, 0, 4);
        all.push_back(
            {"token_loss",
             {logits, targets},
             [=, &kernels](const TensorVector& t) { return TensorVector{cuda_token_loss(t[0], t[1], loss, kernels)}; },
             [=](const TensorVector& t) { return TensorVector{ops::token_loss(t[0], t[1], loss, "torch")}; }});
      }
  return all;
}

/// x, the generator's rows and, with maps, up.
std::vector<StepCase> generators(const cuda::StepKernels& kernels) {
  std::vector<StepCase> all;
  for (const at::ScalarType type : kTypes)
    for (const int64_t branches : {1, 2})
      for (const auto& [maps, gates] : {std::pair{true, true}, {true, false}, {false, true}}) {
        const DcmhaGenerator by{.heads = 8, .rank = 2, .branches = branches, .maps = maps, .gates = gates};
        const int64_t hidden = maps ? 2 * by.rank * by.heads : 0;
        TensorVector inputs{drawn_at_random({2, 3, 24}, type, 8),
                            drawn_at_random({branches * (hidden + (gates ? by.heads : 0)), 24}, type, 9)};
        if (maps) inputs.push_back(drawn_at_random({branches, hidden, 2 * by.rank * by.heads}, type, 10).mul(0.3));
        const auto parts = [=](const TensorVector& t, const auto& run) {
          DcmhaGenerator g = by;
          g.rows_XC = {t[1]};
          if (maps) g.up_QKM = t[2];
          TensorVector found;
          for (const DcmhaMaps& of : run(t[0], g))
            for (const Tensor& part : {of.down_BTRN, of.up_BTRN, of.gate_BTN})
              if (part.defined()) found.push_back(part);
          return found;
        };
        all.push_back({"dcmha_maps", inputs,
                       [=, &kernels](const TensorVector& t) {
                         return parts(t, [&](const auto& x, const auto& g) { return cuda_dcmha_maps(x, g, kernels); });
                       },
                       [=](const TensorVector& t) {
                         return parts(t, [](const auto& x, const auto& g) { return ops::dcmha_maps(x, g, "torch"); });
                       }});
      }
  return all;
}

using Cases = std::vector<StepCase> (*)(const cuda::StepKernels&);
constexpr Cases kAll[] = {norms, rotations, products, losses, generators};

class CudaRows : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(cuda::emulated::take_fault(), ""); }
  void expect_like_torch_emulated(Cases cases) {
    for (const StepCase& one : cases(cuda::step_kernels())) expect_like_torch(one, at::kCPU);
  }
};

TEST_F(CudaRows, RmsNormIsThatOfTorch) { expect_like_torch_emulated(norms); }
TEST_F(CudaRows, RotateIsThatOfTorch) { expect_like_torch_emulated(rotations); }
TEST_F(CudaRows, SiluTimesIsThatOfTorch) { expect_like_torch_emulated(products); }
TEST_F(CudaRows, TokenLossIsThatOfTorch) { expect_like_torch_emulated(losses); }
TEST_F(CudaRows, DcmhaMapsAreThoseOfTorch) { expect_like_torch_emulated(generators); }

// Of kept weights, which have no gradients.
void expect_linear_like_torch(at::Device device, const cuda::StepKernels& kernels) {
  at::NoGradGuard no_grad;
  for (const WeightType type : {WeightType::bfloat16, WeightType::float16, WeightType::int8})
    for (const int64_t rows : {1, 3, 8, 16, 37}) {
      const Tensor x = drawn_at_random({rows, 1, 64}, at::kFloat, 1).to(device);
      std::vector<LinearLayer> layers;
      std::vector<WeightArena> arenas;
      for (const int64_t outputs : {5, 48}) {
        const Tensor w = drawn_at_random({outputs, 64}, at::kFloat, static_cast<uint64_t>(outputs));
        arenas.emplace_back(arena_bytes(type, outputs, 64));
        layers.push_back({on_device(kept_in(type, w, arenas.back()), device)});
        if (outputs == 5) layers.back().bias_N = drawn_at_random({5}, at::kFloat, 3).to(device);
      }
      ASSERT_EQ(cuda_linear_why_not(x, layers), "");
      const std::vector<Tensor> have = cuda_linear(x, layers, kernels), want = ops::linear_together(x, layers, "torch");
      for (size_t i = 0; i < layers.size(); ++i) {
        ASSERT_EQ(have[i].sizes(), want[i].sizes());
        EXPECT_LE(distance(have[i], want[i]), 1e-6) << name(type) << ' ' << rows;
      }
    }
}

TEST_F(CudaRows, OnAGpuTheyAreThoseOfTorchThere) {
  if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
  ASSERT_EQ(why_not_step_library(at::empty({1}, at::kCUDA)), "");
  for (const Cases cases : kAll)
    for (const StepCase& one : cases(*step_library())) expect_like_torch(one, at::kCUDA);
  expect_linear_like_torch(at::kCUDA, *step_library());
}

// A generator under autocast: products in bfloat16 of parameters in float32, whose gradients are float32.
TEST_F(CudaRows, DcmhaMapsUnderAutocastHaveTorchsDtypes) {
  for (StepCase& one : generators(cuda::step_kernels())) {
    const auto cast = [](const auto& run) {
      return [run](const TensorVector& t) {
        at::autocast::set_autocast_enabled(at::kCPU, true);
        const TensorVector made = run(t);
        at::autocast::set_autocast_enabled(at::kCPU, false);
        at::autocast::clear_cache();
        return made;
      };
    };
    if (one.inputs[0].scalar_type() != at::kFloat) continue;
    const StepCase under{one.name, one.inputs, cast(one.cuda), cast(one.torch)};
    const Computed have = results(under, true, at::kCPU), want = results(under, false, at::kCPU);
    for (size_t i = 0; i < have.outputs.size(); ++i) {
      EXPECT_EQ(have.outputs[i].scalar_type(), at::kBFloat16);
      EXPECT_EQ(have.outputs[i].scalar_type(), want.outputs[i].scalar_type());
      EXPECT_LE(distance(have.outputs[i], want.outputs[i]), 3e-3);
    }
    for (size_t i = 0; i < have.gradients.size(); ++i) {
      EXPECT_EQ(have.gradients[i].scalar_type(), want.gradients[i].scalar_type());
      EXPECT_LE(distance(have.gradients[i], want.gradients[i]), 1e-2);
    }
  }
}

// Only what is asked for is made, and nobody's gradient is that of somebody else.
TEST_F(CudaRows, GradientsAreMadeOneByOne) {
  for (const Cases cases : kAll)
    for (const StepCase& one : cases(cuda::step_kernels())) {
      if (one.inputs[0].scalar_type() != at::kFloat) continue;
      SCOPED_TRACE(one.name);
      const Computed whole = results(one, true, at::kCPU);
      for (size_t i = 0, leaf = 0; i < one.inputs.size(); ++i) {
        if (!one.inputs[i].is_floating_point()) continue;
        const Tensor& want = whole.gradients[leaf++];
        TensorVector inputs = one.inputs;
        inputs[i] = inputs[i].detach().requires_grad_();
        const TensorVector outputs = one.cuda(inputs);
        TensorVector made, starts;
        for (const Tensor& t : outputs)
          if (t.requires_grad())
            made.push_back(t),
                starts.push_back(drawn_at_random(t.sizes(), at::kBFloat16, &t - &outputs[0] + 50).to(t.options()));
        EXPECT_TRUE(at::equal(torch::autograd::grad(made, {inputs[i]}, starts)[0], want)) << "input " << i;
      }
    }
}

TEST_F(CudaRows, PartsOfTheMapsThatNobodyUsesHaveNoGradient) {
  for (const StepCase& one : generators(cuda::step_kernels())) {
    if (one.inputs[0].scalar_type() != at::kFloat) continue;
    for (size_t used = 0; used < one.cuda(one.inputs).size(); ++used) {
      const auto only = [&](const auto& run) {
        TensorVector inputs = one.inputs;
        for (Tensor& t : inputs) t = t.detach().requires_grad_();
        const Tensor out = run(inputs)[used];
        return torch::autograd::grad({out.pow(3).sum()}, inputs, {}, {}, false, true);
      };
      const TensorVector have = only(one.cuda), want = only(one.torch);
      for (size_t i = 0; i < have.size(); ++i) {
        const Tensor none = at::zeros_like(one.inputs[i]);  // torch has a node for maps and one for gates
        const Tensor mine = have[i].defined() ? have[i] : none, theirs = want[i].defined() ? want[i] : none;
        EXPECT_LE((mine - theirs).norm().item<double>(), 1e-6 * (1e-3 + theirs.norm().item<double>()));
      }
    }
  }
}

TEST_F(CudaRows, SecondDerivativesAreRefused) {
  for (const Cases cases : kAll) {
    const StepCase one = cases(cuda::step_kernels())[0];
    TensorVector inputs = one.inputs;
    inputs[0] = inputs[0].detach().requires_grad_();
    const Tensor out = one.cuda(inputs)[0].sum();
    EXPECT_THROW(torch::autograd::grad({out}, {inputs[0]}, {}, true, true), c10::NotImplementedError) << one.name;
  }
}

TEST_F(CudaRows, WhatTheyDoNotTakeIsLeftToTorch) {
  const Tensor x = drawn_at_random({2, 3, 8, 8}, at::kDouble, 1), f = x.to(at::kFloat);
  EXPECT_EQ(cuda_rms_norm_why_not(f, {}), "");
  EXPECT_EQ(cuda_rms_norm_why_not(x, {}), "x has dtype Double");
  EXPECT_EQ(cuda_rms_norm_why_not(f, at::ones({8}, at::kDouble)), "weight has dtype Double");
  EXPECT_EQ(cuda_rms_norm_why_not(at::empty({0, 8}), {}), "x has no rows");
  EXPECT_EQ(cuda_rms_norm_why_not(at::empty({1, 16385}), {}), "more than 16384 columns");
  EXPECT_EQ(cuda_rotate_why_not(f, {at::ones({1, 3, 1, 4}), at::ones({1, 3, 1, 4}), false}), "");
  EXPECT_EQ(cuda_rotate_why_not(f, {at::ones({1, 3, 1, 4}, at::kDouble), at::ones({1, 3, 1, 4}, at::kDouble), false}),
            "tables in float32 alone");
  EXPECT_EQ(cuda_silu_times_why_not(f, x), "up has dtype Double");
  EXPECT_EQ(cuda_token_loss_why_not(f[0], at::zeros({3, 8}, at::kLong)), "");
  EXPECT_EQ(cuda_token_loss_why_not(f[0], at::zeros({3, 8}, at::kByte)), "targets in int64 alone");
  EXPECT_EQ(cuda_dcmha_maps_why_not(f[0], {.heads = 8, .groups = 2, .rank = 2, .branches = 2}),
            "more than one group of heads");
  EXPECT_EQ(cuda_dcmha_maps_why_not(f[0], {.heads = 8, .rank = 2, .branches = 3}), "more than two branches");
}

TEST_F(CudaRows, LinearLayersOfKeptWeightsAreThoseOfTorch) { expect_linear_like_torch(at::kCPU, cuda::step_kernels()); }

TEST_F(CudaRows, LinearLayersSayWhatTheyDoNotTake) {
  at::NoGradGuard no_grad;
  const Tensor w = at::ones({8, 32});
  WeightArena arena(2 * arena_bytes(WeightType::int8, 8, 32));
  const LinearLayer kept{kept_in(WeightType::int8, w, arena)}, plain{{w}},
      odd{kept_in(WeightType::int8, at::ones({8, 30}), arena)};
  const auto reason = [](const Tensor& x, const LinearLayer& layer) { return cuda_linear_why_not(x, {&layer, 1}); };
  EXPECT_EQ(reason(at::ones({1, 32}), kept), "");
  EXPECT_EQ(reason(at::ones({65, 32}), kept), "more than 64 rows");
  EXPECT_EQ(reason(at::ones({1, 32}, at::kDouble), kept), "x in float32 alone");
  EXPECT_EQ(reason(at::ones({2, 64}).narrow(1, 0, 32), kept),
            "x that has gaps or does not lie at a multiple of 16 bytes");
  EXPECT_EQ(reason(at::ones({1, 32}), plain), "weights that are not kept in fewer bits");
  EXPECT_EQ(reason(at::ones({1, 30}), odd), "rows of weights that are no multiple of 4");
  at::AutoGradMode gradients(true);
  EXPECT_EQ(reason(at::ones({1, 32}), kept), "gradients are on");
}

}  // namespace
}  // namespace motet
