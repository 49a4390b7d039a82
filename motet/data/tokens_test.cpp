#include "motet/data/tokens.h"

#include <numeric>

#include "motet/core/testing.h"
#include "motet/data/bounded_tokens.h"

namespace motet {
namespace {

using testing::message_of;
using Places = std::vector<uint64_t>;

std::shared_ptr<const TokenSequence> counting(int count, Places starts = {}) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return std::make_shared<MemoryTokens>(tokens, std::move(starts));
}

TEST(Tokens, DocumentsStartStrictlyInsideTheAskedPlaces) {
  const auto tokens = counting(20, {0, 4, 9, 15});
  EXPECT_EQ(tokens->document_starts(0, 20), (Places{4, 9, 15}));
  EXPECT_EQ(tokens->document_starts(3, 15), (Places{4, 9}));
  EXPECT_EQ(tokens->document_starts(4, 16), (Places{9, 15}));
  EXPECT_EQ(tokens->document_starts(15, 20), Places());
}

TEST(Tokens, APartCountsPlacesFromItsOwnBeginning) {
  const TokenPart part(counting(20, {0, 4, 9, 15}), 4, 12);  // tokens 4 to 15
  EXPECT_EQ(part.size(), 12u);
  EXPECT_EQ(part.slice(0, 3), (std::vector<int64_t>{4, 5, 6}));
  EXPECT_EQ(part.slice(11, 1), (std::vector<int64_t>{15}));
  EXPECT_EQ(part.document_starts(0, 12), (Places{5, 11}));
  EXPECT_EQ(part.document_starts(5, 12), Places{11});
  EXPECT_EQ(part.document_starts(0, 11), Places{5});
}

TEST(Tokens, JoinedOnesAreOneAfterAnotherAndBeginDocuments) {
  const JoinedTokens joined({counting(5, {0, 2}), counting(3), counting(4, {1, 3})});
  EXPECT_EQ(joined.size(), 12u);
  EXPECT_EQ(joined.slice(0, 12), (std::vector<int64_t>{0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3}));
  EXPECT_EQ(joined.slice(4, 6), (std::vector<int64_t>{4, 0, 1, 2, 0, 1}));
  EXPECT_EQ(joined.slice(6, 1), (std::vector<int64_t>{1}));
  EXPECT_EQ(joined.slice(8, 0), std::vector<int64_t>());
  EXPECT_EQ(joined.document_starts(0, 12), (Places{2, 5, 8, 9, 11}));
  EXPECT_EQ(joined.document_starts(5, 9), (Places{8}));
  EXPECT_EQ(joined.document_starts(4, 8), (Places{5}));
}

TEST(Tokens, IdsOutsideOfTheVocabularyAreRefusedWhereTheyAreRead) {
  const BoundedTokens tokens(counting(10, {3}), 8, "f.bin");
  EXPECT_EQ(tokens.size(), 10u);
  EXPECT_EQ(tokens.slice(5, 3), (std::vector<int64_t>{5, 6, 7}));
  EXPECT_EQ(tokens.document_starts(0, 10), Places{3});
  EXPECT_EQ(message_of<Error>([&] { tokens.slice(6, 4); }),
            "f.bin: token 8 is 8, outside of the tokenizer's vocabulary of 8");
}

}  // namespace
}  // namespace motet
