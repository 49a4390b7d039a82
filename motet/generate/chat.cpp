#include "motet/generate/chat.h"

#include "motet/core/error.h"

namespace motet {

using nlohmann::ordered_json;

Chat::Chat(ModelImpl& model, const Tokenizer& tokenizer, const ChatTemplate& form, ordered_json variables,
           const std::string& system)
    : model_(model), tokenizer_(tokenizer), template_(form), variables_(std::move(variables)) {
  if (!system.empty()) messages_.push_back({{"role", "system"}, {"content", system}});
}

// The conversation as tokens, less its oldest turns where `room` tokens would not be left.
std::vector<int32_t> Chat::prompt(int64_t room) {
  const int64_t context = model_.config().context;
  const size_t first = messages_[0]["role"] == "system" ? 1 : 0;
  while (true) {
    ordered_json variables = variables_;
    variables["messages"] = messages_;
    variables["add_generation_prompt"] = true;
    std::vector<int32_t> ids = tokenizer_.encode(template_.render(variables));
    if (static_cast<int64_t>(ids.size()) + room <= context) return ids;
    if (messages_.size() < first + 3)
      fail("chat: the message has ", ids.size(), " tokens with its form, want at most ", context - room,
           " of the context of ", context);
    messages_.erase(first);  // a message and its answer
    messages_.erase(first);
  }
}

std::string Chat::answer(const std::string& message, const GenerateOptions& options,
                         const std::function<void(std::string_view)>& on_text) {
  const ordered_json before = messages_;
  messages_.push_back({{"role", "user"}, {"content", message}});
  std::string said;
  try {
    const std::vector<int32_t> ids = prompt(std::min(options.max_tokens, model_.config().context / 4));
    if (!decoder_)
      decoder_.emplace(model_, ids, model_.config().context, options.cache);
    else
      decoder_->replace(ids);
    computed_ += decoder_->pending();
    continue_text(*decoder_, tokenizer_, options, [&](int64_t, std::string_view text) {
      said += text;
      on_text(text);
    });
  } catch (const Interrupted&) {
    messages_.push_back({{"role", "assistant"}, {"content", said}});
    throw;
  } catch (...) {
    messages_ = before;
    throw;
  }
  messages_.push_back({{"role", "assistant"}, {"content", said}});
  return said;
}

}  // namespace motet
