// llm.c's shards, which have no data.json: what is for training, what for validation, where documents begin.
#include "motet/data/prepared.h"

#include <cstring>

#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;
using testing::TemporaryFolder;
using Tokens = std::vector<int64_t>;

constexpr int kEnd = 50256;  // which begins each document

template <class Token>
void write_llmc(const std::string& path, int32_t magic, int32_t version, const std::vector<Token>& tokens) {
  std::string bytes(1024, '\0');
  const int32_t words[] = {magic, version, static_cast<int32_t>(tokens.size())};
  std::memcpy(bytes.data(), words, sizeof words);
  bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(Token));
  write_file_atomic(path, bytes);
}

void write_gpt2(const std::string& path, const std::vector<uint16_t>& tokens) { write_llmc(path, 20240520, 1, tokens); }

Tokens all(const std::shared_ptr<const TokenSequence>& tokens) {
  return tokens ? tokens->slice(0, tokens->size()) : Tokens();
}

TEST(LlmcData, ShardsNamedValAreForValidationAndTheOthersAreTrainedOnInOrder) {
  const TemporaryFolder folder;
  write_gpt2(folder / "plays_train_000002.bin", {6, 7, kEnd, 8});
  write_gpt2(folder / "plays_train_000001.bin", {kEnd, 4, kEnd, 5});
  write_gpt2(folder / "plays_val_000000.bin", {kEnd, 1, 2});
  write_gpt2(folder / "plays_val_000001.bin", {3, kEnd});
  write_gpt2(folder / "valley.bin", {9});
  write_file_atomic(folder / "other.bin", "no shard");
  const PreparedData data = open_prepared_data(folder.path().string());
  EXPECT_EQ(all(data.train), (Tokens{kEnd, 4, kEnd, 5, 6, 7, kEnd, 8, 9}));
  EXPECT_EQ(all(data.validation), (Tokens{kEnd, 1, 2, 3, kEnd}));
  EXPECT_EQ(data.train->document_starts(0, 9), (std::vector<uint64_t>{2, 6}));
  EXPECT_EQ(data.train->document_starts(2, 6), std::vector<uint64_t>());
  EXPECT_EQ(data.train->document_starts(3, 7), std::vector<uint64_t>{6});
  EXPECT_EQ(data.validation->document_starts(0, 5), std::vector<uint64_t>{4});
  EXPECT_EQ(data.train->slice(3, 3), (Tokens{5, 6, 7}));  // across the shards
  EXPECT_FALSE(data.manifest);
  check_prepared_data(data);
}

TEST(LlmcData, ValIsAWordOfTheNameAndAloneItIsTrainedOn) {
  for (const char* name : {"val.bin", "tiny_shakespeare_val.bin", "val_7.bin"}) {
    const TemporaryFolder folder;
    write_gpt2(folder / name, {1, 2});
    EXPECT_EQ(all(open_prepared_data(folder / name).train), (Tokens{1, 2})) << name;
    EXPECT_EQ(all(open_prepared_data(folder.path().string()).train), (Tokens{1, 2})) << name;
    write_gpt2(folder / "a.bin", {3});
    const PreparedData both = open_prepared_data(folder.path().string());
    EXPECT_EQ(all(both.train), Tokens{3}) << name;
    EXPECT_EQ(all(both.validation), (Tokens{1, 2})) << name;
  }
  const TemporaryFolder folder;
  write_gpt2(folder / "a_val_0.bin", {1});
  write_gpt2(folder / "a_val_1.bin", {1});
  EXPECT_EQ(message_of<Error>([&] { open_prepared_data(folder.path().string()); }),
            folder.path().string() + ": has no tokens for training");
}

TEST(LlmcData, Llama3sShardsHave32BitsAndBeginDocumentsWithTheirOwnToken) {
  const TemporaryFolder folder;
  write_llmc<uint32_t>(folder / "a.bin", 20240801, 7, {128000, 70000, 50256, 128000, 1});
  const PreparedData data = open_prepared_data(folder / "a.bin");
  EXPECT_EQ(all(data.train), (Tokens{128000, 70000, 50256, 128000, 1}));
  EXPECT_EQ(data.train->document_starts(0, 5), std::vector<uint64_t>{3});
}

TEST(LlmcData, WhatIsNoPreparedDataIsTold) {
  const TemporaryFolder folder;
  EXPECT_FALSE(is_prepared_data(folder.path().string()));
  write_file_atomic(folder / "a.txt", "text");
  EXPECT_FALSE(is_prepared_data(folder / "a.txt"));
  write_gpt2(folder / "a.bin", {1, 2});
  EXPECT_TRUE(is_prepared_data(folder / "a.bin"));
  EXPECT_TRUE(is_prepared_data(folder.path().string()));
}

}  // namespace
}  // namespace motet
