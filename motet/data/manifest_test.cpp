#include "motet/data/manifest.h"

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using nlohmann::json;
using testing::message_of;

Manifest sample() {
  return {.tokenizer_file = "tokenizer.json",
          .tokenizer_hash = 0xfedcba9876543210,
          .vocabulary = 300,
          .document_token = 0,
          .inputs = {{"a/b.txt", 12, 0xff}, {"-", 0, 1}},
          .train = {30, 3, 100, {{"train-00000.tokens", 20, 2, 5}, {"train-00001.tokens", 10, 1, 6}}},
          .validation = {}};
}

TEST(Manifest, ReadsWhatItWrites) {
  const json written = manifest_json(sample());
  const Manifest read = parse_manifest(written, "f");
  EXPECT_EQ(manifest_json(read), written);
  EXPECT_EQ(read.tokenizer_hash, 0xfedcba9876543210);
  EXPECT_EQ(read.train.shards[1].file, "train-00001.tokens");
  EXPECT_EQ(read.document_token, 0);
  EXPECT_EQ(read.train.text_bytes, 100u);
  EXPECT_EQ(read.inputs[0].path, "a/b.txt");
  EXPECT_EQ(read.inputs[0].bytes, 12u);
  EXPECT_EQ(read.inputs[1].hash, 1u);
}

TEST(Manifest, WhatIsWrongIsNamed) {
  const auto refused = [](const char* pointer, const json& value) {
    json changed = manifest_json(sample());
    changed[json::json_pointer(pointer)] = value;
    return message_of<Error>([&] { parse_manifest(changed, "f"); });
  };
  EXPECT_EQ(refused("/version", 2), "f: version is 2, want 1");
  EXPECT_EQ(refused("/format", "x"), "f: format is '\"x\"', want motet tokens");
  EXPECT_EQ(refused("/more", 2), "f: 'more' is unknown");
  EXPECT_EQ(refused("/tokenizer/file", "../x"), "f: tokenizer: file is '../x', want a plain file name");
  EXPECT_EQ(refused("/tokenizer/hash", "123"), "f: tokenizer: hash is '123', want 16 hexadecimal digits");
  EXPECT_EQ(refused("/tokenizer/vocabulary", 0), "f: tokenizer: vocabulary is 0, want 1 to 2147483648");
  EXPECT_EQ(refused("/document_token", 300), "f: document_token is 300, outside of the vocabulary of 300");
  EXPECT_EQ(refused("/splits/train/tokens", 31), "f: splits: train: tokens is 31, and the shards have 30");
  EXPECT_EQ(refused("/splits/train/documents", 4), "f: splits: train: documents is 4, and the shards have 3");
  EXPECT_EQ(refused("/splits/train/tokens", -1), "f: splits: train: tokens is '-1', want a whole number");
  EXPECT_EQ(refused("/splits/train/shards/0/tokens", UINT64_MAX),
            "f: splits: train: the counts of the shards are too large");
  EXPECT_EQ(refused("/splits/train/shards/1/file", "a/b"),
            "f: splits: train: shard 1: file is 'a/b', want a plain file name");
  EXPECT_EQ(refused("/splits/train/shards/1", 3), "f: splits: train: shard 1: is no object");
  EXPECT_EQ(message_of<Error>([] { parse_manifest(json::array(), "f"); }), "f: is no object");
  EXPECT_EQ(message_of<Error>([] { parse_manifest(json::object(), "f"); }), "f: 'format' is missing");
}

}  // namespace
}  // namespace motet
