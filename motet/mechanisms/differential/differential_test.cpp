#include "motet/mechanisms/differential/differential.h"

#include <gtest/gtest.h>

#include "motet/mechanisms/testing.h"

namespace motet {
namespace {

using namespace testing;

TEST(Differential, LambdaWorkedExample) {
  const auto m = make({.options = {{"mechanism", "differential"}, {"num_heads", 2}, {"head_dim", 2}}, .layer = 0});
  at::NoGradGuard no_grad;
  auto p = m->named_parameters();
  const auto set = [&](const char* name, double a, double b) { p[name].copy_(at::tensor({a, b}, at::kDouble)); };
  set("lambda_q1", .1, .2), set("lambda_k1", .1, .2), set("lambda_q2", .2, -.1), set("lambda_k2", .1, .1);
  EXPECT_NEAR(dynamic_cast<Differential&>(*m).lambda().item<double>(), 0.2412209, 1e-7);
}

TEST(Differential, LambdaInitFollowsDepth) {
  const double want[] = {0.2, 0.355509, 0.470713, 0.556058};
  for (int64_t layer = 0; layer < 4; ++layer) {
    const auto m = make({.options = {{"mechanism", "differential"}}, .layer = layer});
    EXPECT_NEAR(dynamic_cast<Differential&>(*m).lambda_init(), want[layer], 1e-6);
  }
}

TEST(Differential, GroupedKeysOfV1AlternateInsideAPair) {
  const auto m = make({.options = {{"mechanism", "differential"}, {"num_heads", 8}, {"num_kv_heads", 4}}});
  EXPECT_EQ(m->attention(span_of(0, 1), span_of(0, 1), Pass::whole).heads.key_of,
            (std::vector<int64_t>{0, 1, 0, 1, 2, 3, 2, 3}));
}

AttentionMaps maps_of(Mechanism& m, const Tensor& x) {
  const Positions at = span_of(0, x.size(1));
  return attention_maps(m.queries(x, at), m.keys(x, at), m.attention(at, at, Pass::whole));
}

// lambda: sigmoid(w x), w x, or 1.
TEST(Differential, WeightOfV2PairsSumsToOneMinusLambda) {
  at::NoGradGuard no_grad;
  for (const char* kind : {"sigmoid", "raw", "none"}) {
    const auto m = make({.options = {{"mechanism", "differential"}, {"version", "v2"}, {"lambda_form", kind}}});
    const Tensor x = at::randn({1, 5, 16}, at::kDouble);
    Tensor lambda_BTH = at::ones({1, 5, 4}, at::kDouble);
    if (std::string(kind) != "none") lambda_BTH = at::matmul(x, m->named_parameters()["lambda_proj.weight"].t());
    if (std::string(kind) == "sigmoid") lambda_BTH = lambda_BTH.sigmoid();
    EXPECT_TRUE(maps_of(*m, x).mixed_BHTS.sum(-1).allclose(1 - lambda_BTH.transpose(1, 2))) << kind;
    const std::vector<Diagnostic> told = m->diagnostics(x, m->queries(x, span_of(0, 5)), m->keys(x, span_of(0, 5)));
    EXPECT_NEAR(told.back().values_H.mean().item<double>(), lambda_BTH.mean().item<double>(), 1e-12) << kind;
    EXPECT_EQ(m->named_parameters().contains("lambda_proj.weight"), std::string(kind) != "none");
  }
}

// Heads i and i + H of 2H, whose stored heads differ: each map weighs its own values.
TEST(Differential, PairsAcrossStoredHeadsSubtractOutputsOfDifferentValues) {
  at::NoGradGuard no_grad;
  const auto m =
      make({.options = {{"mechanism", "differential"}, {"version", "v2"}, {"pairs", "across"}, {"num_kv_heads", 2}}});
  const Tensor x = at::randn({1, 5, 16}, at::kDouble);
  const auto p = m->named_parameters();
  const AttentionMaps maps = maps_of(*m, x);
  EXPECT_EQ(maps.weights_BHTS.size(1), 8);
  const Tensor values = at::matmul(x, p["v_proj.weight"].t()).view({5, 2, 4}).permute({1, 0, 2});  // [G,S,E]
  const Tensor lambda = at::matmul(x, p["lambda_proj.weight"].t()).sigmoid()[0];                   // [T,H]
  std::vector<Tensor> heads;
  for (int64_t i = 0; i < 4; ++i)  // four query heads read a stored one
    heads.push_back(at::matmul(maps.weights_BHTS[0][i], values[0]) -
                    lambda.select(1, i).unsqueeze(1) * at::matmul(maps.weights_BHTS[0][i + 4], values[1]));
  const Tensor want = at::matmul(at::cat(heads, 1), p["o_proj.weight"].t());
  EXPECT_TRUE(m->forward(x, span_of(0, 5))[0].allclose(want, 1e-10, 1e-12));
}

// At each place: heads plus their low-rank map, by the query's and by the key's state, subtracted in pairs, plus a
// static map of the heads.
TEST(Differential, CompositionIsBeforeTheSubtraction) {
  at::NoGradGuard no_grad;
  const auto m = make({.options = {{"mechanism", "differential"}, {"compose", true}}});
  const Tensor x = at::randn({1, 5, 16}, at::kDouble);
  const auto p = m->named_parameters();
  EXPECT_FALSE(p.contains("compose_gate"));
  // rows [T,2R,N] of a branch: gelu(x hidden) up; the first R are normed.
  const auto rows = [&](int64_t branch) {
    const Tensor hidden = at::gelu(at::matmul(x[0], p["compose_hidden"].select(2, branch).squeeze(1)));
    const Tensor all = at::einsum("tk,krn->trn", {hidden, p["compose_up"][0][branch]});
    const Tensor down = all.slice(1, 0, 2);
    return std::pair(down / (down.square().mean(-1, true) + 1e-6).sqrt(), all.slice(1, 2));
  };
  const auto [query_down, query_up] = rows(0);
  const auto [key_down, key_up] = rows(1);
  const AttentionMaps maps = maps_of(*m, x);
  const Tensor weights = maps.weights_BHTS[0];  // [N,T,S]
  const Tensor composed = weights + at::einsum("nts,trn,trm->mts", {weights, query_down, query_up}) +
                          at::einsum("nts,srn,srm->mts", {weights, key_down, key_up});
  const Tensor lambda = dynamic_cast<Differential&>(*m).lambda();
  const Tensor want = composed.slice(0, 0, 4, 2) - lambda * composed.slice(0, 1, 4, 2) +
                      at::einsum("nts,nm->mts", {weights, p["compose_static"]});
  EXPECT_TRUE(maps.mixed_BHTS[0].allclose(want, 1e-10, 1e-12));
  EXPECT_FALSE(m->decays("compose_static"));
  EXPECT_TRUE(m->decays("compose_up"));
}

}  // namespace
}  // namespace motet
