#include "motet/serve/completion_answer.h"

#include <cstdio>
#include <utility>

#include "motet/core/log.h"
#include "motet/core/utf8.h"
#include "motet/core/words.h"
#include "motet/serve/refused.h"
#include "motet/serve/token_places.h"
#include "motet/text/token_bytes.h"

namespace motet {
namespace {

using nlohmann::json;

std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// A token by itself. Bytes that are no text are told as OpenAI tells them, bytes:\\xe2, so that tokens stay apart.
std::string alone(const Tokenizer& tokenizer, int32_t id) {
  const std::string bytes = token_bytes(tokenizer, id);
  if (bytes.empty()) return tokenizer.piece(id);  // </s> of SentencePiece, which is no text
  if (utf8_invalid_at(bytes) == std::string::npos) return bytes;
  std::string told = "bytes:";
  for (const char byte : bytes) {
    char hexadecimal[8];
    std::snprintf(hexadecimal, sizeof hexadecimal, "\\x%02x", static_cast<unsigned char>(byte));
    told += hexadecimal;
  }
  return told;
}

// What a token is called among those already named. A byte of SentencePiece and its letter are one text, and the
// letter's piece is that text too.
std::string free_name(const json& named, const Tokenizer& tokenizer, int32_t id) {
  std::string name = alone(tokenizer, id);
  if (named.contains(name)) name = tokenizer.piece(id);
  if (named.contains(name)) name = text("token_id:", id);
  while (named.contains(name)) name += '_';
  return name;
}

const char* word(Finish finish) { return finish == Finish::stop ? "stop" : "length"; }

}  // namespace

struct CompletionAnswer::Choice {
  size_t index;
  TokenPlaces places;                       // of the answer's tokens
  std::string text = {};                    // of an answer that is not a stream
  std::vector<GeneratedToken> untold = {};  // tokens whose logarithmic probabilities are to be told
  size_t told = 0;                          // of the sample's tokens
  bool prompt_told = false;                 // and those of the prompt
  bool begun = false;
  std::string finish = {};
  json logprobs = nullptr;

  Choice(size_t index, const Tokenizer& tokenizer) : index(index), places(tokenizer) {}
};

class CompletionAnswer::OfPrompt : public JobAnswer {
 public:
  OfPrompt(std::shared_ptr<CompletionAnswer> all, size_t prompt) : all_(std::move(all)), prompt_(prompt) {}
  bool gone() const override { return all_->closed_ || all_->reply_.gone(); }
  bool slow() const override { return all_->reply_.full(); }
  void scored(std::vector<GeneratedToken> tokens) override { all_->prompts_[prompt_].scored = std::move(tokens); }
  void token(int64_t number, const Sample& sample, const std::string& text) override {
    all_->add(all_->choice(prompt_, number), sample, text);
  }
  void ended(int64_t number, const Sample& sample, const std::string& text, Finish finish) override {
    all_->finish(all_->choice(prompt_, number), sample, text, finish);
  }
  void done(const Usage& usage) override { all_->done(usage); }
  void left(const Usage& usage) override { all_->add_usage(usage); }
  void failed(int status, const std::string& message, const Usage& usage) override {
    all_->failed(status, message, usage);
  }

