#include "motet/text/pipeline/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace motet {
namespace {

struct CodePoints {
  char32_t first, last;
};

// Marks that the reference's older table does not reorder.
constexpr CodePoints kYoungMarks[] = {{0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
                                      {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
                                      {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
                                      {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
                                      {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
                                      {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
                                      {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
                                      {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F},
                                      {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};
// Characters that it does not take apart, and one pair that it does not put together.
constexpr CodePoints kYoungCompatibility[] = {{0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},
                                              {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
                                              {0x1E030, 0x1E06D}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};
constexpr char32_t kYoungComposition = 0x11938;

template <size_t n>
bool inside(const CodePoints (&ranges)[n], char32_t value) {
  const auto found = std::upper_bound(std::begin(ranges), std::end(ranges), value,
                                      [](char32_t v, const CodePoints& range) { return v < range.first; });
  return found != std::begin(ranges) && value <= std::prev(found)->last;
}

bool compatible(NormalForm form) { return form == NormalForm::nfkc || form == NormalForm::nfkd; }
bool composed(NormalForm form) { return form == NormalForm::nfc || form == NormalForm::nfkc; }

struct Unit {
  char32_t value;
  int change, mark_class;
};

int mark_class(char32_t value) {
  if (value < 0x300 || inside(kYoungMarks, value)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(value))->combining_class;
}

void decompose(char32_t value, bool compatibility, std::vector<Unit>& out) {
  utf8proc_int32_t parts[32] = {static_cast<utf8proc_int32_t>(value)};
  utf8proc_ssize_t count = 1;
  const bool young = value == kYoungComposition || (compatibility && inside(kYoungCompatibility, value));
  if (!young) {
    const int options = UTF8PROC_DECOMPOSE | (compatibility ? UTF8PROC_COMPAT : 0);
    int boundary = 0;
    count = utf8proc_decompose_char(parts[0], parts, 32, static_cast<utf8proc_option_t>(options), &boundary);
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const auto part = static_cast<char32_t>(parts[i]);
    out.push_back({part, i > 0, mark_class(part)});
  }
}

// The character that the two make, or 0.
char32_t compose(char32_t a, char32_t b) {
  utf8proc_int32_t pair[2] = {static_cast<utf8proc_int32_t>(a), static_cast<utf8proc_int32_t>(b)};
  const int options = UTF8PROC_COMPOSE | UTF8PROC_STABLE;
  if (utf8proc_normalize_utf32(pair, 2, static_cast<utf8proc_option_t>(options)) != 1) return 0;
  const auto value = static_cast<char32_t>(pair[0]);
  return value == kYoungComposition ? 0 : value;
}

// Puts together what follows a starter, in the order and with the changes of the reference.
std::vector<Unit> recompose(const std::vector<Unit>& units) {
  std::vector<Unit> out, waiting;
  bool open = false;
  Unit base{};
  const auto flush = [&] {
    out.push_back(base);
    out.insert(out.end(), waiting.begin(), waiting.end());
    waiting.clear();
  };
  for (const Unit& unit : units) {
    if (!open) {
      if (unit.mark_class != 0) {
        out.push_back(unit);
      } else {
        base = unit;
        open = true;
      }
      continue;
    }
    const bool blocked = !waiting.empty() && waiting.back().mark_class >= unit.mark_class;
    const char32_t together = blocked ? 0 : compose(base.value, unit.value);
    if (together != 0) {
      base = {together, base.change + unit.change - 1, 0};
    } else if (unit.mark_class == 0) {
      flush();
      base = unit;
    } else {
      waiting.push_back(unit);
    }
  }
  if (open) flush();
  return out;
}

// Whether the character may change or join its neighbours. Marks and the vowels and finals of Hangul join.
bool unsafe(char32_t value, NormalForm form) {
  if (value < (compatible(form) ? 0xA0 : composed(form) ? 0x300 : 0xC0)) return false;
  if ((category(value) & kMarks) != 0) return true;
  if (value >= 0x1160 && value <= 0x11FF) return true;
  if (value >= 0xAC00 && value <= 0xD7A3) return !composed(form);
  utf8proc_int32_t parts[32];
  int boundary = 0;
  const int options = UTF8PROC_DECOMPOSE | (compatible(form) ? UTF8PROC_COMPAT : 0);
  const auto point = static_cast<utf8proc_int32_t>(value);
  return utf8proc_decompose_char(point, parts, 32, static_cast<utf8proc_option_t>(options), &boundary) != 1 ||
         parts[0] != point;
}

// The end of the longest part from `at` on that stays as it is, without the character that an unsafe one could join.
size_t safe_end(std::string_view text, size_t at, NormalForm form) {
  size_t last = at;
  while (at < text.size()) {
    const CodePoint c = code_point(text, at);
    if (unsafe(c.value, form)) return last;
    last = at;
    at += c.size;
  }
  return at;
}

}  // namespace

void to_normal_form(AlignedText& text, NormalForm form) {
  const std::string_view from = text.text();
  size_t safe = safe_end(from, 0, form);
  if (safe == from.size()) return;
  TextRewriter rewriter(from, text.origin(), text.begin());
  std::vector<Unit> units;
  while (rewriter.at() < from.size()) {
    rewriter.keep(safe);
    units.clear();
    // One character that may be safe, and all unsafe ones behind it.
    size_t at = safe;
    size_t pending = 0;  // units from here on are not sorted yet
    const auto sort = [&] {
      std::stable_sort(units.begin() + static_cast<std::ptrdiff_t>(pending), units.end(),
                       [](const Unit& a, const Unit& b) { return a.mark_class < b.mark_class; });
    };
    const auto add = [&](char32_t value) {
      const size_t begin = units.size();
      decompose(value, compatible(form), units);
      for (size_t i = begin; i < units.size(); ++i) {
        if (units[i].mark_class != 0) continue;
        std::stable_sort(units.begin() + static_cast<std::ptrdiff_t>(pending),
                         units.begin() + static_cast<std::ptrdiff_t>(i),
                         [](const Unit& a, const Unit& b) { return a.mark_class < b.mark_class; });
        pending = i;
      }
    };
    for (bool first = true; at < from.size(); first = false) {
      const CodePoint c = code_point(from, at);
      if (!first && !unsafe(c.value, form)) break;
      add(c.value);
      at += c.size;
    }
    sort();
    for (const Unit& unit : composed(form) ? recompose(units) : units) rewriter.put(unit.value, unit.change);
    safe = safe_end(from, at, form);
    if (rewriter.at() != at) break;  // cannot be: the changes count every character
  }
  text.replace(rewriter.take_text(), rewriter.take_spans());
}

}  // namespace motet
