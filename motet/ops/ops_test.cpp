// Every row of every table but `cuda` against the plain definition in float64; what a row cannot take is refused when
// it is named, and operands on mixed devices never reach one.
#include <gtest/gtest.h>

#include <functional>

#include "motet/core/error.h"
#include "motet/core/instructions.h"
#include "motet/core/testing.h"
#include "motet/ops/dropout.h"
#include "motet/ops/ops.h"
#include "motet/ops/table.h"
#include "motet/ops/views.h"

namespace motet {
namespace {

using testing::message_of;

TEST(Ops, RmsNormsGradientsMatchDifferences) {
  const Tensor x = at::randn({3, 5}, at::kDouble).requires_grad_(), w = at::randn({5}, at::kDouble).requires_grad_();
  const Tensor c = at::randn({3, 5}, at::kDouble);
  (ops::rms_norm(x, w, 1e-3) * c).sum().backward();
  const Tensor x2 = x.detach().clone().requires_grad_(), w2 = w.detach().clone().requires_grad_();
  (x2 * (x2.pow(2).mean(-1, true) + 1e-3).rsqrt() * w2 * c).sum().backward();
  EXPECT_LE((x.grad() - x2.grad()).abs().max().item<double>(), 1e-13);
  EXPECT_LE((w.grad() - w2.grad()).abs().max().item<double>(), 1e-13);
}

TEST(Ops, RowOfZerosHasAFiniteGradient) {
  const Tensor x = at::zeros({2, 4}, at::kDouble).requires_grad_();
  ops::rms_norm(x, {}, 1e-6).sum().backward();
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

// The message of the c10::ValueError that `call` throws.
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::ValueError& error) {
    return error.what_without_backtrace();
  }
  return "nothing was refused";
}

/// A function of one tensor, and of parameters that are made as the tensor is, through a named row.
struct Case {
  const char* table;
  std::vector<int64_t> shape;
  std::function<Tensor(const Tensor& x, const char* kernel)> run;
};

// Parameters are drawn in float64 and take x's dtype and device.
Tensor like(const Tensor& x, at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::kDouble).to(x.options());
}

// Tables of all sequences, or of each its own.
Rotation turned_by(const Tensor& x, bool interleaved, int64_t tables = 1) {
  const Tensor angle = like(x, {tables, x.size(1), 1, 3}, 5);
  return {angle.cos(), angle.sin(), interleaved};
}

// A side with both branches; x decides its dtype. up_rows are the prepared form.
DcmhaGenerator generator(const Tensor& x, bool by_tanh) {
  DcmhaGenerator g{.heads = 4, .rank = 2, .branches = 2, .gelu_by_tanh = by_tanh};
  const int64_t hidden = 2 * g.rank * g.heads;
  g.rows_XC = {like(x, {2 * hidden + 2 * g.heads, x.size(2)}, 6) * 0.3};
  g.up_QKM = like(x, {2, hidden, 2 * g.rank * g.heads}, 7) * 0.3;
  g.up_rows_PMK = g.up_QKM.transpose(1, 2).contiguous();
  return g;
}

Tensor joined(const std::vector<DcmhaMaps>& all) {
  std::vector<Tensor> parts;
  for (const DcmhaMaps& of : all)
    for (const Tensor& t : {of.down_BTRN, of.up_BTRN, of.gate_BTN})
      if (t.defined()) parts.push_back(t.flatten());
  return at::cat(parts);
}

