#include "motet/bench/goals.h"

#include <ATen/Parallel.h>

#include <memory>
#include <set>

#include "motet/bench/attention_bench.h"
#include "motet/bench/goal_groups.h"
#include "motet/bench/rival.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/ops/failure.h"

namespace motet {
namespace {

// Why the call failed, in one line; "" when it did not.
std::string failure(const std::function<void()>& call) {
  try {
    call();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    return told(error);
  }
  return "";
}

void add(Group& group, const std::string& name, const std::function<void(Contestant&)>& make) {
  if (group.contestants.contains(name)) return;
  Contestant made;
  made.why_not = failure([&] { make(made); });
  group.contestants.emplace(name, std::move(made));
}

void check(Group& group) {
  std::map<std::string, std::string> wrong;
  for (auto& [name, contestant] : group.contestants) {
    if (contestant.checked.empty() || !contestant.why_not.empty()) continue;
    if (!wrong.contains(contestant.checked)) wrong[contestant.checked] = failure(contestant.check);
    contestant.why_not = wrong[contestant.checked];
  }
}

void measure(Group& group, const Turns& turns) {
  const int threads = at::get_num_threads();
  if (group.threads != 0) at::set_num_threads(group.threads);
  check(group);
  std::map<std::string, std::vector<Time>> times;
  for (int64_t turn = 0; turn < turns.warmups + turns.repeats; ++turn)
    for (auto& [name, contestant] : group.contestants) {
      check_interrupt();
      if (!contestant.why_not.empty()) continue;
      Time t;
      contestant.why_not = failure([&] { t = contestant.step(); });
      if (turn >= turns.warmups) times[name].push_back(t);
    }
  for (Goal& goal : group.goals) {
    for (const std::string& name : {goal.of, goal.over})
      if (const std::string& why = group.contestants.at(name).why_not; goal.why_not.empty() && !why.empty())
        goal.why_not = text(name, ": ", why);
    if (goal.why_not.empty()) goal.of_time = median(times[goal.of]), goal.over_time = median(times[goal.over]);
  }
  at::set_num_threads(threads);
}

}  // namespace

const char* pass_name(bool backward) { return backward ? " forward+backward" : " forward"; }

void add(Group& group, const std::string& name, const OperatorPass& given) {
  add(group, name, [&](Contestant& made) {
    Arguments a = as_leaves(benched_operator(given.mechanism).arguments(given.size), group.type, group.device);
    if (given.change) a = given.change(a);
    if (given.forward == run_operator) {
      const AttentionCase what{given.mechanism, given.size, group.type};
      const Tensor& q_BTHD = a.input[kQ];
      made.checked = text(given.mechanism, ", ", q_BTHD.size(1), " queries in ", at::toString(q_BTHD.scalar_type()),
                          ", window ", a.window);
      made.check = [=, device = group.device, change = given.change] { check_operator(what, device, change); };
    }
    made.step = [run = pass(given.forward, a, given.backward), calls = group.calls, device = group.device] {
      const Time all = timed(
          [&] {
            for (int i = 0; i < calls; ++i) run();
          },
          device);
      return Time{all.wall / calls, all.cpu / calls};
    };
  });
}

void add_rival(Group& group, const std::string& name, const std::string& python, nlohmann::json request) {
  request.update({{"batch", group.size.B},
                  {"length", group.size.T},
                  {"heads", group.size.H},
                  {"head_dim", group.size.D},
                  {"seed", 1}});
  add(group, name, [&](Contestant& made) {
    const auto process = std::make_shared<RivalProcess>(find_rival("rival_attention.py", python), request);
    made.step = [process] { return process->step(); };
  });
}

void add_window_goals(Group& group, int64_t window, double limit) {
  const auto windowed = [window](Arguments a) {
    a.window = window;
    return a;
  };
  for (const bool backward : {false, true}) {
    const std::string of = std::string("windowed") + pass_name(backward),
                      over = std::string("full") + pass_name(backward);
    add(group, of, {run_operator, "dcmha", group.size, backward, windowed});
    add(group, over, {run_operator, "dcmha", group.size, backward});
    group.goals.push_back({.what = text(group.name, ": dcmha", pass_name(backward)),
                           .of = of,
                           .over = over,
                           .limit = limit,
                           .wall = group.threads != 1});
  }
}

Arguments last_query(Arguments a) {
  for (const int i : {kQ, kPre + kQueryDown, kPre + kQueryUp, kPre + kQueryGate, kPost + kQueryDown, kPost + kQueryUp,
                      kPost + kQueryGate})
    if (a.input[i].defined()) a.input[i] = a.input[i].detach().slice(1, a.input[i].size(1) - 1).contiguous();
  return a;
}

std::vector<Goal> measure_goals(const Groups& groups, const GoalRun& run) {
  std::vector<Goal> all;
  for (const auto& [length, make] : groups) {
    if (run.length && run.length != length) continue;
    Group group = make();
    run.report(group.name);
    measure(group, run.turns);
    run.measured(group.goals);
    all.insert(all.end(), group.goals.begin(), group.goals.end());
  }
  if (!all.empty()) return all;
  std::set<int64_t> known;
  for (const auto& [length, make] : groups) known.insert(length);
  std::string list;
  for (const int64_t length : known) list += text(list.empty() ? "" : ", ", length);
  fail_usage("--shape: no goal has T = ", run.length, ", want one of ", list);
}

std::vector<Goal> measure_goals(const GoalRun& run) {
  return measure_goals(run.device.is_cpu() ? cpu_groups(run) : gpu_groups(run), run);
}

}  // namespace motet
