#include "motet/lab/look.h"

#include <gtest/gtest.h>

#include <set>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/eval/perplexity/perplexity.h"
#include "motet/mechanisms/contender.h"
#include "motet/models/testing.h"
#include "motet/probe/closely.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

TEST(Look, IsThatOfTheProbeAndOfPerplexity) {
  at::NoGradGuard no_grad;
  const Model model = fresh(tiny({{"num_layers", 2}, {"initializer_range", 0.5}}, parse_contender("dcmha", "test")));
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 400; ++i) ids.push_back(i * i % 11);
  const MemoryTokens tokens(std::vector<int32_t>(ids.begin(), ids.end()));
  const Look look = read_look({{"tokens", 300}, {"bits", {3}}, {"scale", {"head", "row"}}});
  const auto found = looked(*model.ptr(), tokens, look);

  CloseProbe probe(*model.ptr());  // all 18 windows at once; looked() takes 16
  probe.add(at::tensor(ids).slice(0, 0, 18 * 16).view({18, 16}));
  const CloseLook whole = probe.together();
  EXPECT_NEAR(found.at("logits{top 10}"), whole.logits.largest[3], 1e-5);
  EXPECT_NEAR(found.at("states{kurtosis}"), whole.states.kurtosis, 1e-4);
  for (const HeadNumbers& number : whole.numbers) {
    // These are means over rows; others are ratios of sums of a batch, or of its first row.
    if (std::set<std::string>{"self", "near", "pre_fixed", "post_by_key", "rotary_rises"}.count(number.name) == 0)
      continue;
    EXPECT_NEAR(found.at("probe{" + number.name + "}"), number.mean(), 1e-4) << number.name;
  }

  const std::vector<int64_t> first(ids.begin(), ids.begin() + 300);
  const double plain = nats_of_windows(*model.ptr(), first, {}),
               row = nats_of_windows(*model.ptr(), first, {.rounding = {3, LogitRounding::Per::row}});
  EXPECT_EQ(found.at("loss{all bits}"), plain);
  EXPECT_EQ(found.at("loss{3 bits, row}"), row);
  EXPECT_EQ(found.at("rise{3 bits, row}"), row - plain);
  EXPECT_NE(row, plain);
  EXPECT_TRUE(found.contains("loss{3 bits, head}") && !found.contains("loss{3 bits, tensor}"));
}

TEST(Look, RefusesWhatItDoesNotKnow) {
  for (const auto& [given, says] : std::vector<std::pair<json, std::string>>{{{{"token", 5}}, "look.token"},
                                                                             {{{"bits", {1}}}, "look.bits: [1]"},
                                                                             {{{"scale", {"heads"}}}, "look.scale"},
                                                                             {{{"tokens", 1}}, "look.tokens: 1"},
                                                                             {3, "look: want a table"}})
    EXPECT_NE(message_of<UsageError>([&] { read_look(given); }).find(says), std::string::npos) << given;
  const MemoryTokens text(std::vector<int32_t>(17, 1)), short_text(std::vector<int32_t>(16, 1));
  const auto refusal = [](const ModelConfig& config, const TokenSequence& validation, const json& look) {
    return message_of<UsageError>([&] { check_look(config, validation, read_look(look)); });
  };
  check_look(tiny(), text, read_look({{"tokens", 17}, {"bits", {4}}}));
  check_look(tiny({{"causal", false}}), text, read_look({{"tokens", 17}}));
  EXPECT_NE(refusal(tiny({{"causal", false}}), text, {{"bits", {4}}}).find("want them left out with model.causal"),
            std::string::npos);
  EXPECT_EQ(refusal(tiny(), short_text, json::object()),
            "look: the validation text has 16 tokens, want more than the context of 16");
  EXPECT_NE(refusal(tiny(), text, {{"tokens", 16}}).find("the context of 16"), std::string::npos);
}

}  // namespace
}  // namespace motet
