#include "motet/train/freeze.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

using namespace testing;

TEST(Freeze, StarsStandForAnything) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*c", "abbc"));
  EXPECT_TRUE(matches("*.mlp.*", "model.layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(matches("a**", "a"));
  EXPECT_FALSE(matches("a*c", "abcd"));
  EXPECT_FALSE(matches("mlp", "model.mlp"));
  EXPECT_FALSE(matches("", "a"));
}

TEST(Freeze, PatternsFollowEachOther) {
  Model model = fresh(tiny());
  const int64_t frozen = freeze(*model, {"*", "!*v_proj*"});
  for (const auto& item : model->named_parameters())
    EXPECT_EQ(item.value().requires_grad(), item.key().find("v_proj") != std::string::npos) << item.key();
  EXPECT_EQ(frozen, model->num_parameters() - 2 * 16 * 16);
  ops::token_loss(model->forward(at::arange(8).view({1, 8})), at::arange(8).view({1, 8})).backward();
  for (const auto& item : model->named_parameters())
    EXPECT_EQ(item.value().grad().defined(), item.value().requires_grad()) << item.key();
}

TEST(Freeze, WrongPatternsAreRefused) {
  Model model = fresh(tiny());
  EXPECT_NE(message_of<UsageError>([&] { freeze(*model, {"*.mpl.*"}); }).find("names no parameter"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { freeze(*model, {"*"}); }).find("every parameter is frozen"),
            std::string::npos);
}

}  // namespace
}  // namespace motet
