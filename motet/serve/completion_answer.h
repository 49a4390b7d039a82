#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "motet/http/reply.h"
#include "motet/serve/job.h"

namespace motet {

/// How the answer to one request is written.
struct AnswerForm {
  bool chat = false, stream = false, include_usage = false, echo = false, skip_special = true, logged = false;
  bool large = false;     // written elsewhere, where it is no stream
  int64_t logprobs = -1;  // as WriterOptions has it
  int64_t samples = 1;    // of each prompt
  std::string id, model;
  int64_t created = 0;  // seconds since 1970
  std::chrono::steady_clock::time_point arrived = {};
};

/// A prompt as its answer sees it.
struct AnsweredPrompt {
  std::string echoed;                // its text, where echo repeats it
  int32_t last = 0;                  // its last token
  std::vector<int64_t> places = {};  // of its tokens in the text, where they are scored
  std::vector<GeneratedToken> scored = {};
};

/// Does work that takes time on another thread; false: it takes none now.
using Elsewhere = std::function<bool(std::function<void()>)>;

/// The answer to a request of one or several prompts, whole or as server-sent events, in the words of OpenAI's
/// interface. Choice i of prompt p has the number p * samples + i. It is told everything on the engine's thread.
class CompletionAnswer : public std::enable_shared_from_this<CompletionAnswer> {
 public:
  /// The tokenizer must outlive it. Where it is logged, the end of one that was taken is a line without any text, which
  /// stands there before its client can see the end.
  CompletionAnswer(HttpReply, const Tokenizer&, AnswerForm, std::vector<AnsweredPrompt> prompts, Elsewhere = {});
  ~CompletionAnswer();
  /// What the job of a prompt tells its tokens.
  std::shared_ptr<JobAnswer> of_prompt(size_t prompt);
  /// It is taken: the headers of a stream, from then on an error is an event.
  void begin();

 private:
  class OfPrompt;
  struct Choice;

  Choice& choice(size_t prompt, int64_t sample);
  const AnsweredPrompt& prompt_of(const Choice&) const;
  void add(Choice&, const Sample&, const std::string& text);
  void finish(Choice&, const Sample&, const std::string& text, Finish);
  void done(const Usage&);
  void failed(int status, const std::string& message, const Usage&);
  void add_usage(const Usage&);
  void send_whole();
  /// From here on it tells nothing; what became of it is a line where it is logged.
  void close(const std::string& ending);
  nlohmann::json choice_json(Choice&, const std::string& text, const char* finish);
  nlohmann::json head(const char* object) const;
  void event(const nlohmann::json&);
  nlohmann::json usage_json() const;

  HttpReply reply_;
  const Tokenizer& tokenizer_;
  AnswerForm form_;
  std::vector<AnsweredPrompt> prompts_;
  Elsewhere elsewhere_;
  std::vector<std::unique_ptr<Choice>> choices_;
  Usage usage_;
  size_t open_prompts_;
  bool taken_ = false, begun_ = false, closed_ = false;
};

}  // namespace motet