std::vector<Case> cases() {
  return {
      {"linear",
       {3, 2, 40},
       [](const Tensor& x, const char* k) { return ops::linear(x, {{like(x, {7, 40}, 1)}, like(x, {7}, 2)}, k); }},
      {"linear",
       {1, 40},
       [](const Tensor& x, const char* k) {
         const std::vector<LinearLayer> both{{{like(x, {7, 40}, 1)}}, {{like(x, {5, 40}, 3)}, like(x, {5}, 2)}};
         return at::cat(ops::linear_together(x, both, k), -1);
       }},
      {"rms_norm",
       {2, 3, 37},
       [](const Tensor& x, const char* k) { return ops::rms_norm(x, like(x, {37}, 1), 1e-3, k); }},
      {"rms_norm", {2, 3, 37}, [](const Tensor& x, const char* k) { return ops::rms_norm(x, {}, 1e-3, k); }},
      {"layer_norm",
       {5, 37},
       [](const Tensor& x, const char* k) { return ops::layer_norm(x, like(x, {37}, 1), like(x, {37}, 2), 1e-3, k); }},
      {"rotate", {2, 5, 3, 8}, [](const Tensor& x, const char* k) { return ops::rotate(x, turned_by(x, false), k); }},
      {"rotate", {2, 5, 3, 8}, [](const Tensor& x, const char* k) { return ops::rotate(x, turned_by(x, true), k); }},
      {"rotate",
       {2, 5, 3, 8},
       [](const Tensor& x, const char* k) { return ops::rotate(x, turned_by(x, false, 2), k); }},
      {"silu_times",
       {4, 33},
       [](const Tensor& x, const char* k) { return ops::silu_times(x, like(x, {4, 33}, 1), k); }},
      {"gelu", {4, 33}, [](const Tensor& x, const char* k) { return ops::gelu(x, false, k); }},
      {"gelu", {4, 33}, [](const Tensor& x, const char* k) { return ops::gelu(x, true, k); }},
      {"dropout",
       {3, 5, 7},
       [](const Tensor& x, const char* k) { return ops::dropout(x, {.p = 0.3, .key = 5, .first_row = 2}, k); }},
      {"dcmha_maps",
       {2, 3, 24},
       [](const Tensor& x, const char* k) { return joined(ops::dcmha_maps(x, generator(x, false), k)); }},
      {"dcmha_maps",
       {1, 1, 24},
       [](const Tensor& x, const char* k) { return joined(ops::dcmha_maps(x, generator(x, true), k)); }},
      {"dcmha_maps",
       {2, 37, 24},
       [](const Tensor& x, const char* k) { return joined(ops::dcmha_maps(x, generator(x, false), k)); }},
      {"write_rows",
       {1, 2, 3},
       [](const Tensor& x, const char* k) {
         const Tensor to = at::zeros({1, 5, 3}, x.options());
         ops::write_rows(to, 1, x, k);
         return to;
       }},
      {"write_rows",
       {1, 2, 3, 2},
       [](const Tensor& x, const char* k) {  // side by side, of several shapes
         const Tensor to = at::zeros({1, 5, 11}, x.options()), narrow = x.select(-1, 0).contiguous();
         ops::write_rows(to, 2, {x, narrow, narrow.slice(2, 0, 2).contiguous()}, k);
         return to;
       }},
      {"write_rows",
       {1, 2, 3, 2},
       [](const Tensor& x, const char* k) {  // by head
         const Tensor to = at::zeros({1, 3, 5, 2}, x.options());
         ops::write_rows(to.transpose(1, 2), 2, x, k);
         return to;
       }},
      {"token_loss",
       {2, 3, 11},
       [](const Tensor& x, const char* k) {
         const Tensor targets = at::arange(6, x.options().dtype(at::kLong)).view({2, 3});
         return at::cat({ops::token_loss(x, targets, Loss::each, k).flatten(),
                         ops::token_loss(x, targets, Loss::mean, k).view(1)});
       }},
  };
}

TEST(Ops, EveryRowOfEveryTableIsTheDefinition) {
  at::NoGradGuard no_grad;
  std::set<std::string> ran;
  for (const Case& one : cases()) {
    const Tensor x = like(at::empty(0, at::kDouble), one.shape, 11);
    const Tensor want = one.run(x, "torch");
    const auto table = std::ranges::find(kernel_tables(), one.table, &KernelTable::name);
    ASSERT_NE(table, kernel_tables().end());
    for (const std::string& row : table->rows) {
      if (row == "cuda" || row == "tiles") continue;  // cuda_test.cpp, kernels/linear_tiles_test.cpp
      const Tensor got = one.run(x.to(at::kFloat), row.c_str());
      EXPECT_LE((got - want).abs().max().item<double>(), 3e-6 * (1 + want.abs().max().item<double>()))
          << one.table << '=' << row;
      ran.insert(one.table);
    }
  }
  EXPECT_EQ(ran.size() + 1, kernel_tables().size()) << "all but attention";
}