 private:
  std::shared_ptr<CompletionAnswer> all_;
  size_t prompt_;
};

CompletionAnswer::CompletionAnswer(HttpReply reply, const Tokenizer& tokenizer, AnswerForm form,
                                   std::vector<AnsweredPrompt> prompts, Elsewhere elsewhere)
    : reply_(std::move(reply)),
      tokenizer_(tokenizer),
      form_(std::move(form)),
      prompts_(std::move(prompts)),
      elsewhere_(std::move(elsewhere)),
      open_prompts_(prompts_.size()) {
  for (size_t i = 0; i < prompts_.size() * static_cast<size_t>(form_.samples); ++i)
    choices_.push_back(std::make_unique<Choice>(i, tokenizer_));
  if (form_.chat) return;
  for (const auto& one : choices_)
    one->places.follow(static_cast<int64_t>(utf8_length(prompt_of(*one).echoed)), prompt_of(*one).last);
}

CompletionAnswer::~CompletionAnswer() {
  if (!closed_) close("left by its client");
}

void CompletionAnswer::close(const std::string& ending) {
  closed_ = true;
  if (!taken_ || !form_.logged) return;
  const auto taken = std::chrono::steady_clock::now() - form_.arrived;
  log_info(text("serve: ", form_.id, ": ", ending, ", ", usage_.prompt_tokens, " tokens of prompt (",
                usage_.cached_tokens, " kept), ", usage_.completion_tokens, " of answer, ",
                std::chrono::duration_cast<std::chrono::milliseconds>(taken).count(), " ms"));
}

const AnsweredPrompt& CompletionAnswer::prompt_of(const Choice& one) const {
  return prompts_[one.index / static_cast<size_t>(form_.samples)];
}

std::shared_ptr<JobAnswer> CompletionAnswer::of_prompt(size_t prompt) {
  return std::make_shared<OfPrompt>(shared_from_this(), prompt);
}

CompletionAnswer::Choice& CompletionAnswer::choice(size_t prompt, int64_t sample) {
  return *choices_[prompt * static_cast<size_t>(form_.samples) + static_cast<size_t>(sample)];
}

void CompletionAnswer::begin() {
  taken_ = true;
  if (form_.stream) reply_.begin_stream("text/event-stream", {{"Cache-Control", "no-cache"}});
  begun_ = form_.stream;
}

// Text and logarithmic probabilities since the last time, as a choice of one chunk or of the whole answer.
json CompletionAnswer::choice_json(Choice& one, const std::string& text, const char* finish) {
  json logprobs = nullptr;
  if (form_.logprobs >= 0) {
    logprobs = form_.chat ? json{{"content", json::array()}}
                          : json{{"tokens", json::array()},
                                 {"token_logprobs", json::array()},
                                 {"top_logprobs", json::array()},
                                 {"text_offset", json::array()}};
    const auto tell = [&](const GeneratedToken& token, int64_t place, bool none) {  // none: it begins the prompt
      const std::string own = alone(tokenizer_, token.id);
      if (form_.chat) {
        const auto entry = [&](const ScoredToken& t) {
          const std::string bytes = token_bytes(tokenizer_, t.id);
          return json{{"token", alone(tokenizer_, t.id)},
                      {"logprob", t.logprob},
                      {"bytes", std::vector<uint8_t>(bytes.begin(), bytes.end())}};
        };
        json content = entry(token);
        content["top_logprobs"] = json::array();
        for (const ScoredToken& other : token.top) content["top_logprobs"].push_back(entry(other));
        logprobs["content"].push_back(std::move(content));
        return;
      }
      json top = none || form_.logprobs == 0 ? json(nullptr) : json::object();
      if (!top.is_null()) {
        top[own] = token.logprob;
        for (const ScoredToken& other : token.top) {
          if (other.id == token.id) continue;
          const std::string name = free_name(top, tokenizer_, other.id);
          top[name] = other.logprob;
        }
      }
      logprobs["tokens"].push_back(own);
      logprobs["token_logprobs"].push_back(none ? json(nullptr) : json(token.logprob));
      logprobs["top_logprobs"].push_back(std::move(top));
      logprobs["text_offset"].push_back(place);
    };
    if (!std::exchange(one.prompt_told, true))
      for (size_t i = 0; const GeneratedToken& token : prompt_of(one).scored)
        tell(token, prompt_of(one).places.at(i), i == 0), ++i;
    for (const GeneratedToken& token : std::exchange(one.untold, {})) {
      const bool written = !form_.skip_special || !tokenizer_.special(token.id);
      tell(token, form_.chat || !written ? one.places.place() : one.places.next(token.id), false);
    }
  }
  json made{{"index", one.index}, {"logprobs", std::move(logprobs)}, {"finish_reason", nullptr}};
  if (finish) made["finish_reason"] = finish;
  if (!form_.chat)
    made["text"] = text;
  else if (!form_.stream)
    made["message"] = {{"role", "assistant"}, {"content", text}};
  else
    made["delta"] = text.empty() ? json::object() : json{{"content", text}};
  return made;
}

json CompletionAnswer::head(const char* object) const {
  return {{"id", form_.id}, {"object", object}, {"created", form_.created}, {"model", form_.model}};
}

void CompletionAnswer::event(const json& choice) {
  json chunk = head(form_.chat ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = json::array({choice});
  if (form_.include_usage) chunk["usage"] = nullptr;
  reply_.write("data: " + dumped(chunk) + "\n\n");
}

// The tokens that came since the last time are remembered until text is told.
void CompletionAnswer::add(Choice& one, const Sample& sample, const std::string& text) {
  if (form_.logprobs >= 0)
    for (; one.told < sample.tokens.size(); ++one.told) one.untold.push_back(sample.tokens[one.told]);
  std::string told = text;
  if (!one.begun) {
    if (form_.echo) told = prompt_of(one).echoed + told;
    if (form_.chat && form_.stream)
      event({{"index", one.index},
             {"delta", {{"role", "assistant"}, {"content", ""}}},
             {"logprobs", nullptr},
             {"finish_reason", nullptr}});
  }
  one.begun = true;
  if (!form_.stream)
    one.text += told;
  else if (!told.empty())
    event(choice_json(one, told, nullptr));
}

void CompletionAnswer::finish(Choice& one, const Sample& sample, const std::string& text, Finish finish) {
  add(one, sample, text);
  if (form_.logprobs >= 0 && sample.end) one.untold.push_back(*sample.end);
  if (form_.stream) return event(choice_json(one, "", word(finish)));
  one.finish = word(finish);
}

json CompletionAnswer::usage_json() const {
  return {{"prompt_tokens", usage_.prompt_tokens},
          {"completion_tokens", usage_.completion_tokens},
          {"total_tokens", usage_.prompt_tokens + usage_.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage_.cached_tokens}}}};
}

