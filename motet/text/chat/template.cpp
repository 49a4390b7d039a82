#include "motet/text/chat/template.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <optional>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/text/chat/nodes.h"
#include "motet/text/pipeline/unicode.h"

namespace motet {
namespace {

using Node = TemplateNode;
using Kind = TemplateNode::Kind;
using Value = TemplateValue;

const Value kUndefined(Value::value_t::discarded);
const std::vector<std::string> kFunctions{"namespace", "range", "raise_exception", "strftime_now"};
constexpr size_t kLongestDate = 256;
constexpr const char* kNamespace = "\x01namespace";  // its first member, of a kind that no variable is of

bool is_namespace(const Value& value) {
  return value.is_object() && !value.empty() && value.front().is_binary() && value.begin().key() == kNamespace;
}

bool is_function(const std::string& name) {
  return std::find(kFunctions.begin(), kFunctions.end(), name) != kFunctions.end();
}

// The name of an argument at its place, where a function or method takes it by name too; "" elsewhere.
std::string parameter(const std::string& function, size_t place) {
  static const std::map<std::string, std::vector<std::string>> all{
      {"raise_exception", {"message"}}, {"strftime_now", {"format"}}, {"split", {"sep", "maxsplit"}}};
  const auto found = all.find(function);
  return found != all.end() && place < found->second.size() ? found->second[place] : "";
}

class Interpreter {
 public:
  Interpreter(const Value& variables, const std::string& where) : where_(where) {
    scopes_.emplace_back();
    for (const auto& [name, value] : variables.items()) scopes_.back()[name] = value;
  }

  std::string run(const Node& root) {
    execute(root);
    return std::move(out_);
  }

 private:
  enum class Flow { on, leave, next };

  [[noreturn]] void stop(const Node& node, const std::string& what) { fail(where_, ": line ", node.line, ": ", what); }

  void step(const Node& node) {
    if (++steps_ > kMostTemplateSteps) stop(node, "the template takes more than a million steps");
  }

  void moves(const Node& node, const Value& value) {
    if (value.is_string()) work_ += value.get_ref<const std::string&>().size();
    if (value.is_structured()) work_ += value.size() * 4 * sizeof(Value);
    if (work_ > 64 * kMostTemplateBytes) stop(node, "the template moves more than a gigabyte");
  }

  void write(const Node& node, const std::string& text) {
    if (text.size() > kMostTemplateBytes - out_.size()) stop(node, "the text has more than 16 MB");
    out_ += text;
  }

  Value* find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return &found->second;
    }
    return nullptr;
  }

