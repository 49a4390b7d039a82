#include "motet/formats/gguf.h"
#include "motet/formats/gguf_testing.h"

#include <cmath>
#include <cstring>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/formats/gguf_blocks.h"

namespace motet {
namespace {

using testing::entry;
using testing::message_of;
using testing::raw;
using testing::TemporaryFolder;
using testing::word;

std::string array(const std::string& key, GgufType type, uint64_t count, const std::string& values) {
  return entry(key, GgufType::array, raw(static_cast<uint32_t>(type)) + raw(count) + values);
}

std::string tensor(const std::string& name, const std::vector<uint64_t>& axes, uint32_t type, uint64_t offset) {
  std::string out = word(name) + raw(static_cast<uint32_t>(axes.size()));
  for (const uint64_t n : axes) out += raw(n);
  return out + raw(type) + raw(offset);
}

struct Parts {
  uint32_t version = 3;
  std::vector<std::string> metadata, tensors;
  std::string data;
  uint64_t alignment = 32;

  std::string file() const {
    std::string out = "GGUF" + raw(version) + raw<uint64_t>(tensors.size()) + raw<uint64_t>(metadata.size());
    for (const auto* all : {&metadata, &tensors})
      for (const std::string& one : *all) out += one;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

GgufContent parse(const std::string& file) { return parse_gguf(std::as_bytes(std::span(file)), "f"); }

std::string refusal(const std::string& file) {
  return message_of<Error>([&] { parse(file); });
}

Parts good() {
  Parts p;
  p.metadata = {entry("general.architecture", GgufType::string, word("llama")),
                entry("count", GgufType::u32, raw<uint32_t>(7)),
                entry("rate", GgufType::f32, raw(0.5f)),
                entry("on", GgufType::boolean, raw<uint8_t>(1)),
                entry("large", GgufType::u64, raw<uint64_t>(UINT64_MAX)),
                array("tokens", GgufType::string, 2, word("a") + word("\xC3\xA4")),
                array("types", GgufType::i32, 5, std::string(20, '\1'))};
  p.tensors = {tensor("a", {3, 2}, 0, 0), tensor("b", {32}, 8, 32)};
  p.data = std::string(24, 'a') + std::string(8, '\0') + std::string(34, 'b') + std::string(30, '\0');
  return p;
}

TEST(Gguf, AGoodFileIsRead) {
  const TemporaryFolder folder;
  for (uint32_t version : {2u, 3u}) {
    Parts p = good();
    p.version = version;
    write_file_atomic(folder / "m.gguf", p.file());
    const GgufFile file(folder / "m.gguf");
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.word("general.architecture"), "llama");
    EXPECT_EQ(file.integer("count"), 7);
    EXPECT_EQ(file.number("count"), 7.0);
    EXPECT_EQ(file.number("rate"), 0.5);
    EXPECT_EQ(file.flag("on"), true);
    EXPECT_EQ(file.words("tokens"), (std::vector<std::string>{"a", "\xC3\xA4"}));
    EXPECT_EQ(file.integers("types")->at(4), 0x01010101);
    EXPECT_FALSE(file.integer("absent"));
    EXPECT_EQ(file.shown("types"), "[16843009, 16843009, 16843009, 16843009, ...] of 5");
    EXPECT_EQ(file.shown("tokens"), "['a', '\xC3\xA4']");
    ASSERT_EQ(file.tensors().size(), 2u);
    EXPECT_EQ(file.find("a")->shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(file.find("a")->type, "F32");
    EXPECT_EQ(file.find("b")->type, "Q8_0");
    EXPECT_EQ(file.find("b")->bytes.size(), 34u);
    EXPECT_EQ(file.find("c"), nullptr);
  }
}

TEST(Gguf, NumbersOfEveryWidthKeepTheirSign) {
  const TemporaryFolder folder;
  Parts p;
  p.metadata = {entry("u8", GgufType::u8, raw<uint8_t>(200)),
                entry("i8", GgufType::i8, raw<int8_t>(-2)),
                entry("u16", GgufType::u16, raw<uint16_t>(40'000)),
                entry("i16", GgufType::i16, raw<int16_t>(-300)),
                entry("u32", GgufType::u32, raw<uint32_t>(3'000'000'000)),
                entry("i32", GgufType::i32, raw<int32_t>(-70'000)),
                entry("u64", GgufType::u64, raw<uint64_t>(INT64_MAX)),
                entry("i64", GgufType::i64, raw<int64_t>(INT64_MIN)),
                entry("f64", GgufType::f64, raw(0.1)),
                array("f64s", GgufType::f64, 4, raw(0.5) + raw(1.5) + raw(2.5) + raw(-3.5)),
                entry("last", GgufType::boolean, raw<uint8_t>(0))};
  write_file_atomic(folder / "m.gguf", p.file());
  const GgufFile file(folder / "m.gguf");
  for (const auto& [key, value] : std::vector<std::pair<std::string, int64_t>>{{"u8", 200},
                                                                               {"i8", -2},
                                                                               {"u16", 40'000},
                                                                               {"i16", -300},
                                                                               {"u32", 3'000'000'000},
                                                                               {"i32", -70'000},
                                                                               {"u64", INT64_MAX},
                                                                               {"i64", INT64_MIN}})
    EXPECT_EQ(file.integer(key), value) << key;
  EXPECT_EQ(file.number("f64"), 0.1);
  EXPECT_EQ(file.numbers("f64s"), (std::vector<double>{0.5, 1.5, 2.5, -3.5}));
  EXPECT_EQ(file.shown("f64s"), "[0.5, 1.5, 2.5, -3.5]");  // four are shown
  EXPECT_EQ(file.flag("last"), false);
}

TEST(Gguf, TensorsUpToTheLimitsAreRead) {
  Parts p;
  p.alignment = 1 << 20;
  p.metadata = {entry("general.alignment", GgufType::u32, raw<uint32_t>(1 << 20))};
  const std::string longest(64, 'n');
  p.tensors = {tensor(longest, {32, 1, 2, 3}, 8, 0), tensor("half", {3}, 1, 1 << 20), tensor("bf", {1}, 30, 2 << 20)};
  p.data = std::string(6 * 34, 'q');
  p.data.resize(1 << 20);
  p.data += raw<uint16_t>(0x3C00) + raw<uint16_t>(0x4000) + raw<uint16_t>(0xB800);
  p.data.resize(2 << 20);
  p.data += raw<uint16_t>(0xBF80);
  const std::string bytes = p.file();
  const GgufContent content = parse(bytes);
  ASSERT_EQ(content.tensors.size(), 3u);
  EXPECT_EQ(content.tensors[0].name, longest);
  EXPECT_EQ(content.tensors[0].shape, (std::vector<int64_t>{3, 2, 1, 32}));
  const auto numbers = [&](size_t i) {
    const GgufTensor& t = content.tensors[i];
    std::vector<float> out(static_cast<size_t>(t.elements()));
    decode_blocks(*find_gguf_element(t.type), t.bytes, out);
    return out;
  };
  EXPECT_EQ(numbers(1), (std::vector<float>{1, 2, -0.5}));
  EXPECT_EQ(numbers(2), (std::vector<float>{-1}));
}

TEST(Gguf, AValueOfAnotherTypeIsRefused) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "m.gguf", good().file());
  const GgufFile file(folder / "m.gguf");
  for (const std::string& message :
       {message_of<Error>([&] { file.integer("general.architecture"); }),
        message_of<Error>([&] { file.word("count"); }), message_of<Error>([&] { file.flag("count"); }),
        message_of<Error>([&] { file.integer("large"); }), message_of<Error>([&] { file.integer("types"); }),
        message_of<Error>([&] { file.words("count"); }), message_of<Error>([&] { file.words("types"); }),
        message_of<Error>([&] { file.integer("rate"); })})
    EXPECT_NE(message.find("m.gguf: metadata '"), std::string::npos) << message;
}

TEST(Gguf, EveryTruncationIsRefused) {
  Parts p = good();
  p.data.resize(66);  // without the padding behind the last tensor, which may be absent
  const std::string whole = p.file();
  EXPECT_NO_THROW(parse(whole));
  for (size_t size = 0; size < whole.size(); ++size) refusal(whole.substr(0, size));
}

TEST(Gguf, ACountThatTheFileCannotHoldEndsAtItsEnd) {
  const std::string head = "GGUF" + raw<uint32_t>(3);
  for (uint64_t count : {uint64_t{1} << 32, uint64_t{1} << 63, UINT64_MAX}) {
    EXPECT_NE(refusal(head + raw(count) + raw<uint64_t>(0)).find("the file ends inside"), std::string::npos);
    EXPECT_NE(refusal(head + raw<uint64_t>(0) + raw(count)).find("the file ends inside"), std::string::npos);
    for (GgufType type : {GgufType::u8, GgufType::f64, GgufType::string}) {
      Parts p;
      p.metadata = {array("k", type, count, "")};
      refusal(p.file());
    }
  }
}

TEST(Gguf, WrongMetadataIsNamed) {
  const auto with = [](const std::string& metadata) {
    Parts p;
    p.metadata = {metadata};
    return refusal(p.file());
  };
  EXPECT_NE(with(entry("", GgufType::u8, "x")).find("has 0 bytes, want 1 to"), std::string::npos);
  EXPECT_NE(with(entry("\xFF", GgufType::u8, "x")).find("is no UTF-8"), std::string::npos);
  EXPECT_NE(with(entry("k", static_cast<GgufType>(13), "x")).find("has the type 13"), std::string::npos);
  EXPECT_NE(with(entry("k", GgufType::boolean, "\2")).find("neither 0 nor 1"), std::string::npos);
  EXPECT_NE(with(array("k", GgufType::array, 1, "")).find("array of arrays"), std::string::npos);
  for (uint32_t alignment : {0u, 3u, 1u << 30})
    EXPECT_NE(with(entry("general.alignment", GgufType::u32, raw(alignment))).find("power of two"), std::string::npos);
  EXPECT_NE(with(entry("general.alignment", GgufType::u64, raw<uint64_t>(32))).find("power of two"), std::string::npos);
  Parts twice;
  twice.metadata = {entry("k", GgufType::u8, "x"), entry("k", GgufType::u8, "x")};
  EXPECT_EQ(refusal(twice.file()), "f: metadata 'k' appears twice");
}

TEST(Gguf, WrongTensorsAreNamed) {
  const auto with = [](const std::vector<std::string>& tensors, size_t data) {
    Parts p;
    p.tensors = tensors;
    p.data = std::string(data, 'x');
    return refusal(p.file());
  };
  EXPECT_NE(with({tensor("a", {8}, 0, 0), tensor("a", {8}, 0, 32)}, 64).find("appears twice"), std::string::npos);
  EXPECT_NE(with({tensor("a", {8}, 0, 0), tensor("b", {8}, 0, 0)}, 32).find("overlaps"), std::string::npos);
  EXPECT_NE(with({tensor("a", {8}, 0, 0), tensor("b", {8}, 0, 64)}, 96).find("no tensor holds the 32"),
            std::string::npos);
  EXPECT_NE(with({tensor("a", {8}, 0, 8)}, 40).find("want a multiple of 32"), std::string::npos);
  EXPECT_NE(with({tensor("a", {8}, 0, 0)}, 31).find("cut short"), std::string::npos);
  EXPECT_NE(with({tensor("a", {8}, 0, 0)}, 33).find("bytes follow the last tensor"), std::string::npos);
  EXPECT_NE(with({tensor("a", {8}, 0, UINT64_MAX - 31)}, 32).find("cut short"), std::string::npos);
  EXPECT_NE(with({tensor("a", {1, 1, 1, 1, 1}, 0, 0)}, 32).find("has 5 axes"), std::string::npos);
  for (uint64_t size : {uint64_t{1} << 62, uint64_t{1} << 63, UINT64_MAX})
    EXPECT_NE(with({tensor("a", {size, 4}, 0, 0)}, 32).find("too large"), std::string::npos);
  EXPECT_NE(with({tensor("a", {uint64_t{1} << 62}, 0, 0)}, 32).find("too large"), std::string::npos);
  EXPECT_NE(with({tensor("a", {33}, 8, 0)}, 64).find("whole blocks of 32 for Q8_0"), std::string::npos);
  EXPECT_NE(with({tensor("a", {32}, 20, 0)}, 64).find("is stored as IQ4_NL, want one of F32"), std::string::npos);
  EXPECT_NE(with({tensor("a", {32}, 99, 0)}, 64).find("is stored as type 99"), std::string::npos);
  EXPECT_NE(with({tensor(std::string(65, 'n'), {8}, 0, 0)}, 32).find("want 1 to 64"), std::string::npos);
}

TEST(Gguf, OtherFilesAreNamed) {
  EXPECT_EQ(refusal("GGU"), "f: the file ends inside the magic 'GGUF', at byte 0 of 3");
  EXPECT_NE(refusal("GGML" + std::string(40, '\0')).find("does not begin with 'GGUF'"), std::string::npos);
  EXPECT_NE(refusal("GGUF" + raw<uint32_t>(1) + std::string(16, '\0')).find("version 1, want 2 or 3"),
            std::string::npos);
  EXPECT_NE(refusal("GGUF" + raw<uint32_t>(0x03000000) + std::string(16, '\0')).find("big-endian"), std::string::npos);
}

// Blocks: what the formulas of ggml's reference say, written out for single numbers.

std::vector<float> decoded(const char* type, const std::string& block) {
  const GgufElement* element = find_gguf_element(std::string(type));
  EXPECT_EQ(static_cast<int64_t>(block.size()), element->bytes);
  std::vector<float> out(static_cast<size_t>(element->block));
  decode_blocks(*element, std::as_bytes(std::span(block)), out);
  return out;
}

const std::string kOne = raw<uint16_t>(0x3C00), kTwo = raw<uint16_t>(0x4000), kHalf = raw<uint16_t>(0x3800);

TEST(GgufBlocks, SmallBlocksHoldLowNibblesFirst) {
  std::string nibbles(16, '\0');
  nibbles[0] = '\x9F';  // low 15, high 9
  const auto q40 = decoded("Q4_0", kTwo + nibbles);
  EXPECT_EQ(q40[0], 14.0f);
  EXPECT_EQ(q40[16], 2.0f);
  EXPECT_EQ(q40[1], -16.0f);
  const auto q41 = decoded("Q4_1", kTwo + kHalf + nibbles);
  EXPECT_EQ(q41[0], 30.5f);
  EXPECT_EQ(q41[16], 18.5f);
  EXPECT_EQ(q41[31], 0.5f);
  const std::string fifth = raw<uint32_t>(1u | 1u << 16 | 1u << 31);
  const auto q50 = decoded("Q5_0", kOne + fifth + nibbles);
  EXPECT_EQ(q50[0], 15.0f);
  EXPECT_EQ(q50[16], 9.0f);
  EXPECT_EQ(q50[31], 0.0f);
  EXPECT_EQ(q50[1], -16.0f);
  const auto q51 = decoded("Q5_1", kOne + kHalf + fifth + nibbles);
  EXPECT_EQ(q51[0], 31.5f);
  EXPECT_EQ(q51[31], 16.5f);
  std::string bytes(32, '\0');
  bytes[5] = '\x80';
  EXPECT_EQ(decoded("Q8_0", kHalf + bytes)[5], -64.0f);
}

TEST(GgufBlocks, LargeBlocksHaveSixBitScales) {
  std::string scales(12, '\0');
  scales[0] = '\xC5';  // scale 0: 5; the upper bits of scale 4
  scales[4] = '\x83';  // minimum 0: 3; the upper bits of minimum 4
  scales[8] = '\x21';  // scale 4: 1 + 3 << 4 = 49; minimum 4: 2 + 2 << 4 = 34
  std::string low(128, '\0');
  low[0] = '\x0A';
  low[64] = '\x0B';
  const auto q4 = decoded("Q4_K", kOne + kTwo + scales + low);
  EXPECT_EQ(q4[0], 5.0f * 10 - 2 * 3);
  EXPECT_EQ(q4[1], -6.0f);
  EXPECT_EQ(q4[128], 49.0f * 11 - 2 * 34);
  std::string high(32, '\0');
  high[0] = '\x11';  // groups 0 and 4
  const auto q5 = decoded("Q5_K", kOne + kTwo + scales + high + low);
  EXPECT_EQ(q5[0], 5.0f * 26 - 6);
  EXPECT_EQ(q5[128], 49.0f * 27 - 68);
  EXPECT_EQ(q5[1], -6.0f);
}

TEST(GgufBlocks, SixBitsComeFromTwoPlaces) {
  std::string low(128, '\0'), high(64, '\0'), scales(16, '\1');
  low[0] = '\x7C';
  high[0] = '\xE4';    // quarters 0, 1, 2, 3
  scales[4] = '\xFE';  // -2: numbers 64 to 79
  const auto q6 = decoded("Q6_K", low + high + scales + kTwo);
  EXPECT_EQ(q6[0], 2.0f * (12 - 32));
  EXPECT_EQ(q6[32], 2.0f * (16 - 32));
  EXPECT_EQ(q6[64], -4.0f * ((7 | 32) - 32));
  EXPECT_EQ(q6[80], -64.0f);  // another scale: 16 numbers have one
  EXPECT_EQ(q6[96], 2.0f * (48 - 32));
  EXPECT_EQ(q6[128], -64.0f);
}

TEST(GgufBlocks, HalvesAreConverted) {
  EXPECT_EQ(half_to_float(0x3C00), 1.0f);
  EXPECT_EQ(half_to_float(0xC000), -2.0f);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(half_to_float(0x83FF), -1023 * 0x1p-24f);
  EXPECT_EQ(half_to_float(0x7BFF), 65504.0f);
  EXPECT_TRUE(std::isinf(half_to_float(0xFC00)));
  EXPECT_TRUE(std::isnan(half_to_float(0x7E00)));
  EXPECT_EQ(bfloat_to_float(0xBF80), -1.0f);
}

}  // namespace
}  // namespace motet
