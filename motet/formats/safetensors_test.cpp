#include "motet/formats/safetensors.h"

#include <cstring>

#include "motet/core/error.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using testing::message_of;
using testing::TemporaryFolder;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string length_of(uint64_t size) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &size, 8);
  return out;
}

// A file of a header, which may be wrong, and data.
std::string file_of(const std::string& header, const std::string& data) {
  return length_of(header.size()) + header + data;
}

SafetensorsContent parse(const std::string& file) { return parse_safetensors(bytes_of(file), "f"); }

std::string refusal(const std::string& file) {
  return message_of<Error>([&] { parse(file); });
}

std::string refusal(const std::string& header, const std::string& data) { return refusal(file_of(header, data)); }

// One member of a header.
std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

const std::string kTwo = "{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "I64", "[]", "[8,16]") + "}";

TEST(Safetensors, AGoodFileIsRead) {
  const std::string file =
      file_of(R"({"__metadata__":{"format":"pt"},)" + entry("b", "U8", "[2,1]", "[4,6]") + "," +
                  entry("a", "F32", "[1]", "[0,4]") + "," + entry("z", "F64", "[3,0]", "[4,4]") + "}   ",
              "0123xy");
  const SafetensorsContent content = parse(file);
  ASSERT_EQ(content.tensors.size(), 3u);
  EXPECT_EQ(content.tensors[0].name, "a");
  EXPECT_EQ(content.tensors[1].name, "z");
  EXPECT_TRUE(content.tensors[1].bytes.empty());
  EXPECT_EQ(content.tensors[2].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(std::to_integer<char>(content.tensors[2].bytes[0]), 'x');
  EXPECT_EQ(content.metadata.at("format"), "pt");
  EXPECT_TRUE(parse(file_of("{}", "")).tensors.empty());
}

TEST(Safetensors, EachDtypeHasItsWidth) {
  for (const auto& [names, width] :
       std::vector<std::pair<std::vector<std::string>, int64_t>>{{{"BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3"}, 1},
                                                                 {{"U16", "I16", "F16", "BF16"}, 2},
                                                                 {{"U32", "I32", "F32"}, 4},
                                                                 {{"U64", "I64", "F64"}, 8}})
    for (const std::string& name : names) EXPECT_EQ(dtype_bytes(name), width) << name;
  EXPECT_EQ(dtype_bytes("F4"), 0);
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = file_of(kTwo, std::string(16, 'x'));
  EXPECT_NO_THROW(parse(whole));
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string cut = whole.substr(0, size);
    EXPECT_THROW(parse(cut), Error) << size;
  }
  EXPECT_EQ(refusal(whole.substr(0, 7)), "f: 7 bytes are no safetensors file, which has at least 8");
  EXPECT_EQ(refusal(whole.substr(0, 20)),
            text("f: the header claims ", kTwo.size(), " bytes and the file has 12 left; it is cut short"));
}

TEST(Safetensors, AnyChangedByteIsReadOrRefused) {
  const std::string whole = file_of(kTwo, std::string(16, 'x'));
  for (size_t at = 0; at < whole.size(); ++at) {
    for (int value = 0; value < 256; value += 3) {
      std::string changed = whole;
      changed[at] = static_cast<char>(value);
      try {
        parse(changed);
      } catch (const Error&) {  // anything else ends the test
      }
    }
  }
}

TEST(Safetensors, BytesAfterTheLastTensorAreRefused) {
  EXPECT_EQ(refusal(kTwo, std::string(17, 'x')), "f: 1 bytes follow the last tensor");
  EXPECT_EQ(refusal("{}", "x"), "f: 1 bytes follow the last tensor");
}

