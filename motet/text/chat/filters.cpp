#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/text/chat/nodes.h"
#include "motet/text/pipeline/unicode.h"

namespace motet {
namespace {

using Value = TemplateValue;
using Arguments = std::vector<Value>;

const std::string& text_of(const Value& value, const std::string& what) {
  if (!value.is_string()) fail(what, " wants a string and got ", told(value));
  return value.get_ref<const std::string&>();
}

// Both ends, or one, without the characters (white space when there are none).
std::string stripped(const std::string& text, const Arguments& arguments, bool left, bool right) {
  const bool given = !arguments.empty() && !arguments[0].is_null();
  const std::string set = given ? text_of(arguments[0], "strip") : "";
  const auto wanted = [&](size_t at) {
    const CodePoint c = code_point(text, at);
    return given ? set.find(text.substr(at, c.size)) != set.npos : is_python_space(c.value);
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end && wanted(begin)) begin += code_point(text, begin).size;
  while (right && end > begin && wanted(character_before(text, end))) end = character_before(text, end);
  return text.substr(begin, end - begin);
}

// An argument that says how often at most; -1: as often as there is something.
int64_t count_of(const Arguments& arguments, size_t i, const std::string& what) {
  if (i >= arguments.size() || arguments[i].is_null()) return -1;
  if (!is_whole(arguments[i])) fail(what, " wants an integer as count and got ", told(arguments[i]));
  return std::max<int64_t>(whole(arguments[i]), -1);
}

// Up to `left` times.
std::string replaced(const std::string& text, const std::string& from, const std::string& to, int64_t left) {
  if (from.empty()) fail("replace wants a first string that is not empty");
  std::string out;
  size_t at = 0;
  for (size_t found; left != 0 && (found = text.find(from, at)) != text.npos; at = found + from.size(), --left) {
    out.append(text, at, found - at).append(to);
    if (out.size() > (1 << 24)) fail("replace makes more than 16 MB");
  }
  return out.append(text, at);
}

// Changes ASCII letters only, and says so where others are.
std::string cased(const std::string& text, bool upper, const std::string& what) {
  std::string out = text;
  for (char& c : out) {
    if (static_cast<unsigned char>(c) >= 0x80) fail(what, " of text that is not ASCII is not supported");
    c = static_cast<char>(upper ? std::toupper(c) : std::tolower(c));
  }
  return out;
}

std::string titled(const std::string& text, bool every_word, const std::string& what) {
  std::string out = cased(text, false, what);
  bool begin = true;
  for (char& c : out) {
    const bool letter = std::isalpha(static_cast<unsigned char>(c)) != 0;
    if (letter && begin) c = static_cast<char>(std::toupper(c));
    begin = every_word && !letter;
  }
  return out;
}

// The filter of Jinja: a word begins behind one of these, a number is part of one. The method is Python's.
std::string capitalized_words(const std::string& text) {
  std::string out = cased(text, false, "title");
  bool begin = true;
  for (char& c : out) {
    const bool between =
        is_python_space(static_cast<unsigned char>(c)) || std::string_view("-({[<").find(c) != text.npos;
    if (begin && !between) c = static_cast<char>(std::toupper(c));
    begin = between;
  }
  return out;
}

Value split(const std::string& text, const Arguments& arguments) {
  Value out = Value::array();
  int64_t left = count_of(arguments, 1, "split");
  if (arguments.empty() || arguments[0].is_null()) {
    if (left >= 0) fail("split wants a separator before a count");
    for (size_t at = 0; at < text.size();) {
      size_t end = at;
      while (end < text.size() && !is_python_space(code_point(text, end).value)) end += code_point(text, end).size;
      if (end > at) out.push_back(text.substr(at, end - at));
      at = end < text.size() ? end + code_point(text, end).size : end;
    }
    return out;
  }
  const std::string& sign = text_of(arguments[0], "split");
  if (sign.empty()) fail("split wants a separator that is not empty");
  size_t at = 0;
  for (size_t found; left != 0 && (found = text.find(sign, at)) != text.npos; at = found + sign.size(), --left) {
    out.push_back(text.substr(at, found - at));
  }
  out.push_back(text.substr(at));
  return out;
}

Value truncated(double number) {
  if (!(std::abs(number) < 9e18)) fail("int of ", shown(number), ", which is too large");
  return static_cast<int64_t>(number);
}

// Python's numbers may have single underscores between digits.
std::string without_underscores(const std::string& text) {
  const auto digit = [&](size_t at) { return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])); };
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '_' || at == 0 || !digit(at - 1) || !digit(at + 1)) out += text[at];
  }
  return out;
}

