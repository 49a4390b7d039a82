// What a chat template is parsed to.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace motet {

using TemplateValue = nlohmann::ordered_json;  // discarded: undefined; binary: a method

inline constexpr size_t kMostTemplateBytes = 1 << 24;     // of a template, a text or a string
inline constexpr int64_t kMostTemplateSteps = 1'000'000;  // and of items of a list

struct TemplateNode {
  enum class Kind {
    // statements
    block,
    scope,  // a block whose names stay inside
    text,
    print,
    set,
    macro,
    condition,
    loop,
    leave,
    next,
    // expressions
    literal,
    name,
    content,  // of a block `set`, before its filters
    list,
    dict,
    member,
    index,
    slice,
    call,
    filter,
    test,
    unary,
    binary,
    chain,  // of comparisons
    ternary,
  };

  Kind kind;
  std::string text = {};     // text, name, operator, member (of a set too), filter or test
  TemplateValue value = {};  // of a literal
  // block, scope: statements. print, unary: [0]. set: [value, body of a block]; macro: [body, defaults or null];
  // condition: [if, then, else]; loop: [list, body, filter or null, else or null]; list: items; dict: key, value ...;
  // member: [of]; index: [of, at]; slice: [of, begin, end, step]; call, filter, test: [of], arguments; binary: both;
  // chain: operands; ternary: [then, if, else].
  std::vector<std::unique_ptr<TemplateNode>> parts = {};
  // Of keyword arguments, "" for others; targets of set and loop; parameters of a macro; signs of a chain; of a block
  // with names of its own and of a scope: those that are undefined until it sets them, sorted.
  std::vector<std::string> names = {};
  bool negated = false;  // test
  bool counts = false;   // loop: its body names `loop`
  bool tuple = false;    // list: in parentheses
  bool calls = false;    // an expression below calls what may be a macro
  int line = 1;
  int depth = 1;  // of the tree below
};

using TemplateNodePtr = std::unique_ptr<TemplateNode>;

// Throws as ChatTemplate does.
TemplateNodePtr parse_template(std::string_view source, const std::string& where);
void find_unset_names(TemplateNode& root);  // gives the blocks of a tree their names

// The kinds of pieces a template is cut into, and the tokens inside of tags.
struct TemplatePiece {
  enum class Kind { text, print, statement };
  Kind kind;
  std::string_view content;
  int line;
};
std::vector<TemplatePiece> cut_template(std::string_view source, const std::string& where);

struct TemplateToken {
  enum class Kind { name, string, integer, number, sign, end };
  Kind kind;
  std::string text;
};
std::vector<TemplateToken> template_tokens(const TemplatePiece& piece, const std::string& where);

// Functions, filters and methods on a value; throws Error without a place for an unknown name or wrong arguments.
TemplateValue apply_filter(const std::string& name, const TemplateValue& value,
                           const std::vector<TemplateValue>& arguments, const std::vector<std::string>& names);
TemplateValue apply_method(const std::string& name, const TemplateValue& value,
                           const std::vector<TemplateValue>& arguments);
TemplateValue apply_function(const std::string& name, const std::vector<TemplateValue>& arguments);
bool apply_test(const std::string& name, const TemplateValue& value, const std::vector<TemplateValue>& arguments);
bool knows_filter(const std::string& name);
bool knows_test(const std::string& name);
bool knows_function(const std::string& name);
// Whether a function or a method takes arguments by these names.
void check_call(const std::string& function, const std::vector<std::string>& names);

// "not", "-" before a value; an operator but "and" and "or" between two. Throw Error without a place.
TemplateValue apply_sign(const std::string& sign, const TemplateValue& value);
TemplateValue apply_operator(const std::string& sign, const TemplateValue& a, const TemplateValue& b);

bool is_python_space(char32_t c);  // of str.isspace(), str.strip() and \s of a regular expression
bool truth(const TemplateValue& value);
bool undefined(const TemplateValue& value);
std::string shown(const TemplateValue& value);  // as Python's str()
std::string told(const TemplateValue& value);   // in a message
bool is_whole(const TemplateValue& value);      // a Python int, which true and false are too
int64_t whole(const TemplateValue& value);      // of one; throws Error without a place beyond 64 bits
// What stands for the attribute of a Python value before its members are looked at: a method, something undefined for
// one that would change the value, as in a sandbox, or null.
const TemplateValue* python_attribute(const TemplateValue& of, const std::string& name);
bool same(const TemplateValue& a, const TemplateValue& b);  // as Python's ==: members in any order, true is 1

}  // namespace motet
