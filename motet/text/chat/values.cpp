#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "motet/text/chat/nodes.h"

namespace motet {
namespace {

using Value = TemplateValue;

std::string repr(const Value& value) {
  if (!value.is_string()) return shown(value);
  const auto& text = value.get_ref<const std::string&>();
  const char sign = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, sign);
  for (const char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\\' || c == sign)
      out += {'\\', c};
    else
      out += c;
  }
  return out + sign;
}

// As Python's repr writes it: the fewest digits that give the number back, an exponent below 1e-4 and from 1e16 on.
std::string number_text(double value) {
  const double size = std::abs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  char buffer[40];
  const auto form = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  std::string out(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, form).ptr);
  return fixed && out.find('.') == out.npos ? out + ".0" : out;
}

}  // namespace

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
  if (value.is_number_float()) return number_text(value.get<double>());
  if (value.is_number()) return value.dump();
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