// What is no number becomes the argument, or 0.
Value as_integer(const Value& value, const Arguments& arguments) {
  if (undefined(value)) fail("int of something undefined");
  if (value.is_number_integer()) return value;
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number()) return truncated(value.get<double>());
  const Value otherwise = arguments.empty() ? Value(0) : arguments[0];
  if (!value.is_string()) return otherwise;
  const std::string text = without_underscores(stripped(value.get_ref<const std::string&>(), {}, true, true));
  const size_t plus = text.size() > 1 && text[0] == '+' && text[1] != '-' ? 1 : 0;
  const char *begin = text.data() + plus, *end = text.data() + text.size();
  int64_t number = 0;
  double real = 0;
  if (const auto read = std::from_chars(begin, end, number); read.ec == std::errc() && read.ptr == end) return number;
  const auto read = std::from_chars(begin, end, real);
  return read.ec == std::errc() && read.ptr == end && std::isfinite(real) ? truncated(real) : otherwise;
}

// json.dumps(value, ensure_ascii=False, indent=..)
void dump(std::string& out, const Value& value, int indent, int level) {
  if (undefined(value)) fail("tojson of something undefined");
  const auto line = [&](int at) {
    if (indent >= 0) out.append("\n").append(static_cast<size_t>(indent * at), ' ');
  };
  const bool list = value.is_array();
  if ((!list && !value.is_object()) || value.empty()) {
    if (value.is_binary()) fail("tojson of a method");
    out += value.is_number_float() ? shown(value) : value.dump();
    return;
  }
  out += list ? '[' : '{';
  bool first = true;
  for (const auto& [name, item] : value.items()) {
    if (!first) out += indent >= 0 ? "," : ", ";
    first = false;
    line(level + 1);
    if (!list) out += Value(name).dump() + ": ";
    dump(out, item, indent, level + 1);
  }
  line(level);
  out += list ? ']' : '}';
}

int64_t length(const Value& value) {
  if (value.is_string()) return static_cast<int64_t>(utf8_length(value.get_ref<const std::string&>()));
  if (value.is_array() || value.is_object()) return static_cast<int64_t>(value.size());
  if (undefined(value)) return 0;
  fail("length wants a string, a list or a mapping and got ", told(value));
}

Value items(const Value& value) {
  Value out = Value::array();
  if (undefined(value)) return out;
  if (!value.is_object()) fail("items wants a mapping and got ", told(value));
  for (const auto& [name, item] : value.items()) out.push_back(Value::array({name, item}));
  return out;
}

Value characters(const Value& value) {
  if (value.is_array()) return value;
  Value out = Value::array();
  if (value.is_object()) {
    for (const auto& [name, item] : value.items()) out.push_back(name);
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    for (size_t at = 0; at < text.size(); at += code_point(text, at).size)
      out.push_back(text.substr(at, code_point(text, at).size));
  } else if (!undefined(value)) {
    fail(told(value), " is no list");
  }
  return out;
}

// Of an item: "role", or "function.name" for a member of a member.
Value attribute(const Value& item, const std::string& path) {
  Value found = item;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('.', at), path.size());
    if (undefined(found)) fail("something undefined has no member ", quote(path.substr(at, end - at)));
    const auto member = found.is_object() ? found.find(path.substr(at, end - at)) : found.end();
    found = found.is_object() && member != found.end() ? Value(*member) : Value(Value::value_t::discarded);
    at = end + 1;
  }
  return found;
}

std::string joined_list(const Value& list, const std::string& sign) {
  std::string out;
  bool first = true;
  for (const Value& item : characters(list)) {
    out += (first ? "" : sign) + shown(item);
    first = false;
    if (out.size() > (1 << 24)) fail("join makes more than 16 MB");
  }
  return out;
}

