// Small problems whose answer is known and that no text tells apart from their difficulty: one thing of attention each.
// Torch-free; an episode is a function of its number, the same on every machine.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "motet/core/options.h"
#include "motet/core/splitmix.h"

namespace motet {

// One problem: what is read, and the tokens that are right behind it.
struct Episode {
  std::vector<int32_t> ids;
  std::vector<int32_t> answer;
  std::vector<std::string> slices = {};  // what is counted apart: "held out", "depth 1/4"
  std::vector<int64_t> kinds = {};       // of each id: which of Task::kinds() it is
  // Wrong answers that the text holds, of one token: who says one misattributes, who says neither makes one up.
  std::vector<std::vector<int32_t>> others = {};
  int64_t told = 0, right = 0;  // values that the text tells, and how many of them are the answer; 0: by `others`
};

// Numbers that an episode draws, one after another, from its own stream.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t number) : seed_(splitmix64(splitmix64(seed, 0), number)) {}
  // Below `count`, which is small: each is as likely as the others.
  int64_t below(int64_t count) {
    return static_cast<int64_t>((splitmix64(seed_, at_++) >> 32) * static_cast<uint64_t>(count) >> 32);
  }
  // `count` different numbers below `total`, in random order.
  std::vector<int64_t> different(int64_t count, int64_t total);

 private:
  uint64_t seed_, at_ = 0;
};

class Task {
 public:
  virtual ~Task() = default;

  virtual int64_t vocabulary() const = 0;              // ids lie below it
  virtual int64_t length() const = 0;                  // ids of an episode
  virtual int64_t answer_length() const { return 1; }  // of its answer
  virtual int64_t answers() const = 0;                 // who has not read the text is right once in so many
  // `test`: of all kinds; else of those that are trained.
  virtual Episode episode(uint64_t seed, uint64_t number, bool test) const = 0;
  // Of composite tokens: of which parts each id is made, so that its embedding is the sum of theirs. Empty: each id is
  // its own.
  virtual std::vector<std::vector<int32_t>> parts() const { return {}; }
  // What tokens are to the question: "answer", "noise".
  virtual std::vector<std::string> kinds() const = 0;
  // What a person reads in place of an id.
  virtual std::string word(int32_t id) const = 0;

  int64_t row_length() const { return length() + answer_length(); }
};

// How often a guess is right that takes one of what the text tells; of texts that tell the answer alone, or nothing,
// one of all answers.
double chance(const Task&, const Episode&);

struct TaskEntry {
  const char* name;
  const char* sentence;
  const OptionTable& options;
  // Throws UsageError that begins with `section` for what the table refuses and for sizes that do not fit together.
  std::unique_ptr<Task> (*make)(const nlohmann::json& options, const std::string& section);
  // Says in resolved options what one left to another; null: none does.
  void (*complete)(nlohmann::json& resolved) = nullptr;
};
const std::vector<TaskEntry>& task_registry();

// {"name": "where-select", options ...} -> the same with every option. Throws UsageError with the nearest name.
nlohmann::json resolved_task(const nlohmann::json& given, const std::string& section);
// The task. Throws as resolved_task does.
std::unique_ptr<Task> make_task(const nlohmann::json& given, const std::string& section);

}  // namespace motet
