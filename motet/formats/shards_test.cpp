#include "motet/formats/shards.h"

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

class Shards : public ::testing::Test {
 protected:
  Shards() {
    shard("a.safetensors", {"x", "y"});
    shard("b.safetensors", {"z"});
  }
  void shard(const std::string& file, const std::vector<std::string>& names) {
    std::vector<TensorView> views;
    for (const std::string& name : names) views.push_back({name, "U8", {1}, std::as_bytes(std::span("q", 1))});
    write_safetensors(folder_ / file, views, {});
  }
  SafetensorsShards read(const std::string& index) {
    write_file_atomic(folder_ / "i.json", index);
    return SafetensorsShards(folder_ / "i.json");
  }
  std::string refusal(const std::string& index) {
    const std::string message = message_of<Error>([&] { read(index); });
    EXPECT_NE(message.find(folder_.path().string()), std::string::npos) << message;
    return message;
  }
  TemporaryFolder folder_;
};

constexpr const char* kGood =
    R"({"metadata":{"total_size":3},"weight_map":{"z":"b.safetensors","x":"a.safetensors","y":"a.safetensors"}})";

TEST_F(Shards, TensorsOfAllFilesAreFound) {
  const SafetensorsShards shards = read(kGood);
  EXPECT_EQ(shards.num_files(), 2u);
  ASSERT_EQ(shards.tensors().size(), 3u);
  EXPECT_EQ(shards.tensors()[2].name, "z");
  EXPECT_EQ(shards.find("y")->bytes.size(), 1u);
  EXPECT_EQ(shards.find("w"), nullptr);
}

TEST_F(Shards, TensorsOfAllFilesStandInTheOrderOfTheirNames) {
  shard("a.safetensors", {"x", "z"});
  shard("b.safetensors", {"y"});
  const std::string longest(255, 'n');
  shard("w", {"w"});
  std::filesystem::rename(folder_ / "w", folder_ / longest);
  const SafetensorsShards shards = read(R"({"weight_map":{"x":"a.safetensors","y":"b.safetensors","z":"a.safetensors",)"
                                        R"("w":")" +
                                        longest + "\"}}");
  std::string names;
  for (const TensorView& view : shards.tensors()) names += view.name;
  EXPECT_EQ(names, "wxyz");
  for (const char* name : {"w", "x", "y", "z"}) EXPECT_EQ(shards.find(name)->name, name);
}

TEST_F(Shards, NamesThatLeaveTheFolderAreRefused) {
  for (const char* name : {"../a.safetensors", "a\x7f", "/etc/passwd", "", ".", "..", "s/a.safetensors", ".hidden",
                           "a\\\\b", "C:a", "a\\u0000b", "a\\nb"})
    EXPECT_NE(refusal(std::string(R"({"weight_map":{"x":")") + name + "\"}}").find("want the plain name of a file"),
              std::string::npos)
        << name;
}

TEST_F(Shards, IndexAndFilesMustAgree) {
  EXPECT_NE(refusal(R"({"weight_map":{"x":"a.safetensors"}})").find("tensor 'y' is not in the shard's part"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"weight_map":{"z":"a.safetensors","x":"a.safetensors","y":"a.safetensors"}})")
                .find("tensor 'z', which"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"weight_map":{"x":"c.safetensors"}})").find("c.safetensors"), std::string::npos);
}

TEST_F(Shards, AnIndexOfAnotherShapeIsRefused) {
  for (const char* index : {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"x":3}})",
                            R"({"weight_map":{"x":"a.safetensors","x":"a.safetensors"}})",
                            R"({"metadata":3,"weight_map":{"x":"a.safetensors"}})",
                            R"({"weight_maps":{},"weight_map":{"x":"a.safetensors"}})"})
    refusal(index);
}

TEST_F(Shards, EveryTruncationOfTheIndexIsRefused) {
  for (size_t size = 0; size < std::string(kGood).size(); ++size) refusal(std::string(kGood).substr(0, size));
}

}  // namespace
}  // namespace motet