TEST(Ops, RowsLieWhereTheyLay) {
  const Tensor x = at::arange(2 * 7 * 3, at::kFloat).view({2, 7, 3});
  for (const bool inference : {true, false}) {
    const c10::InferenceMode mode(inference);
    for (const Tensor& from : {x, x.transpose(1, 2), x.narrow(1, 2, 4), x.to(at::kChar)}) {
      const Tensor got = ops::rows(from, 1, 2);
      EXPECT_TRUE(got.equal(from.narrow(1, 1, 2)));
      EXPECT_EQ(got.const_data_ptr(), from.narrow(1, 1, 2).const_data_ptr());
    }
    EXPECT_EQ(ops::rows(x, 7, 0).numel(), 0);
    EXPECT_THROW(ops::rows(x, 6, 2), c10::Error);
  }
}

TEST(Ops, GatesAloneNeedNoPreparedGenerator) {
  at::NoGradGuard no_grad;
  const Tensor x = like(at::empty(0, at::kFloat), {2, 3, 24}, 15);
  DcmhaGenerator g{.heads = 4, .rank = 2, .branches = 2, .maps = false, .gates = true};
  const Tensor weight_XC = like(x, {24, 8}, 16).t();
  g.rows_XC = {weight_XC};
  for (const DcmhaMaps& of : ops::dcmha_maps(x, g)) EXPECT_FALSE(of.down_BTRN.defined() || of.up_BTRN.defined());
  const Tensor got = at::cat({ops::dcmha_maps(x, g)[0].gate_BTN, ops::dcmha_maps(x, g)[1].gate_BTN}, 2);
  // Each compares sums of 24 products in another order, which are up to about 10.
  EXPECT_LE((got - at::tanh(at::matmul(x, weight_XC.t()))).abs().max().item<double>(), 4e-6);
  g.rows_XC = {weight_XC.contiguous()};
  const std::vector<DcmhaMaps> rows = ops::dcmha_maps(x, g, "rows");
  EXPECT_LE((got - at::cat({rows[0].gate_BTN, rows[1].gate_BTN}, 2)).abs().max().item<double>(), 4e-6);
}

TEST(Ops, AGeneratorInFewerBitsIsThatOfItsWideNumbers) {
  at::NoGradGuard no_grad;
  for (const WeightType type : {WeightType::bfloat16, WeightType::float16, WeightType::int8})
    for (const bool gates : {true, false}) {
      SCOPED_TRACE(text(name(type), " ", gates));
      const Tensor x = like(at::empty(0, at::kFloat), {1, 3, 24}, 15);
      DcmhaGenerator wide = generator(x, false), kept = wide;
      const Tensor rows = wide.rows_XC.values_NK.narrow(0, 0, gates ? 40 : 32).contiguous();
      WeightArena arena(arena_bytes(type, rows.size(0), rows.size(1)));
      wide.gates = kept.gates = gates;
      kept.rows_XC = kept_in(type, rows, arena);
      wide.rows_XC = {widened(kept.rows_XC)};
      const Tensor wanted = joined(ops::dcmha_maps(x, wide, "rows"));
      for (const char* kernel : {"rows", "torch"})
        EXPECT_LE((joined(ops::dcmha_maps(x, kept, kernel)) - wanted).abs().max().item<double>(), 1e-4) << kernel;
    }
}

TEST(Ops, GradientsMatchDifferences) {
  for (const Case& one : cases()) {
    if (std::string(one.table) == "write_rows") continue;  // has none
    const Tensor x = like(at::empty(0, at::kDouble), one.shape, 12).requires_grad_();
    const Tensor c = like(x, one.run(x, nullptr).sizes(), 13).detach();
    (one.run(x, nullptr) * c).sum().backward();
    at::NoGradGuard no_grad;
    const Tensor along = like(x, one.shape, 14).detach();
    const double h = 1e-6;
    const Tensor slope = (one.run(x + along * h, "torch") - one.run(x - along * h, "torch")).mul(c).sum() / (2 * h);
    const double want = slope.item<double>();
    EXPECT_NEAR((x.grad() * along).sum().item<double>(), want, 1e-6 * (1 + std::abs(want))) << one.table;
  }
}

