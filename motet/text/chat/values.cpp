#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/text/chat/nodes.h"
#include "motet/text/pipeline/unicode.h"

namespace motet {
namespace {

using Value = TemplateValue;

// str.isprintable().
bool printable(char32_t c) {
  return c == ' ' || (category(c) & (kLetters | kMarks | kNumbers | kPunctuation | kSymbols)) != 0;
}

std::string escape(char32_t c) {
  const auto form = c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
  char out[12];
  std::snprintf(out, sizeof out, form, static_cast<unsigned>(c));
  return out;
}

std::string repr(const Value& value) {
  if (undefined(value)) return "Undefined";
  if (!value.is_string()) return shown(value);
  const auto& text = value.get_ref<const std::string&>();
  const char sign = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, sign);
  for (size_t at = 0, size; at < text.size(); at += size) {
    const CodePoint c = code_point(text, at);
    size = c.size;
    const size_t named = c.value < 0x80 ? std::string_view("\n\r\t\\").find(text[at]) : text.npos;
    if (named != text.npos)
      out += {'\\', "nrt\\"[named]};
    else if (text[at] == sign)
      out += {'\\', sign};
    else if (printable(c.value))
      out.append(text, at, size);
    else
      out += escape(c.value);
  }
  return out + sign;
}

// As Python's repr writes it: the fewest digits that give the number back, an exponent below 1e-4 and from 1e16 on.
std::string python_number(double value) {
  const double size = std::abs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  char buffer[40];
  const auto form = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  std::string out(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, form).ptr);
  return fixed && out.find('.') == out.npos ? out + ".0" : out;
}

}  // namespace

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

bool undefined(const Value& value) { return value.is_discarded(); }

bool truth(const Value& value) {
  if (undefined(value) || value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

std::string shown(const Value& value) {
  if (undefined(value)) return "";
  if (value.is_null()) return "None";
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return python_number(value.get<double>());
  if (value.is_number()) return value.dump();
  if (value.is_binary()) return "<built-in method>";
  std::string out = value.is_array() ? "[" : "{";
  bool first = true;
  for (const auto& [name, item] : value.items()) {
    if (!first) out += ", ";
    first = false;
    if (value.is_object()) out += repr(name) + ": ";
    out += repr(item);
  }
  return out + (value.is_array() ? "]" : "}");
}

std::string told(const Value& value) { return undefined(value) ? "something undefined" : quote(shown(value)); }

bool is_whole(const Value& value) { return value.is_number_integer() || value.is_boolean(); }

int64_t whole(const Value& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    fail("a number is too large");
  return value.get<int64_t>();
}

const Value* python_attribute(const Value& of, const std::string& name) {
  static const Value method = Value::binary({}), none(Value::value_t::discarded);
  using Names = std::set<std::string_view>;
  static const Names of_mappings{"copy", "fromkeys", "get", "items", "keys", "values"};
  static const Names of_lists{"copy", "count", "index"};
  static const Names of_strings{
      "capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
      "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
      "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
      "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
      "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
      "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
      "swapcase",   "title",        "translate",    "upper",   "zfill"};
  static const Names changing_mappings{"clear", "pop", "popitem", "setdefault", "update"};
  static const Names changing_lists{"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
  const Names nothing;
  const Names& methods = of.is_object()   ? of_mappings
                         : of.is_array()  ? of_lists
                         : of.is_string() ? of_strings
                                          : nothing;
  const Names& changing = of.is_object() ? changing_mappings : of.is_array() ? changing_lists : nothing;
  return methods.contains(name) ? &method : changing.contains(name) ? &none : nullptr;
}

bool same(const Value& a, const Value& b) {
  if (undefined(a) || undefined(b)) return undefined(a) && undefined(b);
  const auto number = [](const Value& v) { return v.is_boolean() ? Value(v.get<bool>() ? 1 : 0) : v; };
  if ((a.is_boolean() || a.is_number()) && (b.is_boolean() || b.is_number())) return number(a) == number(b);
  if (!a.is_structured() || a.type() != b.type()) return a == b;
  if (a.size() != b.size()) return false;
  if (a.is_array()) return std::equal(a.begin(), a.end(), b.begin(), same);
  std::map<std::string_view, const Value*> members;
  for (auto member = b.begin(); member != b.end(); ++member) members[member.key()] = &*member;
  for (auto member = a.begin(); member != a.end(); ++member) {
    const auto other = members.find(member.key());
    if (other == members.end() || !same(*member, *other->second)) return false;
  }
  return true;
}

}  // namespace motet
