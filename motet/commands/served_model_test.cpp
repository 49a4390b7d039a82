#include "motet/commands/served_model.h"

#include <gtest/gtest.h>

#include "motet/commands/model_server.h"
#include "motet/models/testing.h"

namespace motet {
namespace {

// Logits of all of a long prompt would take more memory than its keys.
TEST(BatchModel, LogitsOfAPromptComeAFewRowsAtATime) {
  constexpr int64_t kPrompt = 100, kWords = 301, kAtOnce = 64;
  BatchModel model(testing::fresh(testing::tiny({}, {}, kWords, kPrompt)), {}, 1);
  const auto sequence = model.begin(kPrompt);
  std::vector<int32_t> ids(kPrompt);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i % kWords);
  const ServedPiece piece{sequence.get(), ids, ServedPiece::Logits::all};
  int64_t rows = 0, together = 0;
  const float* end = nullptr;
  model.step({&piece, 1}, [&](size_t, int64_t first, std::span<const float> logits, int64_t count) {
    EXPECT_EQ(first, rows);
    EXPECT_EQ(static_cast<int64_t>(logits.size()), count * kWords);
    together = logits.data() == end ? together + count : count;  // rows that lie behind each other were one product
    EXPECT_LE(together, kAtOnce);
    rows += count, end = logits.data() + logits.size();
  });
  EXPECT_EQ(rows, kPrompt);
}

TEST(ModelServer, KeysLeaveRoomForWeightsInFiles) {
  EXPECT_EQ(default_cache_bytes(1000, 0), 600);
  EXPECT_EQ(default_cache_bytes(1000, 500), 300);
  EXPECT_EQ(default_cache_bytes(1000, 990), 100);  // the weights' pages come and go then
  EXPECT_EQ(default_cache_bytes(1000, 5000), 100);
}

}  // namespace
}  // namespace motet