// Float32 beside the definition in float64, on more numbers than one part of them; the bits on any number of threads,
// whose thirds end 15 numbers into a vector.
TEST(Ops, TheCpuKernelOfSwigluHasItsGradients) {
  const int64_t threads = at::get_num_threads();
  std::vector<std::vector<Tensor>> found;
  for (const auto& [type, row, used] :
       {std::tuple(at::kDouble, "torch", 1), {at::kFloat, "rows", 1}, {at::kFloat, "rows", 3}}) {
    at::set_num_threads(used);
    const auto operand = [&](int64_t number) {
      return (like(at::empty(0, at::kDouble), {7, 31, 501}, number) * 4).to(at::kFloat).to(type).requires_grad_();
    };
    Tensor gate = operand(1), up = operand(2);
    const Tensor y = ops::silu_times(gate, up, row);
    (y * operand(3).detach()).sum().backward();
    found.push_back({y.detach(), gate.grad(), up.grad()});
  }
  at::set_num_threads(static_cast<int>(threads));
  for (size_t i = 0; i < 3; ++i) {
    const Tensor &want = found[0][i], &got = found[1][i];
    EXPECT_LE(((got - want).abs() / (1 + want.abs())).max().item<double>(), 2e-6) << i;
    EXPECT_TRUE(at::equal(got, found[2][i])) << i;
  }
}

// More rows than stay in L2, blocks and tiles that are short at the end, on any number of threads; a row by itself.
TEST(Ops, ARowOfManyHasTheBitsThatItHasAlone) {
  at::NoGradGuard no_grad;
  const int64_t used = at::get_num_threads();
  const Tensor w = at::randn({701, 300}), bias = at::randn({701}), x = at::randn({2, 67, 300});
  for (const WeightType type : {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8}) {
    WeightArena arena(arena_bytes(type, 701, 300));
    const LinearLayer layer{kept_in(type, w, arena), bias};
    const Tensor want = ops::linear(x, layer, "torch");
    at::set_num_threads(1);
    const Tensor one = ops::linear(x, layer, "rows");
    EXPECT_LE((one - want).abs().max().item<double>(), 1e-4);
    at::set_num_threads(3);
    EXPECT_TRUE(at::equal(ops::linear(x, layer), one));
    for (const int64_t t : {0, 1, 66}) EXPECT_TRUE(at::equal(ops::linear(x[1][t], layer), one[1][t])) << t;
    at::set_num_threads(static_cast<int>(used));
  }
}

TEST(Ops, KeptWeightsStandForTheSameNumbersInEveryRow) {
  at::NoGradGuard no_grad;
  const Tensor w = at::randn({7, 40}), x = at::randn({17, 40}), ids = at::tensor({3, 0, 6, 3}, at::kLong);
  for (const WeightType type : {WeightType::float32, WeightType::bfloat16, WeightType::float16, WeightType::int8}) {
    WeightArena arena(arena_bytes(type, 7, 40));
    const Matrix kept = kept_in(type, w, arena);
    const Tensor numbers = widened(kept);
    EXPECT_LE((numbers - w).abs().max().item<double>(), type == WeightType::float32 ? 0 : 0.05);
    const Tensor many = ops::linear(x, {kept}), few = ops::linear(x.slice(0, 0, 16), {kept});
    EXPECT_LE((many - at::linear(x, numbers)).abs().max().item<double>(), 1e-4);
    EXPECT_LE((many.slice(0, 0, 16) - few).abs().max().item<double>(), 1e-4);
    EXPECT_TRUE(at::equal(ops::embedding(kept, ids), numbers.index_select(0, ids)));
  }
}

// Half of the memory, and not another bit: numbers that 16 bits hold are multiplied as in float32, in any tile.
TEST(Ops, SixteenBitsGiveTheBitsOfTheirNumbersInFloat32) {
  at::NoGradGuard no_grad;
  for (const WeightType type : {WeightType::bfloat16, WeightType::float16})
    for (const int64_t rows : {1, 2, 4, 8, 13, 40}) {
      const Tensor w = at::randn({101, 300}), x = at::randn({rows, 300}), bias = at::randn({101});
      WeightArena arena(arena_bytes(type, 101, 300));
      const Matrix kept = kept_in(type, w, arena);
      EXPECT_TRUE(at::equal(ops::linear(x, {kept, bias}), ops::linear(x, {{widened(kept)}, bias})))
          << name(type) << ' ' << rows;
    }
}