// The items whose attribute passes a test, or is true where none is named; rejectattr: the others.
Value selected(const Value& value, const Arguments& arguments, const std::string& name) {
  if (arguments.empty()) fail("the filter ", name, " wants an attribute");
  const std::string test = arguments.size() > 1 ? text_of(arguments[1], name) : "";
  if (!test.empty() && !knows_test(test)) fail("the test ", quote(test), " is not supported");
  const Arguments rest(arguments.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(arguments.size(), 2)),
                       arguments.end());
  Value out = Value::array();
  for (const Value& item : characters(value)) {
    const Value of = attribute(item, text_of(arguments[0], name));
    if ((test.empty() ? truth(of) : apply_test(test, of, rest)) == (name == "selectattr")) out.push_back(item);
  }
  return out;
}

// How many arguments each takes here at most; Jinja and Python have more for some.
const std::map<std::string, size_t> kFilters = {
    {"trim", 1},  {"length", 0}, {"count", 0},      {"upper", 0},     {"lower", 0},   {"capitalize", 0},
    {"title", 0}, {"join", 1},   {"tojson", 2},     {"default", 2},   {"d", 2},       {"first", 0},
    {"last", 0},  {"string", 0}, {"int", 1},        {"list", 0},      {"replace", 3}, {"items", 0},
    {"safe", 0},  {"map", 1},    {"selectattr", 3}, {"rejectattr", 3}};
const std::map<std::string, size_t> kMethods = {{"items", 0},      {"keys", 0},       {"values", 0},  {"get", 2},
                                                {"strip", 1},      {"lstrip", 1},     {"rstrip", 1},  {"upper", 0},
                                                {"lower", 0},      {"capitalize", 0}, {"title", 0},   {"split", 2},
                                                {"startswith", 1}, {"endswith", 1},   {"replace", 3}, {"join", 1}};

// A name that is not there has a complaint of its own.
void check_count(const std::map<std::string, size_t>& all, const std::string& name, size_t count) {
  const auto found = all.find(name);
  if (found == all.end() || count <= found->second) return;
  const size_t most = found->second;
  if (most == 0) fail(name, " takes no argument here and got ", count);
  fail(name, " takes at most ", most, most == 1 ? " argument" : " arguments", " here and got ", count);
}

}  // namespace

bool knows_filter(const std::string& name) { return kFilters.contains(name); }

Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments,
                   const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& keyword = names[i];
    const bool known = keyword.empty() || (name == "tojson" && (keyword == "indent" || keyword == "ensure_ascii")) ||
                       (name == "map" && keyword == "attribute") ||
                       ((name == "default" || name == "d") && keyword == "boolean");
    if (!known) fail("the filter ", name, " takes no ", quote(keyword), " here");
  }
  check_count(kFilters, name, arguments.size());
  const auto argument = [&](size_t i) { return i < arguments.size() ? arguments[i] : Value(); };
  if (name == "default" || name == "d") {
    const size_t flag = !names.empty() && names[0] == "boolean" ? 0 : 1;
    const bool replace = undefined(value) || (truth(argument(flag)) && !truth(value));
    return replace ? (arguments.empty() || flag == 0 ? Value("") : arguments[0]) : value;
  }
  if (name == "length" || name == "count") return length(value);
  if (name == "string" || name == "safe") return shown(value);
  if (name == "trim") return stripped(shown(value), arguments, true, true);
  if (name == "upper" || name == "lower") return cased(shown(value), name == "upper", name);
  if (name == "capitalize") return titled(shown(value), false, name);
  if (name == "title") return capitalized_words(shown(value));
  if (name == "join") return joined_list(value, arguments.empty() ? "" : shown(arguments[0]));
  if (name == "replace") {
    if (arguments.size() < 2) fail("the filter replace wants two strings");
    return replaced(shown(value), shown(arguments[0]), shown(arguments[1]), count_of(arguments, 2, name));
  }
  if (name == "list") return characters(value);
  if (name == "items") return items(value);
  if (name == "int") return as_integer(value, arguments);
  if (name == "tojson") {
    Value indent;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) fail("the filter tojson is only supported as tojson(indent=...)");
      if (names[i] == "indent")
        indent = arguments[i];
      else if (truth(arguments[i]))
        fail("tojson with ensure_ascii is not supported");
    }
    if (!indent.is_null() && !indent.is_number_integer())
      fail("tojson wants an integer as indent and got ", told(indent));
    std::string out;
    dump(out, value, indent.is_null() ? -1 : static_cast<int>(std::clamp<int64_t>(indent.get<int64_t>(), 0, 64)), 0);
    return out;
  }
  if (name == "map") {
    if (names != std::vector<std::string>{"attribute"}) fail("the filter map is only supported as map(attribute=...)");
    Value out = Value::array();
    for (const Value& item : characters(value)) out.push_back(attribute(item, text_of(arguments[0], name)));
    return out;
  }
  if (name == "selectattr" || name == "rejectattr") return selected(value, arguments, name);
  const Value all = characters(value);  // first, last
  if (all.empty()) return Value(Value::value_t::discarded);
  return name == "first" ? all.front() : all.back();
}

