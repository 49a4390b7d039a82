// What the tables of goals are made of: groups of contestants that take turns.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "motet/bench/goals.h"
#include "motet/bench/operators.h"
#include "motet/bench/passes.h"

namespace motet {

struct Contestant {
  std::function<Time()> step;
  std::string checked;          // what of our operator is compared with float64 first, alike once; empty: a rival
  std::function<void()> check;  // does it; throws Error
  std::string why_not;          // not empty: it cannot run
};

/// Contestants that take turns, and the goals among them.
struct Group {
  std::string name;
  AttentionSize size;                // of the check, and of rivals
  at::ScalarType type = at::kFloat;  // of the check, and of arguments
  at::Device device = at::kCPU;
  int calls = 1;    // timed as one: more than one hide what a GPU waits for the first
  int threads = 1;  // 0: as many as there were
  std::map<std::string, Contestant> contestants = {};
  std::vector<Goal> goals = {};
};

/// Groups by their T, made when their turn comes.
using Groups = std::vector<std::pair<int64_t, std::function<Group()>>>;

Groups cpu_groups(const GoalRun&);
/// B T = 16384 in bfloat16. `shrink` divides lengths and the number of tokens, for tests.
Groups gpu_groups(const GoalRun&, int64_t shrink = 1);

/// One pass over the arguments of a mechanism's operator, changed where `change` is there.
struct OperatorPass {
  Forward forward;
  std::string mechanism;
  AttentionSize size;
  bool backward = false;
  std::function<Arguments(Arguments)> change = {};
};
const char* pass_name(bool backward);  // " forward" or " forward+backward"

/// What goes wrong while a contestant is made is why it cannot run. A name that is there already stays.
void add(Group&, const std::string& name, const OperatorPass&);
/// A function of bench/rival_attention.py of the group's size, as a resident process; `request` names it.
void add_rival(Group&, const std::string& name, const std::string& python, nlohmann::json request);

/// DCMHA of a window against all keys, both passes; by the clock where more than one thread runs.
void add_window_goals(Group&, int64_t window, double limit);
/// The last query of a sequence against all its keys: the queries of the inputs are cut to one.
Arguments last_query(Arguments);

/// Of each group asked for: its operators are checked, its contestants take turns.
std::vector<Goal> measure_goals(const Groups&, const GoalRun&);

}  // namespace motet
