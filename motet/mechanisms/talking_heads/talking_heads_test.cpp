#include <gtest/gtest.h>

#include "motet/mechanisms/testing.h"

namespace motet {
namespace {

using namespace testing;

TEST(TalkingHeads, RowsOfTheMixAreInputHeads) {
  const Tensor mix = at::tensor({.5, .2, .1, .9}, at::kDouble).view({2, 2}),
               scores = at::tensor({1., -1.}, at::kDouble).view({1, 2, 1, 1});
  const Tensor out = apply_head_mix(scores, {false, mix}, {}, {}).flatten();
  EXPECT_NEAR(out[0].item<double>(), 0.4, 1e-15);
  EXPECT_NEAR(out[1].item<double>(), -0.7, 1e-15);
}

TEST(TalkingHeads, IdentityStartComputesPlainAttention) {
  at::NoGradGuard no_grad;
  const auto talking = make({.options = {{"mechanism", "talking_heads"}, {"dynamic", "both"}}}),
             plain = make({.options = {{"mechanism", "softmax"}}});
  talking->initialize_extras(Streams(1));
  auto parameters = talking->named_parameters();
  for (auto& p : parameters)
    if (p.key().find("mix") != std::string::npos && p.value().dim() == 3) p.value().zero_();
  for (auto& p : plain->named_parameters()) p.value().copy_(parameters[p.key()]);
  const Tensor x = at::randn({2, 5, 16}, at::kDouble);
  EXPECT_TRUE(talking->forward(x, span_of(0, 5)).allclose(plain->forward(x, span_of(0, 5)), 1e-12, 1e-12));
}

// 3 score heads: fan-in is the count of input heads, whatever the output heads.
TEST(TalkingHeads, MixesThatAreNotSquareBeginWithFanIn) {
  at::NoGradGuard no_grad;
  double sum = 0;
  int64_t count = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto m = make(
        {.options = {{"mechanism", "talking_heads"}, {"score_heads", 3}, {"softmax_heads", 5}, {"value_heads", 5}}});
    m->initialize_extras(Streams(seed));
    const Tensor mix = m->named_parameters()["logits_mix"];
    ASSERT_EQ(mix.sizes(), (std::vector<int64_t>{3, 5}));
    sum += mix.pow(2).sum().item<double>(), count += mix.numel();
    EXPECT_TRUE(m->named_parameters()["weights_mix"].equal(at::eye(5, mix.options())));
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 1.0 / 3, 0.03);
}

TEST(TalkingHeads, ResidualFormDoublesTheLogitsAtTheStart) {
  at::NoGradGuard no_grad;
  const auto m = make({.options = {{"mechanism", "talking_heads"}, {"residual", true}}});
  m->initialize_extras(Streams(1));
  const Tensor x = at::randn({1, 4, 16}, at::kDouble);
  const AttentionMaps maps = attention_maps(m->queries(x, span_of(0, 4)), m->keys(x, span_of(0, 4)),
                                            m->attention(span_of(0, 4), span_of(0, 4), Pass::whole));
  EXPECT_TRUE(maps.logits_BHTS.allclose(2 * maps.scores_BHTS));
}

TEST(TalkingHeads, AnySubsetOfTheSixTermsIsAModel) {
  const std::vector<std::string> sides{"none", "query", "key", "both"};
  for (bool fixed : {false, true})
    for (const std::string& logits : sides)
      for (const std::string& weights : sides) {
        const auto m = make({.options = {{"mechanism", "talking_heads"},
                                         {"static", fixed},
                                         {"dynamic_logits", logits},
                                         {"dynamic_weights", weights}}});
        const auto parameters = m->named_parameters();
        const auto has = [&](const char* name) { return parameters.contains(name); };
        EXPECT_EQ(has("logits_mix"), fixed);
        EXPECT_EQ(has("weights_mix"), fixed);
        EXPECT_EQ(has("query_logits_mix"), logits == "query" || logits == "both");
        EXPECT_EQ(has("key_logits_mix"), logits == "key" || logits == "both");
        EXPECT_EQ(has("query_weights_mix"), weights == "query" || weights == "both");
        EXPECT_EQ(has("key_weights_mix"), weights == "key" || weights == "both");
      }
}

TEST(TalkingHeads, DynamicGivesBothMixesTheirSidesUnlessOneHasItsOwn) {
  const auto m = make({.options = {{"mechanism", "talking_heads"}, {"dynamic", "query"}, {"dynamic_weights", "none"}}});
  EXPECT_TRUE(m->named_parameters().contains("query_logits_mix"));
  EXPECT_FALSE(m->named_parameters().contains("query_weights_mix"));
}

// The scores of coca's layer, mixed by static maps and by those of both sides.
TEST(TalkingHeads, CollinearScoresAreThoseOfCoca) {
  at::NoGradGuard no_grad;
  for (const char* form : {"exact", "slack", "strict"}) {
    const auto coca = make({.options = {{"mechanism", "coca"}, {"form", form}}}),
               both = make({.options = {{"mechanism", "talking_heads"}, {"collinear", form}, {"dynamic", "both"}}});
    auto parameters = both->named_parameters();
    for (const auto& item : coca->named_parameters()) parameters[item.key()].copy_(item.value());
    const Tensor x = at::randn({1, 5, 16}, at::kDouble);
    const Positions at = span_of(0, 5);
    const auto maps = [&](Mechanism& m) {
      return attention_maps(m.queries(x, at), m.keys(x, at), m.attention(at, at, Pass::whole));
    };
    const AttentionMaps plain = maps(*coca), mixed = maps(*both);
    EXPECT_TRUE(mixed.scores_BHTS.equal(plain.scores_BHTS)) << form;
    const auto made = [&](const char* name) { return at::einsum("btc,cnm->btnm", {x, parameters[name]}); };
    const Tensor map_TSNM =
        parameters["logits_mix"] + made("query_logits_mix")[0].unsqueeze(1) + made("key_logits_mix")[0].unsqueeze(0);
    EXPECT_TRUE(
        mixed.logits_BHTS[0].allclose(at::einsum("nts,tsnm->mts", {plain.scores_BHTS[0], map_TSNM}), 1e-10, 1e-12));
  }
}

}  // namespace
}  // namespace motet
