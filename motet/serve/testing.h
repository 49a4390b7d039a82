// A model of a few lines, which counts what it is asked, for tests of the server without torch.
#pragma once
#include <cmath>
#include <vector>

#include "motet/core/error.h"
#include "motet/serve/job.h"
#include "motet/serve/model.h"

namespace motet::testing {

/// The next token's logits depend on all tokens of the sequence.
class CountedModel : public ServedModel {
 public:
  static constexpr int64_t kVocabulary = 256;
  struct Sequence : ServedSequence {
    std::vector<int32_t> ids;
    int64_t planned = 0;
    int64_t* alive;
    explicit Sequence(int64_t* alive) : alive(alive) { ++*alive; }
    ~Sequence() override { --*alive; }
    int64_t size() const override { return static_cast<int64_t>(ids.size()); }
    int64_t bytes() const override { return 10 * size(); }
  };

  int64_t context() const override { return 10000; }
  int64_t cache_bytes(int64_t tokens) const override { return 10 * tokens; }
  std::unique_ptr<ServedSequence> begin(int64_t planned) override {
    auto made = std::make_unique<Sequence>(&alive);
    made->planned = planned;
    return made;
  }
  bool can_end_at(const ServedSequence& other, int64_t tokens) const override {
    ++asked;
    return window == 0 || tokens + 2 * window > other.size();
  }
  std::unique_ptr<ServedSequence> copy(const ServedSequence& other, int64_t tokens, int64_t planned) override {
    const auto& from = static_cast<const Sequence&>(other);
    if (no_memory) throw std::bad_alloc();
    if (!copies || !can_end_at(other, tokens)) return nullptr;
    auto made = std::make_unique<Sequence>(&alive);
    made->ids.assign(from.ids.begin(), from.ids.begin() + tokens);
    made->planned = planned;
    return made;
  }
  void step(std::span<const ServedPiece> pieces, const OnLogits& on_logits) override {
    ++steps;
    last_step.clear();
    for (size_t i = 0; i < pieces.size(); ++i) {
      auto& sequence = static_cast<Sequence&>(*pieces[i].sequence);
      const int64_t first = sequence.size();
      last_step.push_back(static_cast<int64_t>(pieces[i].ids.size()));
      sequence.ids.insert(sequence.ids.end(), pieces[i].ids.begin(), pieces[i].ids.end());
      if (sequence.size() > sequence.planned)
        fail("a sequence of ", sequence.size(), " tokens, planned ", sequence.planned);
      computed += last_step.back();
      if (pieces[i].logits == ServedPiece::Logits::none) continue;
      const bool all = pieces[i].logits == ServedPiece::Logits::all;
      const int64_t from = all ? first : sequence.size() - 1;
      std::vector<float> rows;
      for (int64_t at = from; at < sequence.size(); ++at) {
        const std::vector<float> row = logits({sequence.ids.data(), static_cast<size_t>(at + 1)});
        rows.insert(rows.end(), row.begin(), row.end());
      }
      on_logits(i, from, rows, sequence.size() - from);
    }
  }
  std::string first_non_finite(std::span<const int32_t>) override { return "layer 3"; }

  std::vector<float> logits(std::span<const int32_t> ids) const {
    uint64_t state = 1;
    for (const int32_t id : ids)
      state = (state ^ static_cast<uint64_t>(id)) * 0x9E3779B97F4A7C15u, state ^= state >> 29;
    std::vector<float> row(static_cast<size_t>(columns));
    for (size_t i = 0; i < row.size(); ++i)
      row[i] = static_cast<float>((state >> (i % 40)) % 97) / 20 + 0.001f * static_cast<float>(i);
    if (!ids.empty() && ids.back() == fault) row[5] = faulty;
    return row;
  }

  int64_t steps = 0, computed = 0, alive = 0;
  mutable int64_t asked = 0;              // calls of can_end_at
  std::vector<int64_t> last_step;         // tokens of its pieces
  bool copies = true, no_memory = false;  // of copies
  int64_t window = 0;                     // a sequence can end at its last 2 windows alone; 0: anywhere
  int64_t columns = kVocabulary;          // of logits: more than there are tokens, as published models have
  int32_t fault = -1;                     // a token behind which logits are not finite
  float faulty = std::nanf("");
};

/// Remembers what it is told.
class HeardAnswer : public JobAnswer {
 public:
  bool gone() const override { return has_gone; }
  bool slow() const override { return is_slow; }
  void scored(std::vector<GeneratedToken> tokens) override { prompt = std::move(tokens); }
  void token(int64_t number, const Sample& sample, const std::string& text) override {
    hear(number, text), ++tokens;
    scores = sample.tokens;
  }
  void ended(int64_t number, const Sample& sample, const std::string& text, Finish finish) override {
    hear(number, text);
    ++tokens, ++ended_samples, last = finish, whole = sample.text, scores = sample.tokens;
  }
  void done(const Usage& used) override { finished = true, usage = used; }
  void left(const Usage& used) override { usage = used; }
  void failed(int with, const std::string& line, const Usage& used) override {
    status = with, message = line, usage = used;
  }

  std::vector<std::string> texts;
  std::vector<GeneratedToken> prompt, scores;  // of the sample that was told last
  int64_t tokens = 0, ended_samples = 0;
  bool finished = false, has_gone = false, is_slow = false;
  Finish last = Finish::stop;
  Usage usage;
  int status = 0;
  std::string message, whole;

 private:
  void hear(int64_t number, const std::string& text) {
    texts.resize(std::max(texts.size(), static_cast<size_t>(number) + 1));
    texts[static_cast<size_t>(number)] += text;
  }
};

}  // namespace motet::testing
