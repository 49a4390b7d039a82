#include "motet/text/chat/template.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>

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
constexpr int kDeepestRun = 1000;  // of statements and expressions; without macros 500 is the most
constexpr int kDeepestValue = 100;
constexpr const char* kNamespace = "\x01namespace";  // its first member, of a kind that no variable is of

bool is_namespace(const Value& value) {
  return value.is_object() && !value.empty() && value.front().is_binary() && value.begin().key() == kNamespace;
}

struct Name {
  Value value;
  const Node* macro = nullptr;
  size_t scope = 0;  // of the macro
};

struct Scope {
  std::map<std::string, Name> names = {};
  size_t around = 0;            // where other names are looked for; 0, the first, has the variables
  const Node* block = nullptr;  // its names are undefined until they are set
};

class Interpreter {
 public:
  Interpreter(const Value& variables, const std::string& where) : where_(where) {
    scopes_.emplace_back();
    for (const auto& [name, value] : variables.items()) scopes_.back().names[name].value = value;
  }

  std::string run(const Node& root) {
    open(&root);
    execute(root);
    return std::move(out_);
  }

 private:
  enum class Flow { on, leave, next };
  // What a value is wanted for: there is more that can be asked of a namespace or a macro than what it is.
  enum class Look { value, member, existence };

  // Of statements and expressions inside of one another.
  class Level {
   public:
    Level(Interpreter& of, const Node& node) : of_(of) {
      of.step(node);
      if (++of.level_ > kDeepestRun) of.stop(node, "macros that call one another are more than 1000 levels deep");
    }
    ~Level() { --of_.level_; }

   private:
    Interpreter& of_;
  };

  [[noreturn]] void stop(const Node& node, const std::string& what) { fail(where_, ": line ", node.line, ": ", what); }

  void step(const Node& node, size_t count = 1) {
    steps_ += static_cast<int64_t>(count);
    if (steps_ > kMostTemplateSteps) stop(node, "the template takes more than a million steps");
  }

  void moves(const Node& node, const Value& value, int depth = 0) {
    if (value.is_string()) moves(node, value.get_ref<const std::string&>().size());
    if (!value.is_structured()) return;
    if (depth == kDeepestValue) stop(node, text("a value is more than ", kDeepestValue, " levels deep"));
    moves(node, value.size() * 4 * sizeof(Value));
    for (const Value& part : value) moves(node, part, depth + 1);
  }

  void moves(const Node& node, size_t bytes) {
    work_ += bytes;
    if (work_ > 64 * kMostTemplateBytes) stop(node, "the template moves more than a gigabyte");
  }

  void write(const Node& node, const std::string& text) {
    if (text.size() > kMostTemplateBytes - out_.size() - held_) stop(node, "the text has more than 16 MB");
    moves(node, text.size());
    out_ += text;
  }

  // What is written by an action.
  template <class Action>
  std::string captured(Action action) {
    std::string outside = std::exchange(out_, {});
    held_ += outside.size();
    action();
    held_ -= outside.size();
    return std::exchange(out_, std::move(outside));
  }

  // A scope inside of the innermost one.
  void open(const Node* block) { scopes_.push_back({.around = scopes_.size() - 1, .block = block}); }

  Name* find(const std::string& name) {
    for (size_t i = scopes_.size() - 1;; i = scopes_[i].around) {
      Scope& scope = scopes_[i];
      const auto found = scope.names.find(name);
      if (found != scope.names.end()) return &found->second;
      if (scope.block && std::ranges::binary_search(scope.block->names, name)) return &unset_;
      if (i == 0) return nullptr;
    }
  }