Value apply_method(const std::string& name, const Value& value, const Arguments& arguments) {
  check_count(kMethods, name, arguments.size());
  const auto argument = [&](size_t i) -> const Value& {
    if (i >= arguments.size()) fail(name, "() lacks an argument");
    return arguments[i];
  };
  if (value.is_object()) {
    if (name == "items") return items(value);
    if (name == "keys") return characters(value);
    if (name == "values") {
      Value out = Value::array();
      for (const Value& item : value) out.push_back(item);
      return out;
    }
    if (name == "get") {
      const auto found = value.find(text_of(argument(0), "get"));
      return found != value.end() ? *found : arguments.size() > 1 ? arguments[1] : Value();
    }
    fail("the method ", quote(name), " of a mapping is not supported; known: items, keys, values, get");
  }
  const std::string& text = text_of(value, name + "()");
  if (name == "strip") return stripped(text, arguments, true, true);
  if (name == "lstrip") return stripped(text, arguments, true, false);
  if (name == "rstrip") return stripped(text, arguments, false, true);
  if (name == "upper" || name == "lower") return cased(text, name == "upper", name);
  if (name == "capitalize") return titled(text, false, name);
  if (name == "title") return titled(text, true, name);
  if (name == "split") return split(text, arguments);
  if (name == "startswith") return text.starts_with(text_of(argument(0), name));
  if (name == "endswith") return text.ends_with(text_of(argument(0), name));
  if (name == "replace") {
    return replaced(text, text_of(argument(0), name), text_of(argument(1), name), count_of(arguments, 2, name));
  }
  if (name == "join") {
    for (const Value& item : characters(argument(0))) text_of(item, "join()");
    return joined_list(argument(0), text);
  }
  fail("the method ", quote(name),
       " of a string is not supported; known: strip, lstrip, rstrip, upper, lower, capitalize, "
       "title, split, startswith, endswith, replace, join");
}

bool knows_test(const std::string& name) {
  static const std::vector<std::string> all = {
      "defined", "undefined", "none",  "string",  "mapping", "iterable", "sequence",
      "number",  "integer",   "float", "boolean", "true",    "false",    "odd",
      "even",    "equalto",   "eq",    "==",      "ne",      "!=",       "in"};
  return std::find(all.begin(), all.end(), name) != all.end();
}

bool apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  static const std::set<std::string> compares{"equalto", "eq", "==", "ne", "!=", "in"};
  if (!arguments.empty() && !compares.contains(name))
    fail("the test ", name, " takes no argument and got ", arguments.size());
  if (name == "defined") return !undefined(value);
  if (name == "undefined") return undefined(value);
  if (name == "none") return value.is_null();
  if (name == "string") return value.is_string();
  if (name == "mapping") return value.is_object();
  if (name == "iterable" || name == "sequence")
    return value.is_array() || value.is_string() || value.is_object() || undefined(value);
  if (name == "number") return value.is_number() || value.is_boolean();
  if (name == "integer") return value.is_number_integer();
  if (name == "float") return value.is_number_float();
  if (name == "boolean") return value.is_boolean();
  if (name == "true" || name == "false") return value.is_boolean() && value.get<bool>() == (name == "true");
  if (name == "odd" || name == "even") {
    if (!is_whole(value)) fail("the test ", name, " wants an integer and got ", told(value));
    return (whole(value) % 2 != 0) == (name == "odd");
  }
  if (arguments.size() != 1) fail("the test ", name, " wants one argument");
  if (name == "equalto" || name == "eq" || name == "==") return same(value, arguments[0]);
  if (name == "ne" || name == "!=") return !same(value, arguments[0]);
  for (const Value& item : characters(arguments[0])) {
    if (same(item, value)) return true;
  }
  return false;
}

}  // namespace motet