TEST(Ops, Float16TakesNoWeightThatItCannotHold) {
  at::NoGradGuard no_grad;
  Tensor w = at::ones({2, 8});
  w[1][3] = -65520;  // rounds to infinity; 65519 does not
  WeightArena arena(arena_bytes(WeightType::float16, 2, 8));
  EXPECT_EQ(message_of<Error>([&] { kept_in(WeightType::float16, w, arena); }),
            "weights of up to 65520 cannot be kept in float16, want bfloat16");
  w[1][3] = -65519;
  WeightArena other(arena_bytes(WeightType::float16, 2, 8));
  EXPECT_EQ(widened(kept_in(WeightType::float16, w, other))[1][3].item<float>(), -65504);
}

// By its name, or for the precision high: six products of parts, or three, which differ. A CPU without tiles says so.
TEST(Ops, TilesMultiplyLinearLayersWhereTheyAreAskedFor) {
  const Tensor x = at::randn({40, 70}), w = at::randn({33, 70});
  const LinearLayer highest{{w}}, high{{w}, {}, Precision::high};
  const Tensor want = at::linear(x.to(at::kDouble), w.to(at::kDouble));
  const auto off = [&](const Tensor& y) { return ((y - want).norm() / want.norm()).item<double>(); };
  EXPECT_LT(off(ops::linear(x, high).detach()), 1e-6) << "gradients are on: torch's products";
  at::NoGradGuard no_grad;
  const std::string by_rows = refusal([&] { ops::linear(x, high, "rows"); });
  EXPECT_EQ(by_rows, "linear: kernel rows cannot run this problem: precision is high, which tiles alone has");
#if defined(__x86_64__)
  const std::string lacking = why_not_amx();
#else
  const std::string lacking = "only on x86-64";
#endif
  if (!lacking.empty()) {
    EXPECT_EQ(refusal([&] { ops::linear(x, highest, "tiles"); }),
              "linear: kernel tiles cannot run this problem: " + lacking);
    EXPECT_TRUE(at::equal(ops::linear(x, high), ops::linear(x, highest, "torch")));
    return;
  }
  EXPECT_LT(off(ops::linear(x, highest, "tiles")), 3e-7);
  EXPECT_GT(off(ops::linear(x, high)), 1e-6);
  EXPECT_LT(off(ops::linear(x, high)), 2e-5);
}

TEST(Ops, LayersWithoutGradientGoThroughTheKernelOfRows) {
  const Tensor x = at::randn({200, 40}), w = at::randn({7, 40});
  at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(ops::linear(x, {{w}}), ops::linear(x, {{w}}, "rows")));
  EXPECT_EQ(refusal([&] { ops::gelu(at::randn({17, 40}), false, "rows"); }).substr(0, 64),
            "gelu: kernel rows cannot run this problem: more than 16 rows");
}

TEST(Ops, RowsOfAGpuSayThatTheyNeedOne) {
  EXPECT_EQ(refusal([] { ops::rms_norm(at::ones({2, 3}), {}, 1e-5, "cuda"); }),
            "rms_norm: kernel cuda cannot run this problem: only on a GPU");
}

TEST(Ops, ATensorOfShapesAloneGoesToTheLastRowWhateverIsNamed) {
  at::NoGradGuard no_grad;
  const auto wide = at::TensorOptions(at::kMeta).dtype(at::kDouble);
  const Tensor x = at::empty({40, 3}, wide), heads = at::empty({1, 5, 2, 4}, wide), w = at::empty({7, 3}, wide);
  const Rotation by{at::empty({1, 5, 1, 2}, wide), at::empty({1, 5, 1, 2}, wide)};
  const auto expect = [](const Tensor& y, at::IntArrayRef sizes) { EXPECT_TRUE(y.is_meta() && y.sizes() == sizes); };
  for (const char* row : {"cuda", "rows"}) {
    SCOPED_TRACE(row);
    expect(ops::rms_norm(x, {}, 1e-5, row), x.sizes());
    expect(ops::rotate(heads, by, row), heads.sizes());
    expect(ops::silu_times(x, x, row), x.sizes());
    expect(ops::linear(x, {{w}}, row), {40, 7});
  }
  expect(ops::gelu(x, false, "rows"), x.sizes());
  expect(ops::linear(x, {{w}}, "tiles"), {40, 7});
}

TEST(Ops, NoRowsAreWrittenIntoACacheWithoutRoom) {
  at::NoGradGuard no_grad;
  for (const char* row : {"bytes", "torch"})
    EXPECT_NO_THROW(ops::write_rows(at::zeros({1, 0, 4}), 0, at::ones({1, 0, 4}), row));
}

