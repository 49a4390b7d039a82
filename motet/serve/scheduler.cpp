#include "motet/serve/scheduler.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "motet/core/error.h"

namespace motet {

struct Scheduler::Request {
  // One sample on its way.
  struct Draft {
    Writer writer;
    std::string written = {};  // since the answer was told last
    std::unique_ptr<ServedSequence> held = {};
    int32_t next = 0;
    bool ended = false;
    double last = 0;  // when its last token came
  };

  Job job;
  int64_t reserved = 0;
  std::unique_ptr<ServedSequence> prompt = {};  // until the samples begin, and when one has ended
  std::vector<GeneratedToken> scored = {};
  std::deque<Draft> drafts = {};  // a writer's callback points to its own
  Usage usage = {};
  bool ended = false;

  int64_t planned() const { return static_cast<int64_t>(job.prompt.size()) + job.max_tokens; }
  /// Between two steps: a sample that has not ended gives it up.
  void take_prompt_back() {
    for (Draft& draft : drafts)
      if (!prompt) prompt = std::move(draft.held);
  }
};

struct Scheduler::Target {
  Request* request;
  std::optional<size_t> sample;  // none: its prompt
};

Scheduler::Scheduler(ServedModel& model, const Tokenizer& tokenizer, SchedulerLimits limits, Metrics& metrics,
                     Clock clock)
    : model_(model),
      tokenizer_(tokenizer),
      limits_(limits),
      metrics_(metrics),
      clock_(std::move(clock)),
      prefixes_(model) {
  metrics_.cache_limit = limits.cache_bytes;
}

Scheduler::~Scheduler() = default;

int64_t Scheduler::bytes(const Job& job) const {
  return job.samples * model_.cache_bytes(static_cast<int64_t>(job.prompt.size()) + job.max_tokens);
}

void Scheduler::submit(Job job) {
  waiting_.push_back({std::move(job)});
  tell_metrics();
}

bool Scheduler::step() {
  drop_ended();
  admit();
  plan();
  if (!pieces_.empty()) {
    model_.step(pieces_, [this](size_t piece, int64_t first, std::span<const float> logits, int64_t rows) {
      take(targets_[piece], first, logits, rows);
    });
    for (Request& request : running_)
      if (!request.ended && request.prompt && request.job.max_tokens == 0 &&
          request.prompt->size() == static_cast<int64_t>(request.job.prompt.size()))
        end(request);
  }
  const bool worked = !pieces_.empty();
  drop_ended();
  tell_metrics();
  return worked;
}

// Requests that have ended, that nobody waits for and that have taken too long leave.
void Scheduler::drop_ended() {
  const double now = clock_();
  for (auto* list : {&waiting_, &running_})
    for (auto one = list->begin(); one != list->end();) {
      if (!one->ended && one->job.answer->gone()) {
        one->ended = true, ++metrics_.gone;
        one->take_prompt_back();  // a page's Stop button: the next message has the same beginning
        one->job.answer->left(one->usage);
      }
      if (!one->ended && now - one->job.since > limits_.request_seconds) {
        one->take_prompt_back();
        fail(*one, 503, text("the request took more than ", limits_.request_seconds, " seconds"));
      }
      if (!one->ended) {
        ++one;
        continue;
      }
      reserved_ -= std::exchange(one->reserved, 0);
      keep_prompt(*one);
      one = list->erase(one);
    }
  while (reserved_ + prefixes_.bytes() > limits_.cache_bytes && prefixes_.drop()) continue;
}

// What another prompt can take over is kept, whole pieces of this one; a long answer behind them is not.
void Scheduler::keep_prompt(Request& request) {
  const auto size = static_cast<int64_t>(request.job.prompt.size()), tokens = size / kPieceTokens * kPieceTokens;
  if (!request.prompt || !limits_.prefix_cache || !request.job.share_prefix || tokens == 0) return;
  if (request.prompt->size() < size || !model_.can_end_at(*request.prompt, tokens)) return;
  if (request.prompt->size() > 2 * tokens) {
    try {
      request.prompt = model_.copy(*request.prompt, tokens, request.planned());
    } catch (const std::exception&) {  // no memory: then it is not kept
      request.prompt.reset();
    }
  }
  if (request.prompt) prefixes_.keep(request.job.owner, request.job.prompt, std::move(request.prompt));
}

bool Scheduler::make_room(int64_t bytes) {
  if (reserved_ + bytes > limits_.cache_bytes) return false;
  while (reserved_ + bytes + prefixes_.bytes() > limits_.cache_bytes && prefixes_.drop()) continue;
  return true;
}

bool Scheduler::takes_over(const Job& job) const {
  return limits_.prefix_cache && job.share_prefix && !job.score_prompt;
}

void Scheduler::admit() {
  while (!waiting_.empty()) {
    const Job& next = waiting_.front().job;
    if (takes_over(next)) prefixes_.find(next.owner, next.prompt);  // what it takes over makes room last
    if (!make_room(bytes(next))) return;
    running_.splice(running_.end(), waiting_, waiting_.begin());
    begin(running_.back());
  }
}

void Scheduler::begin(Request& request) {
  const Job& job = request.job;
  request.reserved = bytes(job);
  reserved_ += request.reserved;
  request.usage.prompt_tokens = static_cast<int64_t>(job.prompt.size());
  metrics_.prompt_tokens += request.usage.prompt_tokens;
  if (takes_over(job)) {
    metrics_.prefix_queries += request.usage.prompt_tokens;
    const Prefixes::Found found = prefixes_.find(job.owner, job.prompt);
    if (found.tokens > 0) request.prompt = model_.copy(*found.sequence, found.tokens, request.planned());
    if (request.prompt) request.usage.cached_tokens = found.tokens, metrics_.prefix_hits += found.tokens;
  }
  if (!request.prompt) request.prompt = model_.begin(request.planned());
  if (job.score_prompt) request.scored.push_back({{job.prompt[0]}, {}});
}

void Scheduler::plan() {
  pieces_.clear(), targets_.clear();
  for (Request& request : running_) {
    if (request.drafts.empty() || request.job.answer->slow()) continue;
    for (size_t i = 0; i < request.drafts.size(); ++i) {
      auto& draft = request.drafts[i];
      if (draft.ended) continue;
      pieces_.push_back({draft.held.get(), {&draft.next, 1}, ServedPiece::Logits::last});
      targets_.push_back({&request, i});
    }
  }
  int64_t room = std::max<int64_t>(1, limits_.batch_tokens - static_cast<int64_t>(pieces_.size()));
  for (Request& request : running_) {
    if (!request.drafts.empty() || request.job.answer->slow()) continue;
    const std::span<const int32_t> prompt = request.job.prompt;
    const auto end = static_cast<int64_t>(prompt.size());
    for (int64_t at = request.prompt->size(); at < end && room > 0;) {
      const int64_t count = std::min(end, (at / kPieceTokens + 1) * kPieceTokens) - at;
      const bool last = at + count == end && request.job.max_tokens > 0;
      const auto logits = request.job.score_prompt ? ServedPiece::Logits::all
                          : last                   ? ServedPiece::Logits::last
                                                   : ServedPiece::Logits::none;
      pieces_.push_back(
          {request.prompt.get(), prompt.subspan(static_cast<size_t>(at), static_cast<size_t>(count)), logits, true});
      targets_.push_back({&request, {}});
      at += count, room -= count;
    }
  }
}

void Scheduler::take(const Target& target, int64_t first, std::span<const float> logits, int64_t rows) {
  Request& request = *target.request;
  if (request.ended) return;
  try {
    if (!all_finite(logits)) motet::fail("serve: the model's logits are not finite");
    target.sample ? draw(request, *target.sample, logits) : take_prompt(request, first, logits, rows);
  } catch (const Error& error) {
    std::vector<int32_t> ids = request.job.prompt;
    if (target.sample)
      for (const GeneratedToken& token : request.drafts[*target.sample].writer.sample().tokens) ids.push_back(token.id);
    const std::string where = model_.first_non_finite(ids);
    fail(request, 500, text(error.what(), where.empty() ? "" : "; the first such numbers are in ", where));
  }
}

// Logits of the prompt's tokens from `first` on, where each scores the next one.
void Scheduler::take_prompt(Request& request, int64_t first, std::span<const float> logits, int64_t rows) {
  const std::vector<int32_t>& prompt = request.job.prompt;
  const auto width = static_cast<int64_t>(logits.size()) / rows, size = static_cast<int64_t>(prompt.size());
  const auto row = [&](int64_t i) {
    return logits.subspan(static_cast<size_t>(i * width), static_cast<size_t>(width));
  };
  if (request.job.score_prompt)
    for (int64_t i = 0; i < rows && first + i + 1 < size; ++i) {
      const int32_t next = prompt[static_cast<size_t>(first + i + 1)];
      request.scored.push_back(
          {{next, log_probability(row(i), next)},
           likeliest(row(i), std::max<int64_t>(0, request.job.writer.logprobs), tokenizer_.vocabulary_size())});
    }
  if (first + rows == size && request.job.max_tokens > 0) begin_samples(request, row(rows - 1));
}

void Scheduler::begin_samples(Request& request, std::span<const float> logits) {
  const Job& job = request.job;
  if (job.score_prompt) job.answer->scored(std::move(request.scored));
  metrics_.first_token.add(clock_() - request.job.since);
  for (int64_t i = 0; i < job.samples; ++i) {
    const auto n = static_cast<size_t>(i);
    request.drafts.push_back({Writer(tokenizer_, job.prompt, job.writer, i,
                                     [&request, n](std::string_view text) { request.drafts[n].written += text; })});
    request.drafts.back().last = clock_();
  }
  for (size_t i = 0; i < request.drafts.size(); ++i) draw(request, i, logits);
  Request::Draft* last = nullptr;  // which takes the prompt's own sequence, the others copies
  for (auto& draft : request.drafts) {
    if (draft.ended) continue;
    if (last) last->held = model_.copy(*request.prompt, request.prompt->size(), request.planned());
    if (last && !last->held) motet::fail("serve: a sequence of the prompt cannot be copied");
    last = &draft;
  }
  if (last) last->held = std::move(request.prompt);
}

void Scheduler::draw(Request& request, size_t number, std::span<const float> logits) {
  auto& draft = request.drafts[number];
  const int64_t before = static_cast<int64_t>(draft.writer.sample().tokens.size());
  draft.next = draft.writer.next(logits);
  ++metrics_.generated_tokens, ++request.usage.completion_tokens;
  const double now = clock_();
  if (before > 0) metrics_.each_token.add(now - draft.last);
  draft.last = now;
  JobAnswer& answer = *request.job.answer;
  const auto index = static_cast<int64_t>(number);
  const bool full = before + 1 >= request.job.max_tokens;
  if (!draft.writer.done() && !full)
    return answer.token(index, draft.writer.sample(), std::exchange(draft.written, ""));
  const Sample sample = draft.writer.finish();
  draft.ended = true;
  if (!request.prompt) request.prompt = std::move(draft.held);  // its first tokens are the prompt's
  draft.held.reset();
  answer.ended(index, sample, draft.written, sample.stopped ? Finish::stop : Finish::length);
  ++(sample.stopped ? metrics_.stopped : metrics_.cut);
  if (std::ranges::all_of(request.drafts, &Request::Draft::ended) &&
      static_cast<int64_t>(request.drafts.size()) == request.job.samples)
    end(request);
}

void Scheduler::end(Request& request) {
  request.ended = true;
  if (request.job.max_tokens == 0) {
    if (request.job.score_prompt) request.job.answer->scored(std::move(request.scored));
    metrics_.cut += request.job.samples;
  }
  metrics_.whole_request.add(clock_() - request.job.since);
  request.job.answer->done(request.usage);
}

void Scheduler::fail(Request& request, int status, const std::string& message) {
  request.ended = true, ++metrics_.failed;
  request.job.answer->failed(status, message, request.usage);
}

void Scheduler::fail_all(int status, const std::string& message) {
  for (auto* list : {&waiting_, &running_})
    for (Request& request : *list) {
      if (!request.ended) fail(request, status, message);
      request.prompt.reset();  // it may be half of a step
    }
  drop_ended();
  tell_metrics();
}

void Scheduler::tell_metrics() {
  metrics_.waiting = waiting(), metrics_.running = running();
  metrics_.cache_bytes = reserved_, metrics_.prefix_bytes = prefixes_.bytes();
}

}  // namespace motet
