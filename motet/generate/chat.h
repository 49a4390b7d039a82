#pragma once
#include <memory>
#include <optional>

#include "motet/generate/decoder.h"
#include "motet/generate/generate.h"
#include "motet/text/chat/template.h"

namespace motet {

/// A conversation with a model in the form of its own template. What two turns share is computed once. When the history
/// no longer fits the context, its oldest messages are left out, the system's excepted.
class Chat {
 public:
  /// `variables`: what the template may use besides messages, such as bos_token. `system` may be empty.
  Chat(ModelImpl&, const Tokenizer&, const ChatTemplate&, nlohmann::ordered_json variables, const std::string& system);

  /// The answer to a message; it ends where the options say. Throws Error for a message that does not fit the
  /// context, Interrupted on Ctrl-C; what was said until then stays in the history.
  std::string answer(const std::string& message, const GenerateOptions& options,
                     const std::function<void(std::string_view)>& on_text);

  const nlohmann::ordered_json& messages() const { return messages_; }
  int64_t tokens_computed() const { return computed_; }  // of prompts, since the beginning

 private:
  std::vector<int32_t> prompt(int64_t room);

  ModelImpl& model_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  nlohmann::ordered_json variables_, messages_ = nlohmann::ordered_json::array();
  std::optional<Decoder> decoder_;
  int64_t computed_ = 0;
};

}  // namespace motet