// Also of what is saved for the first.
TEST(Ops, TheSecondDerivativeOfRmsNormIsThatOfItsDefinition) {
  at::manual_seed(1);
  const Tensor x = at::randn({3, 8}, at::kDouble).requires_grad_(), w = at::randn({8}, at::kDouble).requires_grad_();
  const auto second = [&](const Tensor& y) {
    const Tensor first = torch::autograd::grad({y.pow(3).sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.square().sum()}, {x, w});
  };
  const auto mine = second(ops::rms_norm(x, w, 1e-5));
  const auto wanted = second(x * (x.square().mean(-1, true) + 1e-5).rsqrt() * w);
  for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::allclose(mine[i], wanted[i], 1e-10, 1e-10)) << i;
}

TEST(Ops, OperandsOnMixedDevicesAreRefusedByName) {
  at::NoGradGuard no_grad;
  const Tensor x = at::randn({1, 2, 24}), away = at::empty({7, 24}, at::kMeta), vector = at::empty({24}, at::kMeta);
  EXPECT_EQ(refusal([&] { ops::linear(x, {{away}}); }), "linear: weight is on meta, want x's device cpu");
  EXPECT_EQ(refusal([&] { ops::linear(x, {{at::empty({24, 24})}, vector}); }),
            "linear: bias is on meta, want x's device cpu");
  EXPECT_EQ(
      refusal([&] { ops::linear(x, {{.values_NK = at::empty({7, 24}, at::kChar), .scale_N = vector, .kept = true}}); }),
      "linear: scale is on meta, want x's device cpu");
  EXPECT_EQ(refusal([&] { ops::rms_norm(x, vector, 1e-5); }), "rms_norm: weight is on meta, want x's device cpu");
  EXPECT_EQ(refusal([&] { ops::layer_norm(x, at::ones(24), vector, 1e-5); }),
            "layer_norm: bias is on meta, want x's device cpu");
  EXPECT_EQ(refusal([&] { ops::silu_times(x, at::empty({1, 2, 24}, at::kMeta)); }),
            "silu_times: up is on meta, want gate's device cpu");
  const Tensor heads = at::randn({1, 2, 3, 8});
  Rotation by = turned_by(heads, false);
  by.sin = by.sin.to(at::kMeta);
  EXPECT_EQ(refusal([&] { ops::rotate(heads, by); }), "rotate: sin is on meta, want x's device cpu");
  DcmhaGenerator g = generator(x, false);
  g.up_rows_PMK = g.up_rows_PMK.to(at::kMeta);
  EXPECT_EQ(refusal([&] { ops::dcmha_maps(x, g); }), "dcmha_maps: up_rows is on meta, want x's device cpu");
  EXPECT_EQ(refusal([&] { ops::token_loss(x, at::empty({1, 2}, at::TensorOptions(at::kLong).device(at::kMeta))); }),
            "token_loss: targets is on meta, want logits's device cpu");
  EXPECT_EQ(refusal([&] { ops::write_rows(at::zeros({1, 4, 24}, at::kMeta), 0, x); }),
            "write_rows: from is on cpu, want to's device meta");
  EXPECT_EQ(refusal([&] {
              ops::embedding({at::randn({4, 3})}, at::empty({2}, at::TensorOptions(at::kLong).device(at::kMeta)));
            }),
            "embedding: ids is on meta, want weight's device cpu");
}