  Flow execute_all(const Node& node) {
    for (const auto& part : node.parts) {
      const Flow flow = execute(*part);
      if (flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  Flow execute(const Node& node) {
    step(node);
    switch (node.kind) {
      case Kind::block:
        return execute_all(node);
      case Kind::scope: {
        scopes_.emplace_back();
        const Flow flow = execute_all(node);
        scopes_.pop_back();
        return flow;
      }
      case Kind::text:
        write(node, node.text);
        return Flow::on;
      case Kind::print:
        write(node, shown(evaluate(*node.parts[0])));
        return Flow::on;
      case Kind::set:
        set(node);
        return Flow::on;
      case Kind::condition:
        if (truth_of(*node.parts[0])) return execute(*node.parts[1]);
        return node.parts.size() > 2 ? execute(*node.parts[2]) : Flow::on;
      case Kind::loop:
        return loop(node);
      case Kind::leave:
        return Flow::leave;
      case Kind::next:
        return Flow::next;
      default:
        stop(node, "an expression stands where a statement should");
    }
  }

  Value new_namespace(const Node& call) {
    Value out = {{kNamespace, Value::binary({})}};
    const std::vector<Value> values = arguments(call);
    for (size_t i = 0; i < values.size(); ++i) {
      if (call.names[i].empty()) stop(call, "namespace() takes names only");
      out[call.names[i]] = values[i];
    }
    return out;
  }

  void set(const Node& node) {
    const Node& of = *node.parts[0];
    const bool opens = node.names.size() == 1 && of.kind == Kind::call && of.parts[0]->kind == Kind::name &&
                       of.parts[0]->text == "namespace";
    Value value = opens ? new_namespace(of) : evaluate(of);
    if (node.names.size() == 1) {
      scopes_.back()[node.names[0]] = std::move(value);
      return;
    }
    Value* target = find(node.names[0]);
    if (!target || !is_namespace(*target)) stop(node, quote(node.names[0]) + " is no namespace");
    (*target)[node.names[1]] = std::move(value);
  }

  Value items_of(const Node& node, const Value& value) {
    moves(node, value);
    try {
      return apply_filter("list", value, {}, {});
    } catch (const Error& error) {
      stop(node, error.what());
    }
  }

  void bind(const Node& node, const Value& item) {
    if (node.names.size() == 1) {
      scopes_.back()[node.names[0]] = item;
      return;
    }
    if (!item.is_array() || item.size() != node.names.size())
      stop(node, text("a loop over ", node.names.size(), " names got ", told(item)));
    for (size_t i = 0; i < node.names.size(); ++i) scopes_.back()[node.names[i]] = item[i];
  }

  Flow loop(const Node& node) {
    Value made, all = items_of(node, view(*node.parts[0], made));
    const Node* const filter = node.parts[2].get();
    if (filter && node.counts) {
      Value kept = Value::array();
      for (const Value& item : all) {
        scopes_.emplace_back();
        bind(node, item);
        if (truth_of(*filter)) kept.push_back(item);
        scopes_.pop_back();
      }
      all = std::move(kept);
    }
    const size_t count = all.size();
    bool ended = false;  // a turn that no break or continue cut short, without which Jinja goes on to the else
    for (size_t i = 0; i < count; ++i) {
      scopes_.emplace_back();
      bind(node, all[i]);
      if (filter && !node.counts && !truth_of(*filter)) {
        scopes_.pop_back();
        continue;
      }
      Value state = {{"index", i + 1},
                     {"index0", i},
                     {"revindex", count - i},
                     {"revindex0", count - i - 1},
                     {"first", i == 0},
                     {"last", i + 1 == count},
                     {"length", count},
                     {"depth", 1},
                     {"depth0", 0}};
      if (i > 0) state["previtem"] = all[i - 1];
      if (i + 1 < count) state["nextitem"] = all[i + 1];
      scopes_.back()["loop"] = std::move(state);
      const Flow flow = execute(*node.parts[1]);
      scopes_.pop_back();
      ended = ended || flow == Flow::on;
      if (flow == Flow::leave) break;
    }
    return !ended && node.parts[3] ? execute(*node.parts[3]) : Flow::on;
  }

  Value evaluate(const Node& node) {
    Value made;
    const Value& value = view(node, made);
    if (&value == &made) return made;
    if (value.is_structured()) moves(node, value);
    return value;
  }

  // A value where it stands, or in `made`: a list is not copied to look at one of its items. Good until a statement.
  // of_member: what is wanted is one of its members, all that there is of a namespace.
  const Value& view(const Node& node, Value& made, bool of_member = false) {
    step(node);
    const Value* stands = &made;
    if (node.kind == Kind::name) {
      stands = find(node.text);
      if (!stands && !is_function(node.text)) return kUndefined;
      if (!stands) stands = &(made = "<function " + node.text + ">");
      if (is_namespace(*stands) && !of_member)
        stop(node, "a namespace is only supported by its members, as in " + node.text + ".name");
    } else if (node.kind == Kind::member || node.kind == Kind::index) {
      Value held;
      const Value& of = view(*node.parts[0], held, true);
      const Value key = node.kind == Kind::member ? Value(node.text) : evaluate(*node.parts[1]);
      const bool letter = of.is_string() && is_whole(key);
      const Value& found = letter ? made = item(node, items_of(node, of), key) : item(node, of, key);
      stands = letter || &of == &held ? &(made = Value(found)) : &found;
    } else {
      try {
        made = value_of(node);
      } catch (const Value::exception&) {
        stop(node, "a value is of the wrong type");
      }
    }
    if (stands == &made || stands->is_string()) moves(node, *stands);
    return *stands;
  }

  bool truth_of(const Node& node) {
    Value made;
    return truth(view(node, made));
  }

  Value value_of(const Node& node) {
    switch (node.kind) {
      case Kind::literal:
        return node.value;
      case Kind::list: {
        Value out = Value::array();
        for (const auto& part : node.parts) out.push_back(evaluate(*part));
        return out;
      }
      case Kind::dict: {
        Value out = Value::object();
        for (size_t i = 0; i + 1 < node.parts.size(); i += 2) {
          const Value key = evaluate(*node.parts[i]);
          if (!key.is_string()) stop(node, "a key of a mapping wants a string and got " + told(key));
          out[key.get_ref<const std::string&>()] = evaluate(*node.parts[i + 1]);
        }
        return out;
      }
      case Kind::slice:
        return slice(node);
      case Kind::call:
        return call(node);
      case Kind::filter:
      case Kind::test:
        return filter(node);
      case Kind::unary:
        return unary(node);
      case Kind::binary:
        return binary(node);
      case Kind::chain:
        return chain(node);
      case Kind::ternary:
        if (truth_of(*node.parts[1])) return evaluate(*node.parts[0]);
        return node.parts[2] ? evaluate(*node.parts[2]) : kUndefined;
      default:
        stop(node, "a statement stands where an expression should");
    }
  }

  // Of an object or a list; undefined where there is no such one.
  const Value& item(const Node& node, const Value& of, const Value& key) {
    if (undefined(of)) stop(node, "something undefined has no member " + told(key));
    if (key.is_string()) {
      const auto& name = key.get_ref<const std::string&>();
      const Value* const attribute = is_namespace(of) ? nullptr : python_attribute(of, name);
      if (attribute && node.kind == Kind::member) return *attribute;
      const auto found = of.is_object() ? of.find(name) : of.end();
      return of.is_object() && found != of.end() ? *found : attribute ? *attribute : kUndefined;
    }
    if (!is_whole(key) || !of.is_array()) return kUndefined;
    int64_t index = whole_of(node, key);
    if (index < 0) index += static_cast<int64_t>(of.size());
    return index >= 0 && index < static_cast<int64_t>(of.size()) ? of[static_cast<size_t>(index)] : kUndefined;
  }

  Value slice(const Node& node) {
    Value made;
    const Value& of = view(*node.parts[0], made);
    if (!of.is_array() && !of.is_string()) stop(node, "a slice wants a list or a string and got " + told(of));
    const Value all = items_of(node, of);
    const auto size = static_cast<int64_t>(all.size());
    const auto bound = [&](size_t part) -> std::optional<int64_t> {
      const Value value = node.parts[part] ? evaluate(*node.parts[part]) : Value();
      if (value.is_null()) return std::nullopt;
      if (!is_whole(value)) stop(node, "a slice wants integers and got " + told(value));
      return whole_of(node, value);
    };
    const int64_t step = bound(3).value_or(1);
    if (step == 0 || step > size + 1 || step < -size - 1) {
      if (step == 0) stop(node, "the step of a slice is 0");
    }
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    const auto place = [&](int64_t index) { return std::clamp(index < 0 ? index + size : index, low, high); };
    const std::optional<int64_t> from = bound(1), to = bound(2);
    const int64_t begin = from ? place(*from) : (step > 0 ? low : high);
    const int64_t end = to ? place(*to) : (step > 0 ? high : low);
    Value out = Value::array();
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
      out.push_back(all[static_cast<size_t>(i)]);
      if (step > size || step < -size) break;
      i += step;
    }
    return of.is_string() ? apply_filter("join", out, {}, {}) : out;
  }

  std::vector<Value> arguments(const Node& node) {
    std::vector<Value> out;
    for (size_t i = 1; i < node.parts.size(); ++i) out.push_back(evaluate(*node.parts[i]));
    return out;
  }

  Value call(const Node& node) {
    const Node& function = *node.parts[0];
    if (function.kind == Kind::name && function.text == "namespace")
      stop(node, "namespace() is only supported as what a 'set' gives a name to");
    if (function.kind != Kind::name && function.kind != Kind::member)
      stop(node, "only functions and methods can be called");
    for (size_t i = 0; i < node.names.size(); ++i)
      if (!node.names[i].empty() && node.names[i] != parameter(function.text, i))
        stop(node, function.text + "() takes no " + quote(node.names[i]) + " here");
    const std::vector<Value> values = arguments(node);
    if (function.kind == Kind::member) {
      Value made;
      const Value& of = view(*function.parts[0], made);
      return located(node, [&] { return apply_method(function.text, of, values); });
    }
    if (function.text == "raise_exception") {
      std::string message = values.empty() ? "the template refuses its input" : shown(values[0]).substr(0, 500);
      std::replace(message.begin(), message.end(), '\n', ' ');
      stop(node, message);
    }
    if (function.text == "range") return range(node, values);
    if (function.text == "strftime_now") return date(node, values);
    stop(node, "the function " + quote(function.text) + " is not supported; known: " + joined(kFunctions));
  }

  // As transformers has it: the local time, without a zone, in the format of Python's strftime.
  Value date(const Node& node, const std::vector<Value>& values) {
    if (values.size() != 1 || !values[0].is_string()) stop(node, "strftime_now() wants one text");
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
      stop(node, "strftime_now() makes nothing, or more than " + std::to_string(kLongestDate - 1) + " bytes");
    return std::string(text, size);
  }

  Value range(const Node& node, const std::vector<Value>& values) {
    for (const Value& value : values) {
      if (!is_whole(value)) stop(node, "range() wants integers and got " + told(value));
    }
    if (values.empty() || values.size() > 3) stop(node, "range() wants one to three integers");
    const int64_t begin = values.size() > 1 ? whole_of(node, values[0]) : 0;
    const int64_t end = whole_of(node, values[values.size() > 1 ? 1 : 0]);
    const int64_t by = values.size() > 2 ? whole_of(node, values[2]) : 1;
    if (by == 0 || std::abs(begin) > kMostTemplateSteps || std::abs(end) > kMostTemplateSteps ||
        std::abs(by) > kMostTemplateSteps)
      stop(node, "range() is too large or stands still");
    Value out = Value::array();
    for (int64_t i = begin; by > 0 ? i < end : i > end; i += by) {
      step(node);
      out.push_back(i);
    }
    return out;
  }

  template <class Action>
  Value located(const Node& node, Action action) {
    try {
      return action();
    } catch (const Error& error) {
      stop(node, error.what());
    }
  }

  int64_t whole_of(const Node& node, const Value& value) {
    return located(node, [&] { return Value(whole(value)); }).get<int64_t>();
  }

  Value filter(const Node& node) {
    Value made;
    const bool asks = node.kind == Kind::test && (node.text == "defined" || node.text == "undefined");
    const Value& of = view(*node.parts[0], made, asks);
    const std::vector<Value> values = arguments(node);
    return located(node, [&]() -> Value {
      if (node.kind == Kind::filter) return apply_filter(node.text, of, values, node.names);
      return apply_test(node.text, of, values) != node.negated;
    });
  }

  Value unary(const Node& node) {
    Value made;
    const Value& value = view(*node.parts[0], made);
    return located(node, [&] { return apply_sign(node.text, value); });
  }

  Value binary(const Node& node) {
    const std::string& sign = node.text;
    Value left, right;
    const Value& a = view(*node.parts[0], left);
    if (sign == "and") return truth(a) ? evaluate(*node.parts[1]) : a;
    if (sign == "or") return truth(a) ? a : evaluate(*node.parts[1]);
    const Value& b = view(*node.parts[1], right);
    return located(node, [&] { return apply_operator(sign, a, b); });
  }

  // As Python has a < b < c: each operand once, up to the first comparison that is not true.
  Value chain(const Node& node) {
    Value left = evaluate(*node.parts[0]), out;
    for (size_t i = 0; i < node.names.size(); ++i) {
      Value right = evaluate(*node.parts[i + 1]);
      out = located(node, [&] { return apply_operator(node.names[i], left, right); });
      if (!truth(out)) break;
      left = std::move(right);
    }
    return out;
  }

  const std::string& where_;
  std::vector<std::map<std::string, Value>> scopes_;
  std::string out_;
  int64_t steps_ = 0;
  size_t work_ = 0;
};

// Every line ends with \n, as Jinja reads them.
std::string with_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t at = 0; at < source.size(); ++at) {
    const bool pair = source[at] == '\r' && at + 1 < source.size() && source[at + 1] == '\n';
    if (!pair) out += source[at] == '\r' ? '\n' : source[at];
  }
  return out;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, const std::string& where) : where_(where) {
  std::string storage;
  if (source.size() > kMostTemplateBytes) fail(where, ": ", source.size(), " bytes, want at most ", kMostTemplateBytes);
  root_ = parse_template(with_newlines(valid_utf8(source, storage)), where);
}

ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const nlohmann::ordered_json& variables) const {
  if (!variables.is_object()) fail(where_, ": the variables are no object");
  return Interpreter(variables, where_).run(*root_);
}

}  // namespace motet