void CompletionAnswer::add_usage(const Usage& usage) {
  usage_.prompt_tokens += usage.prompt_tokens, usage_.completion_tokens += usage.completion_tokens;
  usage_.cached_tokens += usage.cached_tokens;
}

void CompletionAnswer::send_whole() {
  json whole = head(form_.chat ? "chat.completion" : "text_completion");
  whole["choices"] = json::array();
  for (const auto& one : choices_) {
    if (!one->begun) add(*one, {}, "");  // no token was wanted
    whole["choices"].push_back(choice_json(*one, one->text, one->finish.empty() ? "length" : one->finish.c_str()));
  }
  whole["usage"] = usage_json();
  std::string body = dumped(whole);
  close("answered");
  reply_.send(200, "application/json", std::move(body));
}

void CompletionAnswer::done(const Usage& usage) {
  add_usage(usage);
  if (--open_prompts_ > 0 || closed_) return;
  if (!form_.stream) {
    const auto send = [self = shared_from_this()] {
      try {
        self->send_whole();
      } catch (const std::exception& error) {  // memory, say
        log_warn(text("serve: ", self->form_.id, ": ", error.what()));
        self->close("failed with 500");
        self->reply_.send(500, "application/json", error_body(500, first_line(error.what())));
      }
    };
    if (!form_.large || !elsewhere_ || !elsewhere_(send)) send();
    return;
  }
  json last = head(form_.chat ? "chat.completion.chunk" : "text_completion");
  last["choices"] = json::array();
  for (const auto& one : choices_)
    if (!one->begun) finish(*one, {}, "", Finish::length);
  if (form_.include_usage) {
    last["usage"] = usage_json();
    reply_.write("data: " + dumped(last) + "\n\n");
  }
  close("answered");
  reply_.write("data: [DONE]\n\n");
  reply_.end();
}

void CompletionAnswer::failed(int status, const std::string& message, const Usage& usage) {
  add_usage(usage);
  if (closed_) return;
  close(text("failed with ", status));
  if (!begun_) return reply_.send(status, "application/json", error_body(status, message));
  reply_.write("data: " + error_body(status, message) + "\n\n");
  reply_.end();
}

}  // namespace motet
