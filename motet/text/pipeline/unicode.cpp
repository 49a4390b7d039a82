#include "motet/text/pipeline/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "motet/core/utf8.h"

namespace motet {
namespace {

struct CodePoints {
  char32_t first, last;
};

// Punctuation today that the reference's table, of Unicode 8, does not have.
constexpr CodePoints kNewPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},     {0xC84, 0xC84},
    {0x1B4E, 0x1B4F},   {0x1B7D, 0x1B7F},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10D6E, 0x10D6E},
    {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59}, {0x10F86, 0x10F89}, {0x113D4, 0x113D8}, {0x1144B, 0x1144F},
    {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C}, {0x116B9, 0x116B9}, {0x1183B, 0x1183B},
    {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46}, {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2},
    {0x11B00, 0x11B09}, {0x11BE1, 0x11BE1}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8},
    {0x11F43, 0x11F4F}, {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16D6D, 0x16D6F}, {0x16E97, 0x16E9A},
    {0x16FE2, 0x16FE2}, {0x1E5FF, 0x1E5FF}, {0x1E95E, 0x1E95F}};
constexpr CodePoints kFormerPunctuation[] = {{0x166D, 0x166D}, {0x111C9, 0x111C9}};
constexpr CodePoints kNumbersOfUnicode17[] = {{0x11DE0, 0x11DE9}, {0x16FF4, 0x16FF6}};
constexpr CodePoints kCircled[] = {{0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};

template <size_t n>
bool inside(const CodePoints (&ranges)[n], char32_t value) {
  for (const CodePoints& range : ranges) {
    if (value >= range.first && value <= range.last) return true;
  }
  return false;
}

constexpr char32_t kCodePoints = 0x110000;

// The category of each code point; a megabyte that takes milliseconds to fill, once.
const std::vector<uint8_t>& categories() {
  static const std::vector<uint8_t> table = [] {
    std::vector<uint8_t> out(kCodePoints);  // 0: not assigned, as all planes between 4 and 13 are
    for (const CodePoints& range : {CodePoints{0, 0x3FFFF}, CodePoints{0xE0000, 0xE0FFF}}) {
      for (char32_t c = range.first; c <= range.last; ++c) {
        out[c] = static_cast<uint8_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
      }
    }
    for (const char32_t plane : {0xF0000, 0x100000}) {
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(plane), 0xFFFE, UTF8PROC_CATEGORY_CO);
    }
    for (size_t i = 0; i < kCategoryAdditionsCount; ++i) {
      const CategoryRange& range = kCategoryAdditions[i];
      for (char32_t c = range.first; c <= range.last; ++c) out[c] = static_cast<uint8_t>(range.category);
    }
    return out;
  }();
  return table;
}

}  // namespace

void append_utf8(std::string& out, char32_t value) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
}

CategorySet category(char32_t value) {
  static const std::vector<uint8_t>& table = categories();
  return value < kCodePoints ? 1u << table[value] : 0;
}

CategorySet category_named(std::string_view name) {
  static constexpr std::string_view kNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                                "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                                "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};
  CategorySet out = 0;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == name || (name.size() == 1 && kNames[i][0] == name[0])) out |= 1u << i;
  }
  return out;
}

bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_circled_letter(char32_t value) { return inside(kCircled, value); }

bool is_numeric(char32_t value) { return (category(value) & kNumbers) != 0 || inside(kNumbersOfUnicode17, value); }

bool is_old_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  if (inside(kFormerPunctuation, c)) return true;
  return (category(c) & kPunctuation) != 0 && !inside(kNewPunctuation, c);
}

namespace {

// Lower cases that are newer than utf8proc's Unicode.
char32_t new_lowercase(char32_t c) {
  switch (c) {
    case 0x1C89:
    case 0xA7CC:
    case 0xA7CE:
    case 0xA7D2:
    case 0xA7D4:
    case 0xA7DA:
      return c + 1;
    case 0xA7CB:
      return 0x264;
    case 0xA7DC:
      return 0x19B;
    default:
      break;
  }
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;
  return 0;
}

}  // namespace

int append_lowercase(std::string& out, char32_t value) {
  if (value == 0x130) {  // the only character with a longer lower case
    out += "i\xCC\x87";
    return 2;
  }
  const char32_t lower = new_lowercase(value);
  append_utf8(out, lower ? lower : static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(value))));
  return 1;
}

}  // namespace motet
