#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>

#include "motet/core/error.h"
#include "motet/text/chat/nodes.h"

namespace motet {
namespace {

using Value = TemplateValue;

const std::vector<std::string> kFunctions{"namespace", "range", "raise_exception", "strftime_now"};
constexpr size_t kLongestDate = 256;

// The name of an argument at its place, where a function or method takes it by name too; "" elsewhere.
std::string parameter(const std::string& function, size_t place) {
  static const std::map<std::string, std::vector<std::string>> all{
      {"raise_exception", {"message"}}, {"strftime_now", {"format"}}, {"split", {"sep", "maxsplit"}}};
  const auto found = all.find(function);
  return found != all.end() && place < found->second.size() ? found->second[place] : "";
}

// As transformers has it: the local time, without a zone, in the format of Python's strftime.
Value date(const std::vector<Value>& values) {
  if (values.size() != 1 || !values[0].is_string()) fail("strftime_now() wants one text");
  const auto clock = std::chrono::system_clock::now().time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(clock);
  const std::time_t now = seconds.count();
  const auto fraction = std::chrono::duration_cast<std::chrono::microseconds>(clock - seconds).count();
  std::string format = values[0].get<std::string>();
  for (size_t at = 0; (at = format.find('%', at)) != format.npos && at + 1 < format.size();) {
    const char letter = format[at + 1];
    const std::string own = letter == 'f' ? std::to_string(1'000'000 + fraction).substr(1) : "";
    const bool replaced = letter == 'f' || letter == 'z' || letter == 'Z';
    if (replaced) format.replace(at, 2, own);
    at += replaced ? own.size() : 2;
  }
  std::tm local{};
  char text[kLongestDate];
  const size_t size = std::strftime(text, sizeof text, format.c_str(), ::localtime_r(&now, &local));
  if (size == 0 && !format.empty())
    fail("strftime_now() makes nothing, or more than " + std::to_string(kLongestDate - 1) + " bytes");
  return std::string(text, size);
}

Value range(const std::vector<Value>& values) {
  for (const Value& value : values) {
    if (!is_whole(value)) fail("range() wants integers and got " + told(value));
  }
  if (values.empty() || values.size() > 3) fail("range() wants one to three integers");
  const int64_t begin = values.size() > 1 ? whole(values[0]) : 0;
  const int64_t end = whole(values[values.size() > 1 ? 1 : 0]);
  const int64_t by = values.size() > 2 ? whole(values[2]) : 1;
  if (by == 0 || std::abs(begin) > kMostTemplateSteps || std::abs(end) > kMostTemplateSteps ||
      std::abs(by) > kMostTemplateSteps)
    fail("range() is too large or stands still");
  Value out = Value::array();
  for (int64_t i = begin; by > 0 ? i < end : i > end; i += by) out.push_back(i);
  return out;
}

}  // namespace

bool knows_function(const std::string& name) { return std::ranges::find(kFunctions, name) != kFunctions.end(); }

void check_call(const std::string& function, const std::vector<std::string>& names) {
  if (function == "namespace") fail("namespace() is only supported as what a 'set' gives a name to");
  for (size_t i = 0; i < names.size(); ++i)
    if (!names[i].empty() && names[i] != parameter(function, i))
      fail(function, "() takes no ", quote(names[i]), " here");
}

Value apply_function(const std::string& name, const std::vector<Value>& arguments) {
  if (name == "range") return range(arguments);
  if (name == "strftime_now") return date(arguments);
  if (name != "raise_exception") fail("the function ", quote(name), " is not supported; known: ", joined(kFunctions));
  std::string message = arguments.empty() ? "the template refuses its input" : shown(arguments[0]).substr(0, 500);
  std::replace(message.begin(), message.end(), '\n', ' ');
  fail(message);
}

}  // namespace motet
