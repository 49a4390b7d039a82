#include <algorithm>
#include <set>
#include <utility>

#include "motet/core/error.h"
#include "motet/text/chat/nodes.h"

namespace motet {
namespace {

using Node = TemplateNode;
using Kind = TemplateNode::Kind;
using TokenKind = TemplateToken::Kind;

constexpr int kDeepest = 48, kDeepestTree = 400;
constexpr size_t kMostArguments = 255;

// Filters `safe` whose text is printed, or joined by `~`, as it is.
int safes_at_end(const Node& tree) {
  if (tree.kind == Kind::filter && tree.text == "safe") return 1 + safes_at_end(*tree.parts[0]);
  if (tree.kind != Kind::ternary) return 0;
  return safes_at_end(*tree.parts[0]) + (tree.parts[2] ? safes_at_end(*tree.parts[2]) : 0);
}

bool mentions(const Node& tree, const std::string& name) {
  return (tree.kind == Kind::name && tree.text == name) ||
         std::ranges::any_of(tree.parts, [&](const auto& part) { return part && mentions(*part, name); });
}

// Whether a body sets a member of a namespace that the filter of its loop reads.
bool sets_for(const Node& body, const Node& filter) {
  return (body.kind == Kind::set && !body.text.empty() && mentions(filter, body.names[0])) ||
         std::ranges::any_of(body.parts, [&](const auto& part) { return part && sets_for(*part, filter); });
}

class TemplateParser {
 public:
  TemplateParser(std::string_view source, const std::string& where)
      : where_(where), pieces_(cut_template(source, where)) {}

  TemplateNodePtr run() {
    TemplateNodePtr out = block({}, 0);
    if (piece_ < pieces_.size()) stop(quote(tokens_[0].text) + " has nothing that it ends");
    for (const auto& [filter, line] : filters_) {
      line_ = line;
      if (filter->calls) stop("a loop's filter that calls a macro beside a body with 'loop' is not supported");
      for (const std::string& name : set_in_macros_)
        if (mentions(*filter, name)) stop_at_filter();
    }
    find_unset_names(*out);
    return out;
  }

 private:
  [[noreturn]] void stop(const std::string& what) { fail(where_, ": line ", line_, ": ", what); }

  TemplateNodePtr make(Kind kind, std::string text = {}) {
    auto out = std::make_unique<Node>();
    out->kind = kind;
    out->text = std::move(text);
    out->line = line_;
    return out;
  }
  template <class... Parts>
  TemplateNodePtr make_with(Kind kind, std::string text, Parts... parts) {
    TemplateNodePtr out = make(kind, std::move(text));
    (out->parts.push_back(std::move(parts)), ...);
    return measured(std::move(out));
  }
  TemplateNodePtr measured(TemplateNodePtr out) {
    for (const auto& part : out->parts) {
      out->depth = std::max(out->depth, part ? part->depth + 1 : 1);
      out->calls = out->calls || (part && part->calls);
    }
    const Node* const function = out->kind == Kind::call ? out->parts[0].get() : nullptr;
    if (function && function->kind == Kind::name && !knows_function(function->text)) out->calls = true;
    if (out->depth > kDeepestTree) stop("an expression has more than 400 operators");
    return out;
  }

  // ---- statements

  void open_piece() {
    tokens_ = template_tokens(pieces_[piece_], where_);
    token_ = 0, safes_ = 0, tuples_ = 0;
    line_ = pieces_[piece_].line;
  }

  // Up to a statement that begins with one of `ends`, which is opened and not read.
  TemplateNodePtr block(const std::vector<std::string>& ends, int depth) {
    if (depth > kDeepest) stop("blocks are more than 48 levels deep");
    TemplateNodePtr out = make(Kind::block);
    for (; piece_ < pieces_.size(); ++piece_) {
      const TemplatePiece& piece = pieces_[piece_];
      line_ = piece.line;
      if (piece.kind == TemplatePiece::Kind::text) {
        out->parts.push_back(make(Kind::text, std::string(piece.content)));
        continue;
      }
      open_piece();
      if (piece.kind == TemplatePiece::Kind::print) {
        out->parts.push_back(make_with(Kind::print, "", expression(0)));
        finish();
        if (safes_ > safes_at_end(*out->parts.back()->parts[0])) stop_at_safe();
        continue;
      }
      const std::string word = tokens_[0].text;
      for (const std::string& end : ends) {
        if (word == end) return out;
      }
      if (word.starts_with("end") || word == "else" || word == "elif") {
        if (!ends.empty()) stop(quote(word) + " stands where " + ends.back() + " is missing");
        return out;
      }
      out->parts.push_back(statement(word, depth));
    }
    if (!ends.empty()) stop("'" + ends.back() + "' is missing");
    return out;
  }

