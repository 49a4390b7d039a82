#include "motet/bench/shape.h"

#include <gtest/gtest.h>

#include "motet/bench/attention_bench.h"
#include "motet/bench/train_bench.h"
#include "motet/core/error.h"

namespace motet {
namespace {

std::string message(const std::string& shape) {
  try {
    parse_shape(shape, attention_shape_options());
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Shape, NamedSizesReplaceTheDefaults) {
  const nlohmann::json shape = parse_shape("T=96,mechanism=dcmha", attention_shape_options());
  EXPECT_EQ(shape["T"], 96);
  EXPECT_EQ(shape["mechanism"], "dcmha");
  EXPECT_EQ(shape["H"], 8);
}

TEST(Shape, NothingGivenIsTheDefaults) {
  EXPECT_EQ(parse_shape("", train_shape_options().table()), train_shape_options().write({}));
}

TEST(Shape, UnknownKeyNamesTheNearest) {
  EXPECT_EQ(message("mechansim=mha"),
            "--shape: unknown key 'mechansim': nearest is 'mechanism'; known: T, H, D, B, mechanism");
}

TEST(Shape, UnknownMechanismNamesTheNearest) {
  EXPECT_NE(message("mechanism=dcmah").find("nearest is 'dcmha'"), std::string::npos);
}

TEST(Shape, ValuesAreChecked) {
  EXPECT_EQ(message("T=-3"), "--shape: T: '-3' is below 1");
  EXPECT_EQ(message("T=1.5"), "--shape: T: '1.5' is not an integer, want integer, 1 to 1048576");
  EXPECT_EQ(message("T=8,T=9"), "--shape: T is given twice");
}

TEST(Shape, APartThatIsNoSizeIsRefused) {
  for (const char* shape : {"512", "=512", "T=8,", ",T=8", ","})
    EXPECT_NE(message(shape).find("want KEY=VALUE such as T=512"), std::string::npos) << shape;
}

TEST(AttentionCases, OneMechanismAtOneShape) {
  const auto cases = attention_cases("T=64,H=2,mechanism=talking_heads");
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].mechanism, "talking_heads");
  EXPECT_EQ(cases[0].size.T, 64);
}

TEST(AttentionCases, AShapeWithoutMechanismTakesAll) {
  EXPECT_EQ(attention_cases("T=64").size(), benched_operators().size());
}

TEST(AttentionCases, OddHeadsAreRefusedBeforeAnythingRuns) { EXPECT_THROW(attention_cases("H=3"), UsageError); }

TEST(AttentionBench, EveryOperatorAgreesWithTheDefinition) {
  for (const std::string& name : benched_names()) check_operator({name, {.B = 2, .T = 33, .H = 2, .D = 8}});
}

}  // namespace
}  // namespace motet