TEST(Safetensors, HugeHeaderLengthsAreRefused) {
  EXPECT_EQ(refusal(length_of(UINT64_MAX) + "{}"),
            "f: the header claims 18446744073709551615 bytes, want at most 100000000; is this a safetensors file?");
  EXPECT_NE(refusal(length_of(100'000'000) + "{}").find("it is cut short"), std::string::npos);
  EXPECT_EQ(refusal(length_of(100'000'001) + "{}").substr(0, 36), "f: the header claims 100000001 bytes");
  EXPECT_EQ(refusal(length_of(3) + "{}"), "f: the header claims 3 bytes and the file has 2 left; it is cut short");
}

TEST(Safetensors, OverlapsAreRefused) {
  const std::string header = "{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("b", "U8", "[4]", "[3,7]") + "}";
  EXPECT_EQ(refusal(header, "1234567"), "f: tensor 'b' at data byte 3 overlaps the one before it");
  const std::string same = "{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("b", "U8", "[4]", "[0,4]") + "}";
  EXPECT_EQ(refusal(same, "1234"), "f: tensor 'b' at data byte 0 overlaps the one before it");
}

TEST(Safetensors, HolesAreRefused) {
  const std::string between = "{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("b", "U8", "[1]", "[3,4]") + "}";
  EXPECT_EQ(refusal(between, "1234"), "f: no tensor holds the 2 data bytes before 'b'");
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[1]", "[1,2]") + "}", "12"),
            "f: no tensor holds the 1 data bytes before 'a'");
}

TEST(Safetensors, DuplicateNamesAreRefused) {
  const std::string header = "{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("a", "U8", "[1]", "[1,2]") + "}";
  EXPECT_EQ(refusal(header, "12"), "f: header: the name 'a' appears twice in one object");
}

TEST(Safetensors, RangesOutsideOfTheFileAreRefused) {
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[4]", "[0,4]") + "}", "123"),
            "f: tensor 'a': data_offsets 0 to 4 lie outside of the file's 3 data bytes");
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[1]", "[2,1]") + "}", "123"),
            "f: tensor 'a': data_offsets 2 to 1 lie outside of the file's 3 data bytes");
  EXPECT_EQ(refusal("{" + entry("a", "U8", "[1]", "[0,9223372036854775807]") + "}", "1").substr(0, 40),
            "f: tensor 'a': data_offsets 0 to 9223372");
}

TEST(Safetensors, ShapesThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal("{" + entry("a", "F32", "[2]", "[0,4]") + "}", "1234"),
            "f: tensor 'a': the shape takes 8 bytes and data_offsets span 4");
  EXPECT_EQ(refusal("{" + entry("a", "F64", "[4294967296,4294967296]", "[0,0]") + "}", ""),
            "f: tensor 'a': the shape is too large");
  EXPECT_EQ(refusal("{" + entry("a", "F64", "[2305843009213693952]", "[0,0]") + "}", ""),
            "f: tensor 'a': the shape is too large");
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "[18446744073709551615]", "[1e3]", "[[1]]"}) {
    EXPECT_EQ(refusal("{" + entry("a", "U8", shape, "[0,1]") + "}", "1").substr(0, 25), "f: tensor 'a': shape has ")
        << shape;
  }
  EXPECT_EQ(refusal("{" + entry("a", "U8", "3", "[0,1]") + "}", "1"), "f: tensor 'a': shape is no list of sizes");
}

TEST(Safetensors, WrongMembersAreRefused) {
  const std::string members = "f: tensor 'a': want an object of exactly dtype, shape and data_offsets";
  EXPECT_EQ(refusal(R"({"a":3})", ""), members);
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[]}})", ""), members);
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1],"more":1}})", "1"), members);
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[],"offsets":[0,1]}})", "1"), members);
  EXPECT_EQ(refusal("{" + entry("a", "F12", "[]", "[0,1]") + "}", "1"), "f: tensor 'a': unknown dtype 'F12'");
  EXPECT_EQ(refusal(R"({"a":{"dtype":7,"shape":[],"data_offsets":[0,1]}})", "1"), "f: tensor 'a': unknown dtype '7'");
  for (const char* offsets : {"[0]", "[0,1,1]", "3", "[-1,0]", "[0,1.0]", "[null,1]"}) {
    EXPECT_EQ(refusal("{" + entry("a", "U8", "[]", offsets) + "}", "1").substr(0, 31),
              "f: tensor 'a': data_offsets is ")
        << offsets;
  }
}

