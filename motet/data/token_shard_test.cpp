#include "motet/data/token_shard.h"

#include <cstring>
#include <numeric>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

std::vector<int32_t> counting(int32_t begin, int32_t count) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

// The bytes of a shard with the tokens 0 .. 9 (or so) in documents that begin at 2, 3 and 7.
std::string small_shard(uint64_t vocabulary) {
  const TemporaryFolder folder;
  TokenShardWriter writer(folder / "a.tokens", vocabulary);
  const auto tokens = counting(0, 10);
  size_t at = 0;
  for (const size_t end : {2, 3, 7, 10}) {
    if (at > 0) writer.begin_document();
    writer.add(std::span(tokens).subspan(at, end - at));
    at = end;
  }
  writer.commit();
  return read_file(folder / "a.tokens");
}

const std::string kWhere = "f";

TokenShard shard_of(const std::string& bytes) { return TokenShard(std::as_bytes(std::span(bytes)), kWhere); }
std::string refused(const std::string& bytes) {
  return message_of<Error>([&] { shard_of(bytes).check(); });
}

template <class Number>
std::string with(std::string bytes, size_t at, Number value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

// Like with(), and the header's checksum is right again.
template <class Number>
std::string header_with(const std::string& bytes, size_t at, Number value) {
  const std::string changed = with(bytes, at, value);
  return with(changed, 56, hash64(std::string_view(changed).substr(0, 56)));
}

std::string llmc_shard(std::vector<uint16_t> tokens) {
  std::string bytes(1024, '\0');
  bytes = with(bytes, 0, int32_t{20240520});
  bytes = with(bytes, 4, int32_t{1});
  bytes = with(bytes, 8, static_cast<int32_t>(tokens.size()));
  return bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
}

TEST(TokenShard, ReadsWhatWasWritten) {
  for (const auto& [vocabulary, width] : {std::pair(10, 2), std::pair(1 << 16, 2), std::pair((1 << 16) + 1, 4)}) {
    const std::string bytes = small_shard(static_cast<uint64_t>(vocabulary));
    const TokenShard shard = shard_of(bytes);
    EXPECT_EQ(shard.width(), width);
    EXPECT_EQ(shard.size(), 10u);
    EXPECT_EQ(bytes.size(), 64u + (width == 2 ? 24 : 40) + 3 * 8);
    std::vector<int64_t> tokens(4);
    shard.read(5, tokens);
    EXPECT_EQ(tokens, (std::vector<int64_t>{5, 6, 7, 8}));
    EXPECT_EQ(shard.document_starts(0, 10), (std::vector<uint64_t>{2, 3, 7}));
    EXPECT_EQ(shard.document_starts(3, 7), (std::vector<uint64_t>{3}));
    EXPECT_TRUE(shard.document_starts(8, 10).empty());
    shard.check();
  }
}

TEST(TokenShard, EveryBeginningIsRefused) {
  for (const std::string& whole : {small_shard(10), llmc_shard({1, 2, 3})})
    for (size_t size = 0; size < whole.size(); ++size) refused(whole.substr(0, size));
  EXPECT_EQ(refused(small_shard(10).substr(0, 80)), "f: the file ends inside the tokens, at byte 64 of 80");
}

TEST(TokenShard, EveryChangedByteIsFound) {
  const std::string whole = small_shard(10);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    refused(changed);
  }
}

TEST(TokenShard, WrongNumbersAreNamed) {
  const std::string good = small_shard(10);
  EXPECT_EQ(refused("MOTETTOX"), "f: is no shard of tokens, want one of motet data prepare or of llm.c");
  EXPECT_EQ(refused(with(good, 8, uint32_t{2})), "f: version is 2, want 1");
  EXPECT_EQ(refused(with(good, 24, uint64_t{9})), "f: the header's checksum is wrong");
  EXPECT_EQ(refused(header_with(good, 12, uint32_t{3})), "f: a token has 3 bytes, want 2 or 4");
  EXPECT_EQ(refused(header_with(good, 16, uint64_t{65537})), "f: a vocabulary of 65537, want 1 to 65536 in 2 bytes");
  EXPECT_EQ(refused(header_with(good, 24, uint64_t{1} << 63)), "f: the header's counts are too large");
  EXPECT_EQ(refused(header_with(good, 24, (uint64_t{1} << 62) + 10)),
            "f: the file ends inside the tokens, at byte 64 of 112");
  EXPECT_EQ(refused(header_with(good, 32, uint64_t{1} << 61)), "f: the header's counts are too large");
  EXPECT_EQ(refused(header_with(good, 32, uint64_t{2})), "f: 8 bytes follow the documents");
  EXPECT_EQ(refused(header_with(good, 40, uint64_t{1})), "f: reserved bytes are set");
  EXPECT_EQ(refused(with(good, 88, uint64_t{3})), "f: document 1 begins at token 3 of 10, want ascending places");
  EXPECT_EQ(refused(with(good, 104, uint64_t{10})), "f: document 2 begins at token 10 of 10, want ascending places");
  EXPECT_EQ(refused(with(good, 64, uint16_t{1})), "f: the checksum is wrong, the file was changed or damaged");
  std::vector<int64_t> token(1);
  const std::string outside = with(good, 64 + 2 * 4, uint16_t{10});
  EXPECT_EQ(message_of<Error>([&] { shard_of(outside).read(4, token); }),
            "f: token 4 is 10, outside of the vocabulary of 10");
}

TEST(TokenShard, LlmcShardsAreRead) {
  const std::string bytes = llmc_shard({50256, 7, 8, 50256, 9});
  const TokenShard shard = shard_of(bytes);
  EXPECT_TRUE(shard.foreign());
  std::vector<int64_t> tokens(5);
  shard.read(0, tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{50256, 7, 8, 50256, 9}));
  EXPECT_EQ(shard.document_starts(0, 5), (std::vector<uint64_t>{0, 3}));
  EXPECT_EQ(shard.document_starts(1, 3), std::vector<uint64_t>());
  EXPECT_EQ(refused(with(bytes, 4, int32_t{2})), "f: version is 2, want 1 of llm.c");
  EXPECT_EQ(refused(with(bytes, 8, int32_t{-1})), "f: the number of tokens is -1");
  EXPECT_EQ(refused(with(bytes, 8, int32_t{4})), "f: 2 bytes follow the 4 tokens");
  EXPECT_EQ(refused(with(bytes, 8, INT32_MAX)), "f: the file ends inside the tokens, at byte 1024 of 1034");
}

}  // namespace
}  // namespace motet
