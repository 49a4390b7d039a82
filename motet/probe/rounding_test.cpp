#include "motet/probe/rounding.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/mechanisms/contender.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using Per = LogitRounding::Per;

Model made(const std::string& contender, int64_t context) {
  Model model(testing::tiny({{"num_layers", 2}}, parse_contender(contender, "test"), 11, context));
  model->to(at::kDouble);
  at::NoGradGuard no_grad;
  at::manual_seed(3);
  for (Tensor p : model->parameters()) p.normal_(0, 0.5);
  return model;
}

Tensor scored(ModelImpl& model, const Tensor& ids, const LogitRounding& rounding) {
  const Positions at = ModelImpl::positions(ids);
  return model.normed(model.walk(model.embedded(ids, at), rounded_attention(at, rounding)));
}

TEST(Rounding, KeepsTheStepsOfItsScale) {
  const Tensor x = at::tensor({-4.0, -1.9, 0.0, 0.9, 4.0}, at::kDouble).view({1, 1, 1, 5});
  const Tensor largest = x.abs().amax(3, true);
  EXPECT_TRUE(rounded_logits(x, largest, 2).equal(at::tensor({-4., 0., 0., 0., 4.}, at::kDouble).view({1, 1, 1, 5})));
  const Tensor steps = rounded_logits(x, largest, 3) / (4.0 / 3);
  EXPECT_TRUE(steps.allclose(at::tensor({-3., -1., 0., 1., 3.}, at::kDouble).view({1, 1, 1, 5})));
}

// The whole plane at once, number by number, of a layer's operator.
TEST(Rounding, IsByTheLargestOfWhatIsSeen) {
  at::NoGradGuard no_grad;
  const Tensor ids = at::arange(26).mul(7).remainder(11).view({2, 13});
  for (const char* contender : {"mha", "dcmha", "talking_heads", "differential_v1", "mha:position_bias=alibi"})
    for (const auto& [name, per] : logit_scales()) {
      Model model = made(contender, 16);
      const Positions at = ModelImpl::positions(ids);
      Block layer = model->blocks()[0];
      BlockImpl& block = *layer;
      Mechanism& m = *block.self_attn;
      const Tensor normed = at::randn({2, 13, 16}, at::kDouble);
      const Queries q = m.queries(normed, at);
      const Keys k = m.keys(normed, at);
      const Attention a = m.attention(at, at, Pass::whole);
      const auto naive = [&](const Tensor& logits, const Tensor& hidden) {
        const Tensor out = logits.clone();
        for (int64_t b = 0; b < out.size(0); ++b)
          for (int64_t h = 0; h < out.size(1); ++h)
            for (int64_t t = 0; t < out.size(2); ++t) {
              const auto part = [&](const Tensor& x) {
                return per == Per::tensor ? x[b] : per == Per::head ? x[b][h] : x[b][h][t];
              };
              const double largest = part(logits).masked_select(~part(hidden)).abs().max().item<double>();
              out[b][h][t].copy_((logits[b][h][t] * (7 / largest)).round() * (largest / 7));
            }
        return out;
      };
      const Tensor wanted = m.finish(attention_maps(q, k, a, naive).out_BTHE, normed);
      const Tensor got = rounded_attention(at, {4, per})(0, block, normed);
      EXPECT_TRUE(got.allclose(wanted, 1e-9, 1e-9)) << contender << " " << name;
      EXPECT_FALSE(got.allclose(m.forward(normed, at), 1e-3, 1e-3)) << contender << " " << name;
    }
}

// 1,200 tokens are several blocks of queries, of which the last sees the largest logit of all.
TEST(Rounding, AScaleIsThatOfAllBlocks) {
  at::NoGradGuard no_grad;
  const int64_t T = 1200;
  Model model = made("mha", T);
  const Positions at = ModelImpl::positions(at::zeros({1, T}, at::kLong));
  Block layer = model->blocks()[0];
  BlockImpl& block = *layer;
  Mechanism& m = *block.self_attn;
  for (const int64_t large : {int64_t{3}, T - 2}) {
    Tensor normed = at::randn({1, T, 16}, at::kDouble);
    normed[0][large].mul_(10);
    const auto whole = [&](const Tensor& logits, const Tensor& hidden) {
      return rounded_logits(logits, logits.masked_fill(hidden, 0).abs().amax({1, 2, 3}, true), 4);
    };
    const Tensor wanted = m.finish(
        attention_maps(m.queries(normed, at), m.keys(normed, at), m.attention(at, at, Pass::whole), whole).out_BTHE,
        normed);
    EXPECT_TRUE(rounded_attention(at, {4, Per::tensor})(0, block, normed).allclose(wanted, 1e-9, 1e-9)) << large;
  }
}

// 600 tokens are several blocks of queries.
TEST(Rounding, ToManyBitsIsTheModel) {
  at::NoGradGuard no_grad;
  const Tensor ids = at::arange(1200).mul(7).remainder(11).view({2, 600});
  Model model = made("dcmha", 600);
  for (const auto& [name, per] : logit_scales()) {
    const double fine = (scored(*model, ids, {16, per}) - model->hidden(ids)).abs().max().item<double>();
    const double coarse = (scored(*model, ids, {3, per}) - model->hidden(ids)).abs().max().item<double>();
    EXPECT_LT(fine, 0.05) << name;
    EXPECT_GT(coarse, 4 * fine) << name;
  }
  EXPECT_THROW(rounded_attention(ModelImpl::positions(ids), {1, Per::row}), UsageError);
}

}  // namespace
}  // namespace motet