  TemplateNodePtr statement(const std::string& word, int depth) {
    ++token_;
    if (word == "if") return condition(depth);
    if (word == "for") return loop(depth);
    if (word == "set") return set(depth);
    if (word == "macro") return macro(depth);
    if (word == "generation") return generation(depth);
    if (word == "break" || word == "continue") {
      if (loops_ == 0) stop("'" + word + "' is outside of a loop");
      finish();
      return make(word == "break" ? Kind::leave : Kind::next);
    }
    stop("the statement " + quote(word) +
         " is not supported; known: if, for, set, macro, generation, break, "
         "continue");
  }

  // What transformers masks for training; here its text alone counts.
  TemplateNodePtr generation(int depth) {
    TemplateNodePtr out = body("endgeneration", depth);
    out->kind = Kind::scope;
    return out;
  }

  // Up to the tag that ends a function of Python's, which a loop around it cannot be left from.
  TemplateNodePtr body(const std::string& end, int depth) {
    const int loops = std::exchange(loops_, 0);
    TemplateNodePtr out = rest(end, depth);
    loops_ = loops;
    return out;
  }

  TemplateNodePtr rest(const std::string& end, int depth) {
    finish();
    ++piece_;
    TemplateNodePtr out = block({end}, depth + 1);
    ++token_;
    finish();
    return out;
  }

  TemplateNodePtr macro(int depth) {
    TemplateNodePtr out = make(Kind::macro, take_name());
    if (knows_function(out->text)) stop("a macro named as the function " + quote(out->text) + " is not supported");
    expect("(");
    out->parts.emplace_back();
    while (!is(")")) {
      if (!out->names.empty()) expect(",");
      const std::string name = take_name();
      if (out->names.size() == kMostArguments) stop("a macro has more than 255 parameters");
      if (std::ranges::find(out->names, name) != out->names.end())
        stop("the macro " + quote(out->text) + " has two parameters " + quote(name));
      out->names.push_back(name);
      const bool all_given = out->parts.size() > 1 && out->parts.back();
      out->parts.push_back(take("=") ? expression(depth + 1) : nullptr);
      if (all_given && !out->parts.back()) stop("the parameter " + quote(name) + " lacks a default behind one with it");
    }
    expect(")");
    ++macros_;
    out->parts[0] = body("endmacro", depth);
    --macros_;
    for (const char* special : {"caller", "varargs", "kwargs"})
      if (mentions(*out, special) || std::ranges::find(out->names, special) != out->names.end())
        stop(quote(special) + " in a macro is not supported");
    return out;
  }

  TemplateNodePtr condition(int depth) {
    TemplateNodePtr out = make_with(Kind::condition, "", expression(0));
    finish();
    ++piece_;
    out->parts.push_back(block({"elif", "else", "endif"}, depth + 1));
    const std::string word = tokens_[0].text;
    ++token_;
    if (word == "elif") {
      if (depth > kDeepest) stop("too many elif");
      out->parts.push_back(condition(depth + 1));
      return out;
    }
    finish();
    if (word == "else") {
      ++piece_;
      out->parts.push_back(block({"endif"}, depth + 1));
      ++token_;
      finish();
    }
    return out;
  }

  TemplateNodePtr loop(int depth) {
    TemplateNodePtr out = make(Kind::loop);
    do {
      out->names.push_back(take_name());
    } while (take(","));
    if (!take_word("in")) stop("'for' lacks 'in'");
    out->parts.push_back(as_list(no_ternary(0)));
    TemplateNodePtr filter, otherwise;
    if (take_word("if")) filter = expression(0);
    if (take_word("recursive")) stop("'recursive' is not supported");
    const bool unpacked = out->names.size() > 1 && unpack(*out->parts[0]);
    finish();
    ++piece_;
    ++loops_;
    TemplateNodePtr body = block({"else", "endfor"}, depth + 1);
    --loops_;
    ++token_;
    if (tokens_[0].text == "else") {
      finish();
      ++piece_;
      otherwise = block({"endfor"}, depth + 1);
      otherwise->kind = Kind::scope;
      ++token_;
    }
    finish();
    out->counts = mentions(*body, "loop");
    if (unpacked && out->counts) stop("a loop over tuples whose body has 'loop' is not supported");
    if (filter && out->counts && sets_for(*body, *filter)) stop_at_filter();
    if (filter && out->counts) filters_.emplace_back(filter.get(), out->line);
    out->parts.push_back(std::move(body));
    out->parts.push_back(std::move(filter));
    out->parts.push_back(std::move(otherwise));
    return out;
  }

