// Chat templates: the part of Jinja that published templates use, without access to anything but the given variables.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace motet {

struct TemplateNode;

// Text, {{ }}, {% if for set macro generation break continue %}, {# #} with the white-space rules of Hugging Face
// (trim_blocks, lstrip_blocks). Expressions: literals, operators, ternaries, slices, the common tests, filters and
// string methods, namespace(), range(), raise_exception(), strftime_now().
class ChatTemplate {
 public:
  // Throws Error that begins with `where` and names the line and the construct that is wrong or not supported.
  explicit ChatTemplate(std::string_view source, const std::string& where = "chat template");
  ~ChatTemplate();

  // The text for an object of variables such as messages, add_generation_prompt, bos_token. Throws Error for what
  // raise_exception says, for operations on values of the wrong type, and for more than a million steps or 16 MB.
  std::string render(const nlohmann::ordered_json& variables) const;

 private:
  std::string where_;
  std::unique_ptr<TemplateNode> root_;
};

}  // namespace motet
