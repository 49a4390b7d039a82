#include "motet/mechanisms/dcmha/dcmha.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "motet/mechanisms/testing.h"

namespace motet {
namespace {

using namespace testing;

// One place, two heads, rank 2: the worked example of README.md.
TEST(Dcmha, ComposeWorkedExample) {
  const auto t = [](std::vector<double> v, std::vector<int64_t> shape) {
    return at::tensor(v, at::kDouble).view(shape);
  };
  const QueryMix q{t({1, 0, 0, 1}, {1, 1, 2, 2}), t({.1, .2, .3, .4}, {1, 1, 2, 2}), t({.5, -.5}, {1, 1, 2}), {}};
  const KeyMix k{t({1, 1, 0, 0}, {1, 1, 2, 2}), t({.1, -.1, .7, .7}, {1, 1, 2, 2}), t({0, .25}, {1, 1, 2}), {}};
  const Tensor out = apply_head_mix(t({1, 2}, {1, 2, 1, 1}), {true, {}}, q, k).flatten();
  EXPECT_NEAR(out[0].item<double>(), 2.5, 1e-14);
  EXPECT_NEAR(out[1].item<double>(), 2.2, 1e-14);
}

TEST(Dcmha, QueryWiseHasNoKeySide) {
  const auto m = make({.options = {{"mechanism", "dcmha"}, {"sides", "query"}}});
  const Keys keys = m->keys(at::randn({1, 3, 16}, at::kDouble), span_of(0, 3));
  EXPECT_FALSE(keys.pre.down_BSRH.defined() || keys.pre.gate_BSH.defined() || keys.post.down_BSRH.defined());
}

// A branch that is never used would count in "models of equal size".
TEST(Dcmha, OnlyBranchesThatAreOnAreStored) {
  const auto branches = [](nlohmann::json options, std::vector<int> on) {
    options["mechanism"] = "dcmha";
    const auto m = make({.options = options});
    const int64_t count = static_cast<int64_t>(on.size());
    const auto p = m->named_parameters();
    EXPECT_EQ(p["compose_hidden"].size(2), count) << options;
    EXPECT_EQ(p["compose_up"].size(1), count) << options;
    EXPECT_EQ(p["compose_gate"].size(1), count) << options;
    const Tensor x = at::randn({1, 3, 16}, at::kDouble);
    const Queries q = m->queries(x, span_of(0, 3));
    const Keys k = m->keys(x, span_of(0, 3));
    const bool defined[] = {q.pre.gate_BTH.defined(), k.pre.gate_BSH.defined(), q.post.gate_BTH.defined(),
                            k.post.gate_BSH.defined()};
    for (int branch = 0; branch < 4; ++branch)
      EXPECT_EQ(defined[branch], std::count(on.begin(), on.end(), branch) > 0) << options << kDcmhaBranches[branch];
  };
  branches({}, {0, 1, 2, 3});
  branches({{"sides", "query"}}, {0, 2});
  branches({{"sides", "key"}}, {1, 3});
  branches({{"where", "pre"}}, {0, 1});
  branches({{"where", "post"}}, {2, 3});
  branches({{"where", "pre"}, {"sides", "key"}}, {1});
}

TEST(Dcmha, FreshMapIsNearTheIdentity) {
  const Setting setting{
      .hidden_size = 64, .causal = true, .options = resolve_attention({{"mechanism", "dcmha"}}, "model.attention")};
  const auto m = make_mechanism(setting);
  at::NoGradGuard no_grad;
  for (Tensor p : m->parameters()) p.normal_(0, 0.1);
  m->initialize_extras(Streams(1));
  const Tensor x = at::randn({1, 6, 64});
  const AttentionMaps maps = attention_maps(m->queries(x, span_of(0, 6)), m->keys(x, span_of(0, 6)),
                                            m->attention(span_of(0, 6), span_of(0, 6), Pass::whole));
  const double change = (maps.mixed_BHTS - maps.weights_BHTS).abs().max().item<double>();
  EXPECT_GT(change, 0);
  EXPECT_LT(change, 0.2);
}

TEST(Dcmha, GroupsDoNotMix) {
  const auto m = make({.options = {{"mechanism", "dcmha"}, {"groups", 2}, {"static", true}}});
  const Tensor x = at::randn({1, 4, 16}, at::kDouble);
  const Queries q = m->queries(x, span_of(0, 4));
  const Keys k = m->keys(x, span_of(0, 4));
  const Attention a = m->attention(span_of(0, 4), span_of(0, 4), Pass::whole);
  Tensor scores = at::zeros({1, 4, 4, 4}, at::kDouble);
  scores.slice(1, 0, 2).fill_(1);  // only the first group
  EXPECT_EQ(apply_head_mix(scores, a.pre, q.pre, k.pre).slice(1, 2, 4).abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace motet
