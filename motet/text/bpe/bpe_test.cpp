// Merging and what stands in for unknown characters, on models of a few pieces.
#include "motet/text/bpe/bpe.h"

#include <gtest/gtest.h>

#include <random>

namespace motet {
namespace {

BpeModel model_of(const std::vector<std::string>& pieces, BpeModel::Start start = BpeModel::Start::characters) {
  BpeModel model;
  model.start = start;
  for (const std::string& piece : pieces) {
    model.vocabulary.add(piece, static_cast<int32_t>(model.pieces.size()));
    model.pieces.push_back(piece);
  }
  return model;
}

// "id:bytes" of each token.
std::string shown(const BpeModel& model, const std::string& text) {
  std::string out;
  BpeEncoder encoder(model);
  for (const BpeToken& token : encoder.tokens(text))
    out += (out.empty() ? "" : " ") + std::to_string(token.id) + ":" + std::to_string(token.size);
  return out;
}

void add_bytes(BpeModel& model, const std::string& text) {  // as ids from 50 on
  for (size_t i = 0; i < text.size(); ++i)
    model.byte_ids[static_cast<unsigned char>(text[i])] = 50 + static_cast<int32_t>(i);
}

TEST(Bpe, UnknownCharactersAreFusedOnlyWhereTheFileSaysSo) {
  BpeModel model = model_of({"<unk>", "a", "b"});
  EXPECT_EQ(shown(model, "axyb"), "1:1 2:1");  // no token stands for them
  model.unknown = 0;
  EXPECT_EQ(shown(model, "axéb"), "1:1 0:1 0:2 2:1");
  model.fuse_unknown = true;
  EXPECT_EQ(shown(model, "axéb"), "1:1 0:3 2:1");
  EXPECT_EQ(shown(model, "xayé"), "0:1 1:1 0:3");
}

TEST(Bpe, CharactersFallBackToTheirBytesWhereAllOfThemAreThere) {
  BpeModel model = model_of({"<unk>", "a", "b"});
  model.unknown = 0, model.fuse_unknown = true;
  add_bytes(model, "é");
  EXPECT_EQ(shown(model, "aé"), "1:1 0:2");
  model.byte_fallback = true;
  EXPECT_EQ(shown(model, "aé"), "1:1 50:1 51:1");
  EXPECT_EQ(shown(model, "xéy"), "0:1 50:1 51:1 0:1");
  EXPECT_EQ(shown(model, "ê"), "0:2");  // only its first byte has a token
}

TEST(Bpe, WhatIsNoPieceOfSentencePieceBecomesBytesOrUnknown) {
  BpeModel model = model_of({"<unk>", "a", "éa"}, BpeModel::Start::sentence_pieces);
  model.unknown = 0;
  model.vocabulary.add("é", 3);  // a part of pieces alone
  model.merges.set(3, 1, {0, 2});
  EXPECT_EQ(shown(model, "éa"), "2:3");
  EXPECT_EQ(shown(model, "aéxéa"), "1:1 0:3 2:3");  // unknown ones are always fused
  add_bytes(model, "éx");
  model.byte_fallback = true;
  EXPECT_EQ(shown(model, "aéxéa"), "1:1 50:1 51:1 52:1 2:3");
}

TEST(Bpe, TheLongestTokenIsKnownWhereNoUnknownOneIs) {
  using Start = BpeModel::Start;
  BpeModel model = model_of({"a", "bcd"}, Start::bytes);
  EXPECT_EQ(model.longest_token(), 3u);
  model.start = Start::sentence_pieces;
  EXPECT_EQ(model.longest_token(), SIZE_MAX);
  model.byte_fallback = true;
  EXPECT_EQ(model.longest_token(), SIZE_MAX);
  model.byte_ids.fill(0);
  EXPECT_EQ(model.longest_token(), 3u);
}

TEST(Bpe, BytesWithoutAnIdAreLeftOut) {
  BpeModel model = model_of({"a", "b"}, BpeModel::Start::bytes);
  add_bytes(model, "ab");
  EXPECT_EQ(shown(model, "axb"), "50:1 51:1");
  EXPECT_EQ(model.known_bytes("axb"), 2u);
  model.unknown = 0;
  EXPECT_EQ(shown(model, "axb"), "50:1 0:1 51:1");
  EXPECT_EQ(model.known_bytes("axb"), 3u);
}

// As tokenizers 0.23 with ByteLevel.
TEST(Bpe, UnknownBytesAreFusedOnlyWhereTheFileSaysSo) {
  BpeModel model = model_of({"<unk>", "a", "b"}, BpeModel::Start::bytes);
  add_bytes(model, "ab");
  model.unknown = 0;
  EXPECT_EQ(shown(model, "axéybz"), "50:1 0:1 0:1 0:1 0:1 51:1 0:1");
  EXPECT_EQ(model.longest_token(), 5u);
  model.fuse_unknown = true;
  EXPECT_EQ(shown(model, "axéybz"), "50:1 0:4 51:1 0:1");
  EXPECT_EQ(model.longest_token(), SIZE_MAX);  // encode_at_most must not count on it
}

// The lowest rank first, of equal ones the leftmost, one after the other.
std::vector<BpeToken> merged(const BpeModel& model, const std::string& text) {
  std::vector<BpeToken> all;
  for (const char c : text) all.push_back({model.id_of(std::string(1, c)), 1});
  while (true) {
    const PairTable::Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      const auto* merge = model.merges.find(all[i].id, all[i + 1].id);
      if (merge && (!best || merge->rank < best->rank)) best = merge, at = i;
    }
    if (!best) return all;
    all[at] = {best->symbol, all[at].size + all[at + 1].size};
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, ShortAndLongPiecesAreMergedInTheOrderOfTheRanks) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return static_cast<int32_t>(random() % n); };
  for (int round = 0; round < 60; ++round) {
    BpeModel model = model_of({"a", "b", "c"});
    for (uint32_t rank = 0; rank < 24; ++rank) {
      const int32_t left = below(model.pieces.size()), right = below(model.pieces.size());
      if (model.merges.find(left, right)) continue;
      model.merges.set(left, right, {rank, static_cast<int32_t>(model.pieces.size())});
      model.pieces.push_back(model.pieces[static_cast<size_t>(left)] + model.pieces[static_cast<size_t>(right)]);
    }
    for (const size_t length : {2u, 9u, 48u, 49u, 200u}) {
      std::string text;
      while (text.size() < length) text += "abc"[below(3)];
      const std::vector<BpeToken> want = merged(model, text);
      BpeEncoder encoder(model);
      const std::vector<BpeToken>& got = encoder.tokens(text);
      ASSERT_EQ(got.size(), want.size()) << text;
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(got[i].id, want[i].id) << text << " at " << i;
        ASSERT_EQ(got[i].size, want[i].size) << text << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace motet
