// The goals of the fused CPU kernels, by kind of machine: one thread, beside PyTorch's SDPA.
#include <ATen/Parallel.h>

#include "motet/bench/goal_groups.h"
#include "motet/bench/machine.h"

namespace motet {
namespace {

constexpr int64_t kHeads = 16, kWidth = 64;

constexpr int64_t kLengths[] = {512, 1024, 2048, 4096};
using Limits = double[4];  // by length; 0: a figure without a goal

// A row of the tables of goals: a mechanism's time over SDPA's of the same type. The limits of AVX-512 are of a Zen 4,
// those of AMX of a Granite Rapids, whose SDPA is faster and multiplies bfloat16 by tiles; other machines have none.
struct GoalRow {
  const char* mechanism;
  at::ScalarType type;
  bool backward;
  Limits avx512, amx;
  Limits hoped = {};  // with AVX-512, beyond its limit
};
constexpr GoalRow kRows[] = {
    {"dcmha", at::kFloat, false, {0.60, 0.75, 0.86, 0.93}, {}},
    {"dcmha", at::kFloat, true, {0.60, 0.73, 0.85, 0.93}, {0.80, 0.80, 0.80, 0.80}, {0, 0, 0.80, 0.80}},
    {"mha", at::kFloat, false, {0.50, 0.60, 0.68, 0.72}, {}},
    {"mha", at::kFloat, true, {0.45, 0.55, 0.64, 0.70}, {0.50, 0.50, 0.50, 0.50}},
    {"differential_v1", at::kFloat, true, {0.50, 0.60, 0.70, 0.76}, {}},
    {"talking_heads", at::kFloat, true, {0.70, 0.85, 0.95, 1.0}, {0.90, 0.90, 0.90, 0.90}},
    {"key_size", at::kFloat, true, {1.3, 1.5, 1.8, 1.95}, {}},
    {"dcmha", at::kBFloat16, false, {}, {1.2, 1.2, 1.2, 1.2}},
    {"mha", at::kBFloat16, false, {}, {0.9, 0.9, 0.9, 0.9}},
};
constexpr double kBfloatLimit = 0.70;  // of bfloat16 over our float32

std::string name_of(const GoalRow& row, const char* what) {
  return std::string(what) + (row.type == at::kBFloat16 ? " bfloat16" : "") + pass_name(row.backward);
}

void add_row(Group& group, const GoalRow& row, int column, const std::string& kind) {
  const auto narrow = [&](const Arguments& a) { return as_leaves(a, row.type); };
  const auto change = row.type == at::kFloat ? std::function<Arguments(Arguments)>() : narrow;
  const std::string name = name_of(row, row.mechanism), sdpa = name_of(row, "SDPA");
  add(group, sdpa, {run_sdpa, "mha", group.size, row.backward, change});
  add(group, name, {run_operator, row.mechanism, group.size, row.backward, change});
  Goal goal{group.name + ": " + name, name, sdpa, 0};
  if (row.type != at::kFloat) goal.what += " over SDPA";
  if (kind == kAvx512) goal.limit = row.avx512[column], goal.stretch = row.hoped[column];
  if (kind == kAmx) goal.limit = row.amx[column];
  group.goals.push_back(goal);
}

Group table_group(int column, const std::string& kind) {
  const AttentionSize size{1, kLengths[column], kHeads, kWidth};
  Group group{.name = "T " + std::to_string(size.T), .size = size};
  for (const GoalRow& row : kRows) add_row(group, row, column, kind);
  group.goals.push_back({group.name + ": dcmha bfloat16 forward", "dcmha bfloat16 forward", "dcmha forward",
                         kind == kAvx512 ? kBfloatLimit : 0});
  return group;
}

Group other_shape(const std::string& name, const AttentionSize& size, int column, const std::string& kind) {
  Group group{.name = name, .size = size};
  for (const GoalRow& row : {kRows[0], kRows[1]}) add_row(group, row, column, kind);
  return group;
}

Group window_group() {
  Group group{.name = "window 256, T 4096", .size = {1, 4096, kHeads, kWidth}};
  add_window_goals(group, 256, 0.2);
  return group;
}

Group decode_group() {
  Group group{.name = "decode, S 4096", .size = {1, 4096, kHeads, kWidth}};
  for (const char* mechanism : {"dcmha", "mha"})
    add(group, mechanism, {run_operator, mechanism, group.size, false, last_query});
  add(group, "SDPA", {run_sdpa, "mha", group.size, false, last_query});
  group.goals.push_back({group.name + ": dcmha over own mha", "dcmha", "mha", 1.15});
  group.goals.push_back({group.name + ": dcmha over SDPA", "dcmha", "SDPA", 0.75});
  return group;
}

Group small_group() {
  Group group{.name = "T 16, H 4", .size = {1, 16, 4, kWidth}};
  for (const char* mechanism : {"dcmha", "mha"})
    for (const bool backward : {false, true}) {
      const std::string of = std::string(mechanism) + pass_name(backward), over = "eager " + of;
      add(group, of, {run_operator, mechanism, group.size, backward});
      add(group, over, {run_eager, mechanism, group.size, backward});
      group.goals.push_back({group.name + ": " + of, of, over, 1.0});
    }
  return group;
}

Group threads_group() {
  Group group{.name = "two threads, T 2048", .size = {1, 2048, kHeads, kWidth}, .threads = 2};
  for (const bool backward : {false, true}) {
    const std::string one = std::string("one") + pass_name(backward), two = std::string("two") + pass_name(backward);
    for (const std::string& name : {one, two}) {
      add(group, name, {run_operator, "dcmha", group.size, backward});
      Contestant& made = group.contestants.at(name);
      made.step = [run = made.step, threads = name == one ? 1 : 2] {
        at::set_num_threads(threads);
        return run();
      };
    }
    group.goals.push_back({group.name + ": dcmha" + pass_name(backward), one, two, 1.8, true, true});
  }
  return group;
}

// Rivals that are Python: resident processes that take turns with us.
Group rival_group(const std::string& python) {
  Group group{.name = "rivals in Python, T 1024", .size = {1, 1024, kHeads, kWidth}};
  const auto against = [&](const char* rival, const char* mechanism, bool backward, double limit, bool retained) {
    const std::string ours = std::string(mechanism) + pass_name(backward);
    const std::string name = std::string(rival) + (retained ? ", heap retained," : "") + pass_name(backward);
    add_rival(group, name, python,
              {{"rival", rival}, {"threads", 1}, {"backward", backward}, {"retain_heap", retained}});
    add(group, ours, {run_operator, mechanism, group.size, backward});
    group.goals.push_back({group.name + ": " + name + " over ours", name, ours, limit, true});
  };
  for (const bool retained : {false, true}) {
    against("authors_dcmha", "dcmha", false, retained ? 0 : 12, retained);
    against("authors_dcmha", "dcmha", true, retained ? 0 : 10, retained);
    if (!retained)
      against("compiled_dcmha", "dcmha", false, 3, retained), against("compiled_dcmha", "dcmha", true, 3, retained);
    against("eager_talking_heads", "talking_heads", true, 0, retained);
    against("differential_2_calls", "differential_v1", true, 0, retained);
    against("differential_4_calls", "differential_v1", true, 0, retained);
  }
  return group;
}

}  // namespace

Groups cpu_groups(const GoalRun& run) {
  Groups groups;
  const std::string kind = run.kind;
  for (int column = 0; column < 4; ++column)
    groups.emplace_back(kLengths[column], [=] { return table_group(column, kind); });
  groups.emplace_back(512, [=] { return other_shape("B 8, T 512", {8, 512, kHeads, kWidth}, 0, kind); });
  groups.emplace_back(1024, [=] { return other_shape("H 32, d 128, T 1024", {1, 1024, 32, 128}, 1, kind); });
  groups.emplace_back(4096, window_group);
  groups.emplace_back(4096, decode_group);
  groups.emplace_back(16, small_group);
  groups.emplace_back(2048, threads_group);
  groups.emplace_back(1024, [python = run.python] { return rival_group(python); });
  return groups;
}

}  // namespace motet