  TemplateNodePtr set(int depth) {
    TemplateNodePtr out = make(Kind::set);
    out->names.push_back(take_name());
    if (take(".")) {
      out->text = take_name();
      if (macros_ > 0) set_in_macros_.insert(out->names[0]);
    }
    while (out->text.empty() && take(",")) out->names.push_back(take_name());
    const bool several = out->names.size() > 1;
    if (!take("=")) {
      if (several) stop("'set' of several names without '=' is not supported");
      out->parts.push_back(filters(make(Kind::content), depth));
      for (const Node* part = out->parts[0].get(); part->kind != Kind::content; part = part->parts[0].get())
        if (part->kind != Kind::filter) stop("'set' without '=' takes filters alone");
      out->parts.push_back(rest("endset", depth));
      return out;
    }
    out->parts.push_back(expression(0));
    if (several && is(",")) {
      out->parts[0] = make_with(Kind::list, "", std::move(out->parts[0]));
      while (take(",")) out->parts[0]->parts.push_back(expression(0));
      out->parts[0] = measured(std::move(out->parts[0]));
    } else if (several) {
      out->parts[0] = as_list(std::move(out->parts[0]));
    }
    if (is(",")) stop_at_tuple();
    finish();
    return out;
  }

  // A tuple where a list of its items does the same.
  TemplateNodePtr as_list(TemplateNodePtr of) {
    tuples_ -= of->tuple;
    of->tuple = false;
    return of;
  }
  // Whether a list has tuples, whose items alone a loop of several names sees.
  bool unpack(Node& list) {
    bool some = false;
    if (list.kind != Kind::list) return some;
    for (TemplateNodePtr& item : list.parts) some = some || item->tuple, item = as_list(std::move(item));
    return some;
  }

  // ---- expressions, the loosest first

  TemplateNodePtr expression(int depth) {
    if (depth > kDeepest) stop("an expression is more than 48 levels deep");
    TemplateNodePtr out = no_ternary(depth);
    while (take_word("if")) {
      TemplateNodePtr when = no_ternary(depth + 1), otherwise;
      if (take_word("else")) otherwise = expression(depth + 1);
      out = make_with(Kind::ternary, "", std::move(out), std::move(when), std::move(otherwise));
    }
    return out;
  }

  TemplateNodePtr no_ternary(int depth) {
    TemplateNodePtr out = conjunction(depth);
    while (take_word("or")) out = make_with(Kind::binary, "or", std::move(out), conjunction(depth));
    return out;
  }
  TemplateNodePtr conjunction(int depth) {
    TemplateNodePtr out = negation(depth);
    while (take_word("and")) out = make_with(Kind::binary, "and", std::move(out), negation(depth));
    return out;
  }
  TemplateNodePtr negation(int depth) {
    if (depth > kDeepest) stop("an expression is more than 48 levels deep");
    if (take_word("not")) return make_with(Kind::unary, "not", negation(depth + 1));
    return comparison(depth);
  }
  TemplateNodePtr comparison(int depth) {
    TemplateNodePtr out = make(Kind::chain);
    out->parts.push_back(sum(depth));
    for (std::string sign; !(sign = take_comparison()).empty();) {
      out->names.push_back(sign);
      out->parts.push_back(sum(depth));
    }
    if (out->names.empty()) return std::move(out->parts[0]);
    if (out->names.size() > 1) return measured(std::move(out));
    if (out->names[0].ends_with("in")) out->parts[1] = as_list(std::move(out->parts[1]));
    return make_with(Kind::binary, out->names[0], std::move(out->parts[0]), std::move(out->parts[1]));
  }
  std::string take_comparison() {
    for (const char* each : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (take(each)) return each;
    }
    if (take_word("in")) return "in";
    if (!is_word("not") || tokens_[token_ + 1].text != "in") return "";
    token_ += 2;
    return "not in";
  }
  TemplateNodePtr sum(int depth) {
    TemplateNodePtr out = joined_strings(depth);
    while (is("+") || is("-")) {
      const std::string sign = tokens_[token_++].text;
      out = make_with(Kind::binary, sign, std::move(out), joined_strings(depth));
    }
    return out;
  }
  TemplateNodePtr joined_strings(int depth) {
    TemplateNodePtr out = product(depth);
    while (take("~")) {
      out = make_with(Kind::binary, "~", std::move(out), product(depth));
      for (const auto& part : out->parts) safes_ -= safes_at_end(*part);  // a plain text comes out
    }
    return out;
  }
  TemplateNodePtr product(int depth) {
    TemplateNodePtr out = unary(depth);
    while (is("*") || is("/") || is("//") || is("%")) {
      const std::string sign = tokens_[token_++].text;
      out = make_with(Kind::binary, sign, std::move(out), unary(depth));
    }
    return out;
  }
  TemplateNodePtr unary(int depth) {
    if (depth > kDeepest) stop("an expression is more than 48 levels deep");
    return filters(signed_primary(depth), depth);
  }
  TemplateNodePtr signed_primary(int depth) {
    if (depth > kDeepest) stop("an expression is more than 48 levels deep");
    if (take("-")) return make_with(Kind::unary, "-", signed_primary(depth + 1));
    return postfix(primary(depth), depth);
  }

