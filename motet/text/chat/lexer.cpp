#include <algorithm>
#include <cctype>

#include "motet/core/error.h"
#include "motet/core/utf8.h"
#include "motet/text/chat/nodes.h"
#include "motet/text/pipeline/unicode.h"

namespace motet {
namespace {

// The bytes of white space at a place; 0: none.
size_t space_at(std::string_view text, size_t at) {
  const CodePoint c = code_point(text, at);
  return is_python_space(c.value) ? c.size : 0;
}

std::string_view trimmed_begin(std::string_view text) {
  while (!text.empty() && space_at(text, 0) > 0) text.remove_prefix(space_at(text, 0));
  return text;
}

std::string_view trimmed_end(std::string_view text) {
  for (size_t last; !text.empty() && space_at(text, last = character_before(text, text.size())) > 0;)
    text = text.substr(0, last);
  return text;
}

// Without the white space between the last line break and the end, if there is nothing else.
std::string_view without_indent(std::string_view text, bool at_begin) {
  const size_t line = text.rfind('\n') + 1;
  return (line > 0 || at_begin) && trimmed_end(text.substr(line)).empty() ? text.substr(0, line) : text;
}

// The end of a tag's content: its closing sign outside of strings.
size_t closing(std::string_view source, size_t at, std::string_view sign) {
  char quote = 0;
  int depth = 0;
  for (; at < source.size(); ++at) {
    if (quote) {
      if (source[at] == '\\')
        ++at;
      else if (source[at] == quote)
        quote = 0;
    } else if (source[at] == '"' || source[at] == '\'') {
      quote = source[at];
    } else if (source[at] == '{') {
      ++depth;
    } else if (source[at] == '}' && depth > 0) {
      --depth;
    } else if (source.substr(at).starts_with(sign)) {
      return at;
    }
  }
  return source.npos;
}

}  // namespace

std::vector<TemplatePiece> cut_template(std::string_view source, const std::string& where) {
  std::vector<TemplatePiece> out;
  if (source.ends_with('\n')) source.remove_suffix(1);  // as Jinja does by default
  int line = 1;
  size_t at = 0;
  bool strip_left = false;
  while (at < source.size()) {
    size_t open = at;
    while ((open = source.find('{', open)) != source.npos && open + 1 < source.size() &&
           std::string_view("{%#").find(source[open + 1]) == std::string_view::npos) {
      ++open;
    }
    if (open == source.npos || open + 1 >= source.size()) open = source.size();
    std::string_view text = source.substr(at, open - at);
    const int text_line = line;
    line += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    const bool tag = open < source.size();
    const char kind = tag ? source[open + 1] : 0;
    const char mark = tag && open + 2 < source.size() ? source[open + 2] : 0;
    if (strip_left) text = trimmed_begin(text);
    const size_t text_begin = static_cast<size_t>(text.data() - source.data());
    if (mark == '-') {
      text = trimmed_end(text);
    } else if (tag && kind != '{' && mark != '+') {
      text = without_indent(text, text_begin == 0 || source[text_begin - 1] == '\n');
    }
    if (!text.empty()) out.push_back({TemplatePiece::Kind::text, text, text_line});
    if (!tag) break;
    const std::string sign = kind == '{' ? "}}" : kind == '%' ? "%}" : "#}";
    size_t begin = open + 2;
    if (mark == '-' || mark == '+') ++begin;
    const size_t close = kind == '#' ? source.find(sign, begin) : closing(source, begin, sign);
    if (close == source.npos) fail(where, ": line ", line, ": a tag that begins with {", kind, " is not closed");
    std::string_view content = source.substr(begin, close - begin);
    const int tag_line = line;
    line += static_cast<int>(std::count(content.begin(), content.end(), '\n'));
    strip_left = content.ends_with('-');
    const bool keep_newline =
        kind != '{' && content.ends_with('+');  // of {{ +}} it is an operator without a right side
    if (strip_left || keep_newline) content.remove_suffix(1);
    if (kind != '#') {
      out.push_back({kind == '{' ? TemplatePiece::Kind::print : TemplatePiece::Kind::statement, content, tag_line});
    }
    at = close + 2;
    if (kind != '{' && !strip_left && !keep_newline && source.substr(at).starts_with('\n')) {  // trim_blocks
      ++at;
      ++line;
    }
  }
  return out;
}

std::vector<TemplateToken> template_tokens(const TemplatePiece& piece, const std::string& where) {
  using Kind = TemplateToken::Kind;
  std::vector<TemplateToken> out;
  const std::string_view text = piece.content;
  const auto letter = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (const size_t space = space_at(text, at); space > 0) {
      at += space;
    } else if (c == '"' || c == '\'') {
      std::string value;
      for (++at; at < text.size() && text[at] != c; ++at) {
        if (text[at] != '\\' || at + 1 == text.size()) {
          value += text[at];
          continue;
        }
        const char escaped = text[++at];
        const size_t known = std::string_view("nrt\\'\"").find(escaped);
        if (known == std::string_view::npos)
          fail(where, ": line ", piece.line, ": the escape ", quote(text.substr(at - 1, 2)), " is not supported");
        value += "\n\r\t\\'\""[known];
      }
      if (at == text.size()) fail(where, ": line ", piece.line, ": a string is not closed");
      ++at;
      out.push_back({Kind::string, value});
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      size_t end = at;
      while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
      const bool fraction =
          end + 1 < text.size() && text[end] == '.' && std::isdigit(static_cast<unsigned char>(text[end + 1]));
      if (fraction) {
        for (++end; end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]));) ++end;
      }
      if (end - at > 15)
        fail(where, ": line ", piece.line, ": the number ", quote(text.substr(at, end - at)), " is too long");
      out.push_back({fraction ? Kind::number : Kind::integer, std::string(text.substr(at, end - at))});
      at = end;
    } else if (letter(c)) {
      size_t end = at;
      while (end < text.size() && letter(text[end])) ++end;
      out.push_back({Kind::name, std::string(text.substr(at, end - at))});
      at = end;
    } else {
      size_t size = 1;
      for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"}) {
        if (text.substr(at).starts_with(two)) size = 2;
      }
      if (size == 1 && std::string_view("()[]{}.,:|~+-*/%<>=").find(c) == std::string_view::npos) {
        fail(where, ": line ", piece.line, ": the sign ", quote(text.substr(at, 1)), " is not supported");
      }
      out.push_back({Kind::sign, std::string(text.substr(at, size))});
      at += size;
    }
  }
  out.push_back({Kind::end, ""});
  return out;
}

}  // namespace motet