  Flow execute_all(const Node& node) {
    for (const auto& part : node.parts) {
      const Flow flow = execute(*part);
      if (flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  Flow execute(const Node& node) {
    const Level level(*this, node);
    switch (node.kind) {
      case Kind::block:
        return execute_all(node);
      case Kind::scope: {
        open(&node);
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
        return node.parts.size() > 1 ? set_block(node) : set(node);
      case Kind::macro:
        scopes_.back().names[node.text] = {.value = kUndefined, .macro = &node, .scope = scopes_.size() - 1};
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

  Flow set(const Node& node) {
    const Node& of = *node.parts[0];
    const bool opens = node.names.size() == 1 && node.text.empty() && of.kind == Kind::call &&
                       of.parts[0]->kind == Kind::name && of.parts[0]->text == "namespace";
    assign(node, opens ? new_namespace(of) : evaluate(of));
    return Flow::on;
  }

  Flow set_block(const Node& node) {
    Flow flow = Flow::on;
    open(node.parts[1].get());
    Value content = captured([&] { flow = execute_all(*node.parts[1]); });
    Value value;
    if (flow == Flow::on) {
      content_ = std::move(content);
      value = evaluate(*node.parts[0]);
    }
    scopes_.pop_back();
    if (flow == Flow::on) assign(node, std::move(value));
    return flow;
  }

  void assign(const Node& node, Value value) {
    if (node.text.empty()) return bind(node, std::move(value));
    Name* const target = find(node.names[0]);
    if (!target || !is_namespace(target->value)) stop(node, quote(node.names[0]) + " is no namespace");
    target->value[node.text] = std::move(value);
  }

  Value items_of(const Node& node, const Value& value) {
    moves(node, value);
    try {
      return apply_filter("list", value, {}, {});
    } catch (const Error& error) {
      stop(node, error.what());
    }
  }

  // The names of a loop or a set.
  void bind(const Node& node, Value item) {
    auto& names = scopes_.back().names;
    if (node.names.size() == 1) {
      names[node.names[0]] = {.value = std::move(item)};
      return;
    }
    if (!item.is_array() || item.size() != node.names.size())
      stop(node, text(node.kind == Kind::loop ? "a loop over " : "a 'set' of ", node.names.size(), " names got ",
                      told(item)));
    for (size_t i = 0; i < node.names.size(); ++i) names[node.names[i]] = {.value = std::move(item[i])};
  }

  Flow loop(const Node& node) {
    Value made, all = items_of(node, view(*node.parts[0], made));
    const Node* const filter = node.parts[2].get();
    if (filter && node.counts) {
      Value kept = Value::array();
      for (const Value& item : all) {
        open(nullptr);
        bind(node, item);
        if (truth_of(*filter)) kept.push_back(item);
        scopes_.pop_back();
      }
      all = std::move(kept);
    }
    const size_t count = all.size();
    bool ended = false;  // a turn that no break or continue cut short, without which Jinja goes on to the else
    for (size_t i = 0; i < count; ++i) {
      open(nullptr);
      bind(node, all[i]);
      if (filter && !node.counts && !truth_of(*filter)) {
        scopes_.pop_back();
        continue;
      }
      scopes_.back().block = node.parts[1].get();
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
      scopes_.back().names["loop"] = {.value = std::move(state)};
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

  // A value where it stands, or in `made`: a list is not copied to look at one of its items. Good until a statement,
  // which a call of a macro is too.
  const Value& view(const Node& node, Value& made, Look look = Look::value) {
    const Level level(*this, node);
    const Value* stands = &made;
    if (node.kind == Kind::name) {
      const Name* const found = find(node.text);
      const bool function = found ? found->macro != nullptr : knows_function(node.text);
      if (!found && !function) return kUndefined;
      if (found && function && look != Look::existence)
        stop(node, "a macro is only supported where it is called, as in " + node.text + "()");
      stands = function ? &(made = "<function " + node.text + ">") : &found->value;
      if (is_namespace(*stands) && look == Look::value)
        stop(node, "a namespace is only supported by its members, as in " + node.text + ".name");
    } else if (node.kind == Kind::member || node.kind == Kind::index) {
      Value held;
      const Value& of = kept(node, *node.parts[0], held, Look::member);
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

  // A part of a node, as it is before parts behind it are evaluated: a macro may change what a namespace holds.
  const Value& kept(const Node& node, const Node& part, Value& made, Look look = Look::value) {
    const Value& stands = view(part, made, look);
    if (!node.calls || part.kind == Kind::name || &stands == &made) return stands;
    moves(node, stands);
    return made = Value(stands);
  }

  bool truth_of(const Node& node) {
    Value made;
    return truth(view(node, made));
  }

  Value value_of(const Node& node) {
    switch (node.kind) {
      case Kind::literal:
        return node.value;
      case Kind::content:
        return content_;
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
    const Value& of = kept(node, *node.parts[0], made);
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
    if (function.kind != Kind::name && function.kind != Kind::member)
      stop(node, "only functions and methods can be called");
    if (function.kind == Kind::name) {
      const Name* const found = find(function.text);
      if (found && found->macro) return call_macro(node, *found);
      if (found) stop(node, quote(function.text) + " is no function, but " + told(found->value));
    }
    located(node, [&] { check_call(function.text, node.names); });
    if (function.kind == Kind::member) {
      Value made;
      const Value& of = kept(node, *function.parts[0], made);
      const std::vector<Value> values = arguments(node);
      return located(node, [&] { return apply_method(function.text, of, values); });
    }
    const std::vector<Value> values = arguments(node);
    Value out = located(node, [&] { return apply_function(function.text, values); });
    if (out.is_array()) step(node, out.size());
    return out;
  }

  // A macro sees the names around it, not those around its call.
  Value call_macro(const Node& call, const Name& found) {
    const Node& macro = *found.macro;
    const std::vector<std::string>& parameters = macro.names;
    step(call, parameters.size());
    Scope scope{.around = found.scope, .block = macro.parts[0].get()};
    for (const std::string& name : parameters) scope.names[name].value = kUndefined;
    std::vector<Value> values = arguments(call);
    std::vector<bool> given(parameters.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string& name = call.names[i];
      if (name.empty() && i >= parameters.size())
        stop(call, text("the macro ", quote(macro.text), " takes at most ", parameters.size(), " arguments and got ",
                        values.size()));
      const auto place =
          name.empty() ? i : static_cast<size_t>(std::ranges::find(parameters, name) - parameters.begin());
      if (place == parameters.size() || given[place])
        stop(call, "the macro " + quote(macro.text) + " takes no " + quote(name) + " here");
      given[place] = true;
      scope.names[parameters[place]].value = std::move(values[i]);
    }
    scopes_.push_back(std::move(scope));
    Value out = captured([&] {
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (given[i] || !macro.parts[i + 1]) continue;
        Value value = evaluate(*macro.parts[i + 1]);
        scopes_.back().names[parameters[i]].value = std::move(value);
      }
      execute(*macro.parts[0]);
    });
    scopes_.pop_back();
    return out;
  }

  template <class Action>
  std::invoke_result_t<Action> located(const Node& node, Action action) {
    try {
      return action();
    } catch (const Error& error) {
      stop(node, error.what());
    }
  }

  int64_t whole_of(const Node& node, const Value& value) {
    return located(node, [&] { return whole(value); });
  }

  Value filter(const Node& node) {
    Value made;
    const bool asks = node.kind == Kind::test && (node.text == "defined" || node.text == "undefined");
    const Value& of = kept(node, *node.parts[0], made, asks ? Look::existence : Look::value);
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
    const Value& a = kept(node, *node.parts[0], left);
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
  std::deque<Scope> scopes_;  // which leaves names where they are
  Name unset_{.value = kUndefined};
  Value content_;  // of a block set
  std::string out_;
  size_t held_ = 0;  // bytes that wait for what is captured now
  int64_t steps_ = 0;
  size_t work_ = 0;
  int level_ = 0;
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
