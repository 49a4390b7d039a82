#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motet/sampling/writer.h"

namespace motet {

enum class Finish { stop, length };

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

/// Receives what becomes of a job, on the thread of the engine, which it must not hold up.
class JobAnswer {
 public:
  virtual ~JobAnswer() = default;
  /// Whether nobody waits any more: the job ends, and left() is the last call.
  virtual bool gone() const { return false; }
  virtual void left(const Usage&) {}
  /// Whether its reader is behind: the job keeps its place and waits.
  virtual bool slow() const { return false; }
  /// The prompt's tokens with their logarithmic probabilities, where they are wanted; the first has none.
  virtual void scored(std::vector<GeneratedToken> prompt) {}
  /// One more token of a sample: what `sample` holds now, and the text that became certain.
  virtual void token(int64_t number, const Sample& sample, const std::string& text) = 0;
  /// A sample's end; `text` is what was held back.
  virtual void ended(int64_t number, const Sample& sample, const std::string& text, Finish) = 0;
  /// All samples have ended.
  virtual void done(const Usage&) = 0;
  /// The end of a job that cannot be done: an HTTP status and one line.
  virtual void failed(int status, const std::string& message, const Usage&) = 0;
};

/// One prompt and what is wanted of it.
struct Job {
  std::string owner;            // prompts of other owners are not taken over: their time would tell
  std::vector<int32_t> prompt;  // at least one token
  int64_t max_tokens = 16;      // prompt and these fit the context
  int64_t samples = 1;
  WriterOptions writer;
  bool score_prompt = false;
  bool share_prefix = true;
  double since = 0;  // when its request had arrived, in seconds of the steady clock
  std::shared_ptr<JobAnswer> answer;
};

}  // namespace motet
