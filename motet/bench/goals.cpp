#include "motet/bench/goals.h"

#include <ATen/Parallel.h>

#include <map>
#include <memory>

#include "motet/bench/attention_bench.h"
#include "motet/bench/passes.h"
#include "motet/bench/rival.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/log.h"

namespace motet {
namespace {

constexpr int64_t kHeads = 16, kWidth = 64;

/// Contestants that take turns, and the goals among them.
struct Group {
  std::string name;
  int64_t length;
  std::vector<std::string> checked;  // mechanisms whose operator is compared with float64 first
  AttentionSize check_size;
  std::map<std::string, std::function<Time()>> contestants;
  std::vector<Goal> goals;
  int threads = 1;
};

std::function<Time()> timed_pass(Forward forward, const Arguments& a, bool backward) {
  return [run = pass(forward, a, backward)] { return timed(run); };
}

Arguments inputs(const std::string& mechanism, const AttentionSize& size, at::ScalarType type = at::kFloat) {
  return as_leaves(benched_operator(mechanism).arguments(size), type);
}

const char* pass_name(bool backward) { return backward ? " forward+backward" : " forward"; }

// A row of the table of goals: a mechanism's time over SDPA's, by length.
struct Row {
  const char* mechanism;
  bool backward;
  double limit[4];
};
constexpr int64_t kLengths[] = {512, 1024, 2048, 4096};
constexpr Row kRows[] = {
    {"dcmha", false, {0.60, 0.75, 0.86, 0.93}},
    {"dcmha", true, {0.60, 0.73, 0.85, 0.93}},
    {"mha", false, {0.50, 0.60, 0.68, 0.72}},
    {"mha", true, {0.45, 0.55, 0.64, 0.70}},
    {"differential_v1", true, {0.50, 0.60, 0.70, 0.76}},
    {"talking_heads", true, {0.70, 0.85, 0.95, 1.0}},
    {"key_size", true, {1.3, 1.5, 1.8, 1.95}},
};
constexpr double kBfloatLimit = 0.70;

void add_sdpa(Group& group, const AttentionSize& size, bool backward) {
  group.contestants.emplace(std::string("SDPA") + pass_name(backward),
                            timed_pass(run_sdpa, inputs("mha", size), backward));
}

void add_row(Group& group, const Row& row, const AttentionSize& size, double limit) {
  const std::string name = std::string(row.mechanism) + pass_name(row.backward);
  add_sdpa(group, size, row.backward);
  group.contestants.emplace(name, timed_pass(run_operator, inputs(row.mechanism, size), row.backward));
  group.goals.push_back({group.name + ": " + name, name, std::string("SDPA") + pass_name(row.backward), limit});
  if (group.checked.empty() || group.checked.back() != row.mechanism) group.checked.emplace_back(row.mechanism);
}

Group table_group(int column) {
  const AttentionSize size{1, kLengths[column], kHeads, kWidth};
  Group group{"T " + std::to_string(size.T), size.T, {}, size, {}, {}};
  for (const Row& row : kRows) add_row(group, row, size, row.limit[column]);
  group.contestants.emplace("dcmha bfloat16 forward",
                            timed_pass(run_operator, inputs("dcmha", size, at::kBFloat16), false));
  group.goals.push_back(
      {group.name + ": dcmha bfloat16 forward", "dcmha bfloat16 forward", "dcmha forward", kBfloatLimit});
  return group;
}

Group other_shape(const std::string& name, const AttentionSize& size, int column) {
  Group group{name, size.T, {}, size, {}, {}};
  for (const Row& row : {kRows[0], kRows[1]}) add_row(group, row, size, row.limit[column]);
  return group;
}

Group window_group() {
  const AttentionSize size{1, 4096, kHeads, kWidth};
  Group group{"window 256, T 4096", size.T, {"dcmha"}, size, {}, {}};
  Arguments windowed = inputs("dcmha", size);
  windowed.window = 256;
  for (const bool backward : {false, true}) {
    const std::string of = std::string("windowed") + pass_name(backward),
                      over = std::string("full") + pass_name(backward);
    group.contestants.emplace(of, timed_pass(run_operator, windowed, backward));
    group.contestants.emplace(over, timed_pass(run_operator, inputs("dcmha", size), backward));
    group.goals.push_back({group.name + ": dcmha" + pass_name(backward), of, over, 0.2});
  }
  return group;
}

// The last query of a sequence against all its keys: the queries of the inputs are cut to one.
Arguments last_query(Arguments a) {
  for (const int i : {kQ, kPre + kQueryDown, kPre + kQueryUp, kPre + kQueryGate, kPost + kQueryDown, kPost + kQueryUp,
                      kPost + kQueryGate})
    if (a.input[i].defined()) a.input[i] = a.input[i].detach().slice(1, a.input[i].size(1) - 1).contiguous();
  return a;
}

Group decode_group() {
  const AttentionSize size{1, 4096, kHeads, kWidth};
  Group group{"decode, S 4096", size.T, {"dcmha", "mha"}, size, {}, {}};
  group.contestants.emplace("dcmha", timed_pass(run_operator, last_query(inputs("dcmha", size)), false));
  group.contestants.emplace("mha", timed_pass(run_operator, last_query(inputs("mha", size)), false));
  group.contestants.emplace("SDPA", timed_pass(run_sdpa, last_query(inputs("mha", size)), false));
  group.goals.push_back({group.name + ": dcmha over own mha", "dcmha", "mha", 1.15});
  group.goals.push_back({group.name + ": dcmha over SDPA", "dcmha", "SDPA", 0.75});
  return group;
}

Group small_group() {
  const AttentionSize size{1, 16, 4, kWidth};
  Group group{"T 16, H 4", size.T, {"dcmha", "mha"}, size, {}, {}};
  for (const char* mechanism : {"dcmha", "mha"})
    for (const bool backward : {false, true}) {
      const std::string of = std::string(mechanism) + pass_name(backward), over = "eager " + of;
      group.contestants.emplace(of, timed_pass(run_operator, inputs(mechanism, size), backward));
      group.contestants.emplace(over, timed_pass(run_definition, inputs(mechanism, size), backward));
      group.goals.push_back({group.name + ": " + of, of, over, 1.0});
    }
  return group;
}

Group threads_group() {
  const AttentionSize size{1, 2048, kHeads, kWidth};
  Group group{"two threads, T 2048", size.T, {}, size, {}, {}, 2};
  for (const bool backward : {false, true}) {
    const std::string one = std::string("one") + pass_name(backward), two = std::string("two") + pass_name(backward);
    const auto run = pass(run_operator, inputs("dcmha", size), backward);
    for (const int threads : {1, 2})
      group.contestants.emplace(threads == 1 ? one : two, [run, threads] {
        at::set_num_threads(threads);
        return timed(run);
      });
    group.goals.push_back({group.name + ": dcmha" + pass_name(backward), one, two, 1.8, true, true});
  }
  return group;
}

// Rivals that are Python: resident processes that take turns with us.
Group rival_group(const std::string& python) {
  const AttentionSize size{1, 1024, kHeads, kWidth};
  Group group{"rivals in Python, T 1024", size.T, {"dcmha", "talking_heads", "differential_v1"}, size, {}, {}};
  const RivalProgram program = find_rival("rival_attention.py", python);
  const auto add = [&](const char* rival, const char* mechanism, bool backward, double limit, bool retained) {
    const std::string ours = std::string(mechanism) + pass_name(backward);
    const std::string name = std::string(rival) + (retained ? ", heap retained," : "") + pass_name(backward);
    const nlohmann::json request{{"rival", rival},       {"batch", 1},         {"length", size.T},
                                 {"heads", size.H},      {"head_dim", size.D}, {"threads", 1},
                                 {"backward", backward}, {"seed", 1},          {"retain_heap", retained}};
    const auto process = std::make_shared<RivalProcess>(program, request);
    group.contestants.emplace(name, [process] { return process->step(); });
    group.contestants.emplace(ours, timed_pass(run_operator, inputs(mechanism, size), backward));
    group.goals.push_back({group.name + ": " + name + " over ours", name, ours, limit, true});
  };
  for (const bool retained : {false, true}) {
    add("authors_dcmha", "dcmha", false, retained ? 0 : 12, retained);
    add("authors_dcmha", "dcmha", true, retained ? 0 : 10, retained);
    if (!retained)
      add("compiled_dcmha", "dcmha", false, 3, retained), add("compiled_dcmha", "dcmha", true, 3, retained);
    add("eager_talking_heads", "talking_heads", true, 0, retained);
    add("differential_2_calls", "differential_v1", true, 0, retained);
    add("differential_4_calls", "differential_v1", true, 0, retained);
  }
  return group;
}

void measure(Group& group, const GoalRun& run) {
  const int threads = at::get_num_threads();
  at::set_num_threads(group.threads);
  for (const std::string& mechanism : group.checked) check_operator({mechanism, group.check_size});
  std::map<std::string, std::vector<Time>> times;
  for (int64_t turn = 0; turn < run.turns.warmups + run.turns.repeats; ++turn)
    for (const auto& [name, contestant] : group.contestants) {
      check_interrupt();
      const Time t = contestant();
      if (turn >= run.turns.warmups) times[name].push_back(t);
    }
  for (Goal& goal : group.goals) goal.of_time = median(times[goal.of]), goal.over_time = median(times[goal.over]);
  at::set_num_threads(threads);
}

}  // namespace

std::vector<Goal> measure_goals(const GoalRun& run) {
  using Make = std::function<Group()>;
  std::vector<std::pair<int64_t, Make>> groups;
  for (int column = 0; column < 4; ++column) groups.emplace_back(kLengths[column], [=] { return table_group(column); });
  groups.emplace_back(512, [] { return other_shape("B 8, T 512", {8, 512, kHeads, kWidth}, 0); });
  groups.emplace_back(1024, [] { return other_shape("H 32, d 128, T 1024", {1, 1024, 32, 128}, 1); });
  groups.emplace_back(4096, window_group);
  groups.emplace_back(4096, decode_group);
  groups.emplace_back(16, small_group);
  groups.emplace_back(2048, threads_group);
  groups.emplace_back(1024, [&] { return rival_group(run.python); });
  std::vector<Goal> all;
  for (const auto& [length, make] : groups) {
    if (run.length && run.length != length) continue;
    Group group = make();
    run.report(group.name);
    try {
      measure(group, run);
    } catch (const Interrupted&) {
      throw;
    } catch (const Error& error) {  // its goals are not reached, the others' figures are kept
      log_warn(error.what());
    }
    all.insert(all.end(), group.goals.begin(), group.goals.end());
  }
  return all;
}

}  // namespace motet