TEST(Ops, ShapesThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal([] { ops::linear(at::ones({2, 3}), {{at::ones({4, 5})}}); }),
            "linear: x has shape [2, 3] and weight [4, 5], want [...,K] and [N,K]");
  EXPECT_EQ(refusal([] { ops::linear(at::ones({2, 3}), {{at::ones({4, 3})}, at::ones({1})}); }),
            "linear: bias has shape [1], want [4]");
  EXPECT_EQ(refusal([] {
              ops::linear(at::ones({2, 3}), {{.values_NK = at::ones({4, 3}, at::kChar), .scale_N = at::ones({3})}});
            }),
            "linear: scale has shape [3], want [4]");
  EXPECT_EQ(refusal([] { ops::layer_norm(at::ones({2, 3}), at::ones({3}), {}, 1e-5); }),
            "layer_norm: weight or bias is missing, want both");
  EXPECT_EQ(refusal([] { ops::rms_norm(at::ones({2, 3}), at::ones(4), 1e-5); }),
            "rms_norm: weight has shape [4], want [3]");
  EXPECT_EQ(refusal([] { ops::write_rows(at::zeros({1, 4, 2}), 3, at::ones({1, 2, 2})); }),
            "write_rows: from has shape [1, 2, 2], want rows that fit at 3 of [1, 4, 2]");
  EXPECT_EQ(refusal([] { ops::write_rows(at::zeros({1, 4, 5}), 0, {at::ones({1, 2, 2}), at::ones({1, 1, 3})}); }),
            "write_rows: from has shape [1, 1, 3], want rows that fit at 0 of [1, 4, 5]");
  EXPECT_EQ(refusal([] { ops::write_rows(at::zeros({1, 4, 5}), 0, {at::ones({1, 2, 2}), at::ones({1, 2, 2})}); }),
            "write_rows: from has 4 numbers a row, want those of [1, 4, 5]");
  EXPECT_EQ(refusal([] { ops::write_rows(at::zeros({4, 5}), 0, at::ones({1, 2, 2})); }),
            "write_rows: to has 2 dimensions and from 1 tensors, want [B,S,X] and at least one, or [B,S,G,D] and one");
  EXPECT_EQ(refusal([] { ops::write_rows(at::zeros({1, 4, 2, 3}), 0, at::ones({1, 2, 3, 2})); }),
            "write_rows: from has 6 numbers a row, want those of [1, 4, 2, 3]");
  EXPECT_EQ(refusal([] { ops::token_loss(at::zeros({1, 4, 2}), at::zeros({1, 3}, at::kLong)); }),
            "token_loss: logits has shape [1, 4, 2] and targets [1, 3], want [B,T,V] and [B,T]");
}

TEST(Ops, NamesOfTablesAndRowsAreChecked) {
  EXPECT_NO_THROW(check_kernel_choice("blocked"));
  EXPECT_NO_THROW(check_kernel_choice("linear=torch,rms_norm=rows,sdpa"));
  const auto wrong = [](const char* choice) { return message_of<UsageError>([=] { check_kernel_choice(choice); }); };
  EXPECT_EQ(wrong("block"),
            "MOTET_KERNEL: unknown kernel of attention 'block': nearest is 'blocked'; known: flash, cuda, "
            "fused_amx, fused, sdpa, blocked");
  EXPECT_EQ(wrong("gelu=row"), "MOTET_KERNEL: unknown kernel of gelu 'row': nearest is 'rows'; known: rows, torch");
  EXPECT_EQ(wrong("gleu=rows").substr(0, 51), "MOTET_KERNEL: unknown table 'gleu': nearest is 'gel");
  EXPECT_EQ(wrong("").substr(0, 47), "MOTET_KERNEL: unknown kernel of attention '': k");
  EXPECT_EQ(wrong("blocked,"), wrong(""));
  EXPECT_EQ(refusal([] { ops::gelu(at::ones(3), false, "trch"); }),
            "gelu: unknown kernel 'trch': nearest is 'torch'; known: rows, torch");
}

TEST(Views, AreThoseOfTorch) {
  const Tensor x = at::arange(2 * 5 * 11).view({2, 5, 11}).slice(2, 1);  // columns are not those of the memory
  for (const bool inference : {false, true}) {
    const c10::InferenceMode mode(inference);
    EXPECT_TRUE(ops::rows(x, 1, 3).equal(x.slice(1, 1, 4)));
    EXPECT_TRUE(ops::columns(x, 4, 2, {2, 3}).equal(x.slice(1, 0, 4).slice(2, 2, 8).reshape({2, 4, 2, 3})));
    EXPECT_TRUE(ops::columns(x, 5, 9, {1}).equal(x.slice(2, 9)));
    EXPECT_EQ(refusal([&] { ops::columns(x, 6, 0, {1}); }),
              "columns: 6 rows of 1 numbers from 0, want them inside [2, 5, 10]");
    EXPECT_EQ(refusal([&] { ops::columns(x, 5, 9, {2}); }),
              "columns: 5 rows of 2 numbers from 9, want them inside [2, 5, 10]");
  }
}

}  // namespace
}  // namespace motet
