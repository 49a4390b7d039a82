#include <algorithm>

#include "motet/core/error.h"
#include "motet/text/chat/nodes.h"

namespace motet {
namespace {

using Value = TemplateValue;

[[noreturn]] void too_large() { fail("a number is too large"); }

Value joined(const std::string& a, const std::string& b) {
  if (a.size() + b.size() > kMostTemplateBytes) fail("a string has more than 16 MB");
  return a + b;
}

Value joined_lists(const Value& a, const Value& b) {
  if (a.size() + b.size() > kMostTemplateSteps) fail("a list has more than a million items");
  Value out = a;
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

bool contains(const Value& all, const Value& item) {
  if (all.is_string()) {
    if (!item.is_string()) fail("'in' wants a string before a string and got ", told(item));
    return all.get_ref<const std::string&>().find(item.get_ref<const std::string&>()) != std::string::npos;
  }
  if (all.is_object()) return item.is_string() && all.contains(item.get_ref<const std::string&>());
  const Value list = apply_filter("list", all, {}, {});
  return std::any_of(list.begin(), list.end(), [&](const Value& each) { return same(each, item); });
}

Value checked_difference(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_sub_overflow(a, b, &out)) too_large();
  return out;
}

Value integer_arithmetic(const std::string& sign, int64_t i, int64_t j) {
  if (sign == "//" || sign == "%") {
    if (j == -1) return sign == "%" ? Value(0) : checked_difference(0, i);
    const bool lower = i % j != 0 && (i % j < 0) != (j < 0);  // Python rounds down, C++ towards 0
    return sign == "%" ? i % j + (lower ? j : 0) : i / j - (lower ? 1 : 0);
  }
  int64_t out = 0;
  const bool over = sign == "+"   ? __builtin_add_overflow(i, j, &out)
                    : sign == "-" ? __builtin_sub_overflow(i, j, &out)
                                  : __builtin_mul_overflow(i, j, &out);
  if (over) too_large();
  return out;
}

Value arithmetic(const std::string& sign, const Value& a, const Value& b) {
  const auto number = [](const Value& v) { return v.is_number() || v.is_boolean(); };
  if (!number(a) || !number(b)) fail(quote(sign), " does not go with ", told(a), " and ", told(b));
  const bool integers = is_whole(a) && is_whole(b);
  if (integers && (sign[0] == '<' || sign[0] == '>')) {
    const int64_t i = whole(a), j = whole(b);
    return sign == "<" ? i < j : sign == ">" ? i > j : sign == "<=" ? i <= j : i >= j;
  }
  const auto real = [](const Value& v) { return v.is_boolean() ? (v.get<bool>() ? 1.0 : 0.0) : v.get<double>(); };
  const double x = real(a), y = real(b);
  if (sign == "<") return x < y;
  if (sign == ">") return x > y;
  if (sign == "<=") return x <= y;
  if (sign == ">=") return x >= y;
  if (sign != "+" && sign != "-" && sign != "*" && y == 0) fail("a division by zero");
  if (sign == "/") return x / y;
  if (a.is_number_float() || b.is_number_float()) {
    if (sign == "+") return x + y;
    if (sign == "-") return x - y;
    if (sign == "*") return x * y;
    fail(quote(sign), " of numbers with a fraction is not supported");
  }
  return integer_arithmetic(sign, whole(a), whole(b));
}

}  // namespace

TemplateValue apply_sign(const std::string& sign, const TemplateValue& value) {
  if (sign == "not") return !truth(value);
  if (is_whole(value)) return checked_difference(0, whole(value));
  if (value.is_number()) return -value.get<double>();
  fail("- wants a number and got ", told(value));
}

TemplateValue apply_operator(const std::string& sign, const TemplateValue& a, const TemplateValue& b) {
  if (sign == "==") return same(a, b);
  if (sign == "!=") return !same(a, b);
  if (sign == "in") return contains(b, a);
  if (sign == "not in") return !contains(b, a);
  if (sign == "~") return joined(shown(a), shown(b));
  if (sign == "+" && a.is_string() && b.is_string()) return joined(a.get<std::string>(), b.get<std::string>());
  if (sign == "+" && a.is_array() && b.is_array()) return joined_lists(a, b);
  if (a.is_string() && b.is_string() && (sign[0] == '<' || sign[0] == '>')) {
    const int order = a.get_ref<const std::string&>().compare(b.get_ref<const std::string&>());
    return sign == "<" ? order < 0 : sign == ">" ? order > 0 : sign == "<=" ? order <= 0 : order >= 0;
  }
  return arithmetic(sign, a, b);
}

}  // namespace motet
