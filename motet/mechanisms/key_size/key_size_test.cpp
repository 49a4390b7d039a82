#include <gtest/gtest.h>

#include "motet/mechanisms/testing.h"

namespace motet {
namespace {

using namespace testing;

TEST(KeySize, WidthsAreFreeOfEachOtherAndOfTheModel) {
  const auto m =
      make({.options = {{"mechanism", "key_size"}, {"num_heads", 2}, {"key_dim", 6}, {"value_dim", 4}, {"bias", true}},
            .hidden_size = 8});
  auto p = m->named_parameters();
  EXPECT_EQ(p["q_proj.weight"].sizes(), (std::vector<int64_t>{12, 8}));
  EXPECT_EQ(p["v_proj.weight"].sizes(), (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(p["o_proj.weight"].sizes(), (std::vector<int64_t>{8, 8}));
}

TEST(KeySize, ScaleIsThatOfTheKeyWidth) {
  at::NoGradGuard no_grad;
  const auto m = make(
      {.options = {{"mechanism", "key_size"}, {"num_heads", 2}, {"key_dim", 6}, {"value_dim", 4}}, .hidden_size = 8});
  const Tensor x = at::randn({1, 3, 8}, at::kDouble);
  const Queries q = m->queries(x, span_of(0, 3));
  const Keys k = m->keys(x, span_of(0, 3));
  const AttentionMaps maps = attention_maps(q, k, m->attention(span_of(0, 3), span_of(0, 3), Pass::whole));
  const double want = q.q_BTHD[0][2][1].dot(k.k_BSGD[0][0][1]).item<double>() * 0.408248;
  EXPECT_NEAR(maps.scores_BHTS[0][1][2][0].item<double>(), want, 1e-6 * std::abs(want));
}

}  // namespace
}  // namespace motet