  TemplateNodePtr primary(int depth) {
    const TemplateToken token = tokens_[token_];
    ++token_;
    TemplateNodePtr out = make(Kind::literal);
    switch (token.kind) {
      case TokenKind::string:
        out->value = token.text;
        while (tokens_[token_].kind == TokenKind::string)
          out->value = out->value.get<std::string>() + tokens_[token_++].text;
        return out;
      case TokenKind::integer:
        out->value = std::stoll(token.text);
        return out;
      case TokenKind::number:
        out->value = std::stod(token.text);
        return out;
      case TokenKind::name:
        if (token.text == "true" || token.text == "True") return out->value = true, std::move(out);
        if (token.text == "false" || token.text == "False") return out->value = false, std::move(out);
        if (token.text == "none" || token.text == "None") return out->value = nullptr, std::move(out);
        return make(Kind::name, token.text);
      default:
        break;
    }
    if (token.text == "(") {
      if (take(")")) return tuple(std::move(out));
      TemplateNodePtr inner = expression(depth + 1);
      if (take(")")) return inner;
      out->parts.push_back(std::move(inner));
      while (take(",") && !is(")")) out->parts.push_back(expression(depth + 1));
      expect(")");
      return tuple(std::move(out));
    }
    if (token.text == "[") {
      out->kind = Kind::list;
      while (!is("]")) {
        out->parts.push_back(expression(depth + 1));
        if (!take(",")) break;
      }
      expect("]");
      return measured(std::move(out));
    }
    if (token.text == "{") {
      out->kind = Kind::dict;
      while (!is("}")) {
        out->parts.push_back(expression(depth + 1));
        expect(":");
        out->parts.push_back(expression(depth + 1));
        if (!take(",")) break;
      }
      expect("}");
      return measured(std::move(out));
    }
    stop(token.kind == TokenKind::end ? "an expression ends too early"
                                      : "the sign " + quote(token.text) + " begins no expression");
  }

  TemplateNodePtr tuple(TemplateNodePtr of) {
    of->kind = Kind::list;
    of->tuple = true;
    ++tuples_;
    return measured(std::move(of));
  }

  // .name [at] [a:b:c] (arguments)
  TemplateNodePtr postfix(TemplateNodePtr out, int depth) {
    for (int count = 0;; ++count) {
      if (count > kDeepest) stop("an expression is more than 48 levels deep");
      if (take(".")) {
        if (tokens_[token_].kind == TokenKind::integer) stop("numbers behind a point are not supported");
        out = make_with(Kind::member, take_name(), std::move(out));
      } else if (take("[")) {
        out = subscript(std::move(out), depth);
      } else if (take("(")) {
        out = with_arguments(make_with(Kind::call, "", std::move(out)), depth);
      } else {
        return out;
      }
    }
  }

  TemplateNodePtr subscript(TemplateNodePtr of, int depth) {
    TemplateNodePtr begin, end, step;
    if (!is(":")) begin = expression(depth + 1);
    if (take("]")) return make_with(Kind::index, "", std::move(of), std::move(begin));
    expect(":");
    if (!is(":") && !is("]")) end = expression(depth + 1);
    if (take(":") && !is("]")) step = expression(depth + 1);
    expect("]");
    return make_with(Kind::slice, "", std::move(of), std::move(begin), std::move(end), std::move(step));
  }