TEST(Safetensors, WrongHeadersAreRefused) {
  EXPECT_EQ(refusal("[]", ""), "f: the header does not begin with '{'");
  EXPECT_EQ(refusal(" {}", ""), "f: the header does not begin with '{'");
  EXPECT_EQ(refusal("", ""), "f: the header does not begin with '{'");
  EXPECT_EQ(refusal("{]", ""), "f: header: wrong JSON at line 1, column 2");
  EXPECT_EQ(refusal("{\"\xff\":1}", ""), "f: header: no UTF-8 at line 1, column 3");
  EXPECT_EQ(refusal(R"({"__metadata__":3})", ""), "f: __metadata__ is no object of strings");
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":3}})", ""), "f: __metadata__ 'a' is no string");
}

TEST(Safetensors, WrittenFilesReadBackAligned) {
  const TemporaryFolder folder;
  const std::string data = "0123456789abcdef";
  const std::string path = folder / "a.safetensors";
  write_safetensors(path,
                    {{"odd", "U8", {3}, bytes_of(data).first(3)},
                     {"wide", "F64", {1, 2}, bytes_of(data).first(16)},
                     {"half", "BF16", {}, bytes_of(data).first(2)}},
                    {{"format", "pt"}, {"note", "ü\n"}});
  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "wide");
  EXPECT_EQ(file.metadata().at("note"), "ü\n");
  ASSERT_NE(file.find("odd"), nullptr);
  EXPECT_EQ(std::memcmp(file.find("odd")->bytes.data(), data.data(), 3), 0);
  EXPECT_EQ(file.find("half")->shape, std::vector<int64_t>{});
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file.find("wide")->bytes.data()) % 64, 0u);
  EXPECT_EQ(folder.count(), 1);
}

TEST(Safetensors, TheFileNameIsInTheMessage) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "a", "short");
  EXPECT_EQ(message_of<Error>([&] { SafetensorsFile(folder / "a"); }),
            (folder / "a") + ": 5 bytes are no safetensors file, which has at least 8");
}

TEST(Safetensors, WritingRefusesWhatReadingWould) {
  const TemporaryFolder folder;
  const std::string data = "0123";
  const auto four = bytes_of(data);
  const auto refused = [&](const std::vector<TensorView>& tensors, const std::map<std::string, std::string>& metadata) {
    const std::string message = message_of<Error>([&] { write_safetensors(folder / "a", tensors, metadata); });
    return message.substr(message.find("a: ") + 3);
  };
  EXPECT_EQ(refused({{"t", "F32", {2}, four}}, {}), "tensor 't': 4 bytes do not fill the shape");
  EXPECT_EQ(refused({{"t", "F99", {1}, four}}, {}), "tensor 't': unknown dtype 'F99'");
  EXPECT_EQ(refused({{"t", "F32", {-1}, four}}, {}), "tensor 't': the shape has -1, want at least 0");
  EXPECT_EQ(refused({{"t", "F32", {}, four}, {"t", "U8", {4}, four}}, {}), "tensor 't' appears twice");
  EXPECT_EQ(refused({{"__metadata__", "F32", {}, four}}, {}), "tensor '__metadata__': the name is reserved");
  EXPECT_EQ(refused({{"\xff", "F32", {}, four}}, {}), "tensor '\\xff': the name is no UTF-8");
  EXPECT_EQ(refused({}, {{"a", "\xff"}}), "metadata is no UTF-8");
  EXPECT_EQ(folder.count(), 0);
}

}  // namespace
}  // namespace motet
