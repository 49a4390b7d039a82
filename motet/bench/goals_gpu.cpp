// The goals of the fused CUDA kernels: bfloat16, B T = 16384, on one H100, beside PyTorch's flash and cuDNN attention.
#include <ATen/Parallel.h>

#include "motet/bench/goal_groups.h"
#include "motet/core/error.h"

namespace motet {
namespace {

constexpr int64_t kTokens = 16384, kHeads = 16, kWidth = 64, kDecodeBatch = 16, kWindow = 256;
constexpr int64_t kLengths[] = {2048, 4096, 8192};
constexpr int kCalls = 10;  // of some 0.4 ms and more: the host is ahead of the GPU from the second on

// Sizes of a run: those of the goals, over `shrink`.
class Sizes {
 public:
  Sizes(const GoalRun& run, int64_t shrink) : device_(run.device), shrink_(shrink) {}
  AttentionSize at(int64_t length) const { return {kTokens / length, length / shrink_, kHeads, kWidth}; }
  int64_t of(int64_t tokens) const { return tokens / shrink_; }
  Group group(const std::string& name, const AttentionSize& size) const {
    return {.name = name, .size = size, .type = at::kBFloat16, .device = device_, .calls = kCalls, .threads = 0};
  }

 private:
  at::Device device_;
  int64_t shrink_;
};

void push(Group& group, const std::string& of, const std::string& over, double limit, double stretch = 0) {
  group.goals.push_back({.what = text(group.name, ": ", of, " over ", over),
                         .of = of,
                         .over = over,
                         .limit = limit,
                         .wall = true,
                         .stretch = stretch});
}

// A row of the table of goals: a mechanism's time over that of PyTorch's flash attention, at every length.
struct GoalRow {
  const char* mechanism;
  bool backward;
  double limit, stretch;
};
constexpr GoalRow kRows[] = {
    {"dcmha", false, 1.6, 1.3},
    {"dcmha", true, 2.0, 1.6},
    {"dcmha_query_wise", true, 1.7, 1.4},
    {"talking_heads", true, 2.0, 1.6},
};
constexpr GoalRow kDifferential{"differential_v1", true, 1.1, 1.0};  // over two calls of flash
constexpr double kWindowLimit = 0.1, kDecodeLimit = 1.2, kDecodeStretch = 1.1;

Group table_group(const Sizes& sizes, int64_t length) {
  Group group = sizes.group(text("T ", sizes.of(length)), sizes.at(length));
  for (const GoalRow& row : kRows) {
    const std::string ours = text(row.mechanism, pass_name(row.backward)),
                      flash = text("SDPA flash", pass_name(row.backward)),
                      cudnn = text("SDPA cuDNN", pass_name(row.backward));
    add(group, ours, {run_operator, row.mechanism, group.size, row.backward});
    add(group, flash, {run_flash, "mha", group.size, row.backward});
    add(group, cudnn, {run_cudnn, "mha", group.size, row.backward});
    push(group, ours, flash, row.limit, row.stretch);
    push(group, ours, cudnn, 0);
  }
  return group;
}

nlohmann::json request(const Group& group, const char* rival, bool backward, int calls) {
  return {{"rival", rival},      {"threads", at::get_num_threads()}, {"backward", backward},
          {"dtype", "bfloat16"}, {"device", group.device.str()},     {"calls", calls}};
}

Group differential_group(const Sizes& sizes, const std::string& python, int64_t length) {
  Group group = sizes.group(text("differential, T ", sizes.of(length)), sizes.at(length));
  const GoalRow& row = kDifferential;
  const std::string ours = text(row.mechanism, pass_name(row.backward));
  add(group, ours, {run_operator, row.mechanism, group.size, row.backward});
  for (const int calls : {2, 4}) {
    const std::string rival = text("differential_", calls, "_calls"), name = text(rival, pass_name(row.backward));
    nlohmann::json asked = request(group, rival.c_str(), row.backward, kCalls);
    asked["backend"] = "flash";
    add_rival(group, name, python, asked);
    push(group, ours, name, calls == 2 ? row.limit : 0, calls == 2 ? row.stretch : 0);
  }
  return group;
}

Group window_group(const Sizes& sizes) {
  const int64_t window = sizes.of(kWindow), length = kLengths[2];
  Group group = sizes.group(text("window ", window, ", T ", sizes.of(length)), sizes.at(length));
  add_window_goals(group, window, kWindowLimit);
  return group;
}

Group decode_group(const Sizes& sizes) {
  AttentionSize size = sizes.at(kLengths[2]);
  size.B = kDecodeBatch;
  Group group = sizes.group(text("decode, S ", size.T, ", B ", size.B), size);
  for (const char* mechanism : {"dcmha", "mha"})
    add(group, mechanism, {run_operator, mechanism, size, false, last_query});
  add(group, "SDPA flash", {run_flash, "mha", size, false, last_query});
  push(group, "dcmha", "mha", kDecodeLimit, kDecodeStretch);
  push(group, "dcmha", "SDPA flash", 0);
  return group;
}

// What users of PyTorch run today. One call each: they take tens of milliseconds.
struct Rival {
  const char* name;
  const char* mechanism;
  bool backward;
};
constexpr Rival kRivals[] = {
    {"authors_dcmha", "dcmha", false},
    {"authors_dcmha", "dcmha", true},
    {"compiled_dcmha", "dcmha", false},
    {"compiled_dcmha", "dcmha", true},
    {"eager_talking_heads", "talking_heads", true},
    {"flex_differential", "differential_v1", true},
    {"diffllama", "differential_v1", true},
};
constexpr int64_t kCompiledChunk = 1024;  // four graphs at T 4096: minutes of compilation less than with 128

Group rival_group(const Sizes& sizes, const std::string& python) {
  const int64_t length = kLengths[1];
  Group group = sizes.group(text("rivals in Python, T ", sizes.of(length)), sizes.at(length));
  for (const Rival& rival : kRivals) {
    const std::string ours = text(rival.mechanism, pass_name(rival.backward)),
                      name = text(rival.name, pass_name(rival.backward));
    nlohmann::json asked = request(group, rival.name, rival.backward, 1);
    if (rival.name == std::string("compiled_dcmha")) asked["chunk"] = sizes.of(kCompiledChunk);
    add_rival(group, name, python, asked);
    add(group, ours, {run_operator, rival.mechanism, group.size, rival.backward});
    push(group, name, ours, 0);
  }
  return group;
}

}  // namespace

Groups gpu_groups(const GoalRun& run, int64_t shrink) {
  const Sizes sizes(run, shrink);
  const std::string python = run.python;
  Groups groups;
  for (const int64_t length : kLengths) {
    groups.emplace_back(sizes.of(length), [=] { return table_group(sizes, length); });
    groups.emplace_back(sizes.of(length), [=] { return differential_group(sizes, python, length); });
  }
  groups.emplace_back(sizes.of(kLengths[2]), [=] { return window_group(sizes); });
  groups.emplace_back(sizes.of(kLengths[2]), [=] { return decode_group(sizes); });
  groups.emplace_back(sizes.of(kLengths[1]), [=] { return rival_group(sizes, python); });
  return groups;
}

}  // namespace motet