  // After '('.
  TemplateNodePtr with_arguments(TemplateNodePtr out, int depth) {
    while (!is(")")) {
      const bool keyword = tokens_[token_].kind == TokenKind::name && tokens_[token_ + 1].text == "=" &&
                           tokens_[token_ + 1].kind == TokenKind::sign;
      const std::string name = keyword ? take_name() : "";
      if (!keyword && !out->names.empty() && !out->names.back().empty())
        stop("an argument without a name stands behind " + quote(out->names.back()));
      if (out->names.size() == kMostArguments) stop("a call has more than 255 arguments");
      if (keyword && std::ranges::find(out->names, name) != out->names.end()) stop(quote(name) + " is given twice");
      out->names.push_back(name);
      if (keyword) expect("=");
      out->parts.push_back(expression(depth + 1));
      if (!take(",")) break;
    }
    expect(")");
    return measured(std::move(out));
  }

  TemplateNodePtr filters(TemplateNodePtr out, int depth) {
    for (int count = 0;; ++count) {
      if (count > kDeepest) stop("an expression is more than 48 levels deep");
      if (take("|")) {
        const std::string name = take_name();
        if (!knows_filter(name)) stop("the filter " + quote(name) + " is not supported");
        if (name == "safe" && pieces_[piece_].kind != TemplatePiece::Kind::print) stop_at_safe();
        safes_ += name == "safe";
        out = make_with(Kind::filter, name, std::move(out));
        if (take("(")) out = with_arguments(std::move(out), depth);
      } else if (take_word("is")) {
        const bool negated = take_word("not");
        const std::string name = take_name();
        if (!knows_test(name)) stop("the test " + quote(name) + " is not supported");
        out = make_with(Kind::test, name, std::move(out));
        out->negated = negated;
        if (take("(")) {
          out = with_arguments(std::move(out), depth);
        } else if (begins_argument()) {
          out->names.emplace_back();
          out->parts.push_back(postfix(primary(depth), depth));
          out = measured(std::move(out));
        }
      } else {
        return out;
      }
    }
  }

  // Of a test: one value, without parentheses.
  bool begins_argument() const {
    const TemplateToken& token = tokens_[token_];
    if (token.kind == TokenKind::sign) return token.text == "[" || token.text == "{";
    const std::vector<std::string> others{"if", "else", "and", "or", "in", "not", "is"};
    return token.kind != TokenKind::end &&
           (token.kind != TokenKind::name || std::ranges::find(others, token.text) == others.end());
  }

  [[noreturn]] void stop_at_tuple() {
    stop("a tuple is only supported behind 'in', as a 'set' of several names and in the list of a loop of several");
  }

  [[noreturn]] void stop_at_filter() { stop("a loop's filter of what a body with 'loop' sets is not supported"); }

  // What + joins with such a text is escaped as HTML.
  [[noreturn]] void stop_at_safe() {
    stop("the filter safe is only supported at the end of what is printed or beside ~");
  }

  // ---- tokens

  bool is(const char* sign) const { return tokens_[token_].kind == TokenKind::sign && tokens_[token_].text == sign; }
  bool is_word(const char* word) const {
    return tokens_[token_].kind == TokenKind::name && tokens_[token_].text == word;
  }
  bool take(const char* sign) { return is(sign) && ++token_; }
  bool take_word(const char* word) { return is_word(word) && ++token_; }
  void expect(const char* sign) {
    if (!take(sign)) stop(std::string("a '") + sign + "' is missing before " + quote(tokens_[token_].text));
  }
  std::string take_name() {
    if (tokens_[token_].kind != TokenKind::name) stop("a name is missing before " + quote(tokens_[token_].text));
    return tokens_[token_++].text;
  }
  void finish() {
    if (tokens_[token_].kind != TokenKind::end) stop(quote(tokens_[token_].text) + " is too much");
    if (tuples_ > 0) stop_at_tuple();
  }

  const std::string& where_;
  std::vector<TemplatePiece> pieces_;
  size_t piece_ = 0;
  std::vector<TemplateToken> tokens_;
  size_t token_ = 0;
  int line_ = 1, loops_ = 0, macros_ = 0, safes_ = 0, tuples_ = 0;  // the last two of a tag
  std::set<std::string> set_in_macros_;                             // namespaces
  std::vector<std::pair<const Node*, int>> filters_;                // of loops that count, and their lines
};

}  // namespace

TemplateNodePtr parse_template(std::string_view source, const std::string& where) {
  return TemplateParser(source, where).run();
}

}  // namespace motet
