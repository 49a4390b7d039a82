// How goals are measured, and the table of a GPU at a 64th of its lengths on the CPU.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "motet/bench/attention_bench.h"
#include "motet/bench/goal_groups.h"
#include "motet/bench/machine.h"
#include "motet/bench/train_goals.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/testing.h"
#include "motet/ops/other_device.h"

namespace motet {
namespace {

constexpr AttentionSize kSmall{1, 16, 4, 8};

// A shell script in Python's place, which keeps what each rival is asked for and takes a second a step. The authors'
// DCMHA answers other facts.
class StandIn {
 public:
  explicit StandIn(const std::string& facts = "{}", const std::string& authors = "{}") {
    std::ofstream(path()) << "#!/bin/sh\nread line; echo \"$line\" >> " << folder_ / "asked" << "\n"
                          << "case \"$line\" in *authors_dcmha*) echo '" << authors << "' ;; *) echo '" << facts
                          << "' ;; esac\n"
                          << "while read line; do echo '{\"seconds\": 1, \"cpu_seconds\": 2}'; done\n";
    std::filesystem::permissions(path(), std::filesystem::perms::owner_all);
  }
  std::string path() const { return folder_ / "python"; }
  std::vector<nlohmann::json> asked() const {
    std::istringstream lines(read_file(folder_ / "asked"));
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

 private:
  testing::TemporaryFolder folder_;
};

GoalRun once(const std::string& python = "") { return {.python = python, .turns = {.warmups = 0, .repeats = 1}}; }

Goal of(const std::vector<Goal>& goals, const std::string& what) {
  for (const Goal& goal : goals)
    if (goal.what == what) return goal;
  ADD_FAILURE() << "no goal " << what;
  return {};
}

TEST(GpuGoals, EachContestantRunsAndEachGoalHasBothTimes) {
  const StandIn python;
  const GoalRun run = once(python.path());
  const std::vector<Goal> goals = measure_goals(gpu_groups(run, 64), run);
  EXPECT_EQ(goals.size(), 3u * (2 * 4 + 2) + 2 + 2 + 7);
  for (const Goal& goal : goals) {
    SCOPED_TRACE(goal.what);
    EXPECT_TRUE(goal.wall);
    if (goal.over.starts_with("SDPA cuDNN")) {
      EXPECT_EQ(goal.why_not.find(goal.over + ": "), 0u) << goal.why_not;  // a backend of GPUs alone
      EXPECT_EQ(goal.limit, 0);
      continue;
    }
    EXPECT_EQ(goal.why_not, "");
    EXPECT_GT(goal.of_time.wall, 0);
    EXPECT_GT(goal.over_time.wall, 0);
  }
  const Goal first = of(goals, "T 32: dcmha forward over SDPA flash forward");
  EXPECT_EQ(first.limit, 1.6);
  EXPECT_EQ(first.stretch, 1.3);
  EXPECT_EQ(
      of(goals, "differential, T 128: differential_v1 forward+backward over differential_2_calls forward+backward")
          .over_time.wall,
      1);
}

TEST(GpuGoals, RivalsAreToldSizeDtypeDeviceAndBackend) {
  const StandIn python;
  GoalRun run = once(python.path());
  run.length = 64;
  measure_goals(gpu_groups(run, 64), run);
  const std::vector<nlohmann::json> asked = python.asked();
  ASSERT_EQ(asked.size(), 9u);
  for (const nlohmann::json& one : asked) {
    EXPECT_EQ(one["dtype"], "bfloat16");
    EXPECT_EQ(one["device"], "cpu");
    EXPECT_EQ(one["batch"], 4);
    EXPECT_EQ(one["length"], 64);
    EXPECT_EQ(one.value("chunk", 0), one["rival"] == "compiled_dcmha" ? 16 : 0);
    const bool flash = one["rival"] == "differential_2_calls" || one["rival"] == "differential_4_calls";
    EXPECT_EQ(one.value("backend", ""), flash ? "flash" : "") << one;
    EXPECT_EQ(one["calls"], flash ? 10 : 1);
  }
}

TEST(GpuGoals, ComputeOnTheDevice) {
  const StandIn python;
  GoalRun run = once(python.path());
  run.length = 128, run.device = testing::other_device();
  const int64_t waits = testing::other_counts().synchronize;
  const std::vector<Goal> goals = measure_goals(gpu_groups(run, 64), run);
  EXPECT_GT(testing::other_counts().synchronize, waits) << "the clock is the device's";
  for (const Goal& goal : goals) {
    SCOPED_TRACE(goal.what);
    EXPECT_EQ(goal.why_not, "");  // of this device SDPA has one backend, whichever is asked for
    EXPECT_GT(goal.of_time.wall, 0);
    EXPECT_GT(goal.over_time.wall, 0);
  }
  for (const nlohmann::json& one : python.asked()) EXPECT_EQ(one["device"], run.device.str());
}

TEST(CpuGoals, LimitsAreThoseOfTheKindOfCpu) {
  struct Wanted {
    const char* kind;
    double dcmha, mha_bfloat16, bfloat16_over_own, hoped;
  };
  for (const Wanted& want :
       {Wanted{kAvx512, 0.85, 0, 0.70, 0.80}, Wanted{kAmx, 0.80, 0.9, 0, 0}, Wanted{"other", 0, 0, 0, 0}}) {
    SCOPED_TRACE(want.kind);
    const std::vector<Goal> goals = cpu_groups({.kind = want.kind})[2].second().goals;
    const Goal dcmha = of(goals, "T 2048: dcmha forward+backward");
    EXPECT_EQ(dcmha.limit, want.dcmha);
    EXPECT_EQ(dcmha.stretch, want.hoped);
    const Goal narrow = of(goals, "T 2048: mha bfloat16 forward over SDPA");
    EXPECT_EQ(narrow.over, "SDPA bfloat16 forward");
    EXPECT_EQ(narrow.limit, want.mha_bfloat16);
    EXPECT_EQ(of(goals, "T 2048: dcmha bfloat16 forward").limit, want.bfloat16_over_own);
  }
  EXPECT_EQ(cpu_kind({"avx2", "avx512f", "avx512bf16"}), std::string(kAvx512));
  EXPECT_EQ(cpu_kind({"avx2", "avx512f", "amx-tile", "amx-bf16"}), std::string(kAmx));
  EXPECT_EQ(cpu_kind({"neon"}), "other");
}

TEST(Machine, TheProcessorIsNamedWithItsModel) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "cpuinfo") << "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
  EXPECT_EQ(processor_name(folder / "cpuinfo"), "AMD EPYC (family 25, model 17)");
  std::ofstream(folder / "arm") << "processor\t: 0\nBogoMIPS\t: 50\n";
  EXPECT_EQ(processor_name(folder / "arm"), "unknown");
}

TEST(Goals, ALengthThatNoGroupHasIsNamed) {
  GoalRun run = once();
  run.length = 7;
  EXPECT_EQ(testing::message_of<UsageError>([&] { measure_goals(run); }),
            "--shape: no goal has T = 7, want one of 16, 512, 1024, 2048, 4096");
}

Group group_of(const std::vector<std::string>& over) {
  Group group{.name = "g", .size = kSmall};
  add(group, "ours", {run_operator, "mha", kSmall});
  add(group, "flash", {run_flash, "mha", kSmall});
  add(group, "cuDNN", {run_cudnn, "mha", kSmall});
  add(group, "unknown", {run_operator, "no such", kSmall});
  const auto wrong_when_checked = [made = std::make_shared<bool>(false)](Arguments a) {
    if (std::exchange(*made, true)) fail("changed as it is timed");
    return a;
  };
  add(group, "wrong", {run_operator, "key_size", kSmall, false, wrong_when_checked});
  for (const std::string& name : over) group.goals.push_back({name, "ours", name, 1});
  return group;
}

TEST(Goals, WhatCannotRunSaysWhyAndTheOthersGoOn) {
  const Groups groups{{16, [] { return group_of({"flash", "cuDNN", "unknown", "wrong"}); }}};
  const std::vector<Goal> goals = measure_goals(groups, once());
  EXPECT_EQ(of(goals, "flash").why_not, "");
  EXPECT_GT(of(goals, "flash").over_time.wall, 0);
  EXPECT_NE(of(goals, "cuDNN").why_not.find("cuDNN: No viable backend"), std::string::npos);
  EXPECT_EQ(of(goals, "cuDNN").why_not.find('\n'), std::string::npos);
  EXPECT_NE(of(goals, "unknown").why_not.find("unknown: unknown mechanism 'no such'"), std::string::npos);
  EXPECT_EQ(of(goals, "wrong").why_not, "wrong: changed as it is timed");
}

TEST(Goals, AnInterruptLeavesWhatWasMeasured) {
  const Groups groups{{16, [] { return group_of({"flash"}); }}, {16, [] {
                                                                   Group group = group_of({"flash"});
                                                                   group.contestants["ours"].step = []() -> Time {
                                                                     throw Interrupted("stopped");
                                                                   };
                                                                   return group;
                                                                 }}};
  GoalRun run = once();
  std::vector<Goal> measured;
  run.measured = [&](const std::vector<Goal>& more) { measured.insert(measured.end(), more.begin(), more.end()); };
  EXPECT_THROW(measure_goals(groups, run), Interrupted);
  ASSERT_EQ(measured.size(), 1u);
  EXPECT_GT(measured[0].over_time.wall, 0);
}

TEST(Goals, WithoutALimitNothingFallsShortAndAnUnmeasuredLimitDoes) {
  Goal goal{"g", "a", "b", 0};
  goal.of_time = {2, 2}, goal.over_time = {1, 1};
  EXPECT_FALSE(goal.short_of());
  goal.limit = 1;
  EXPECT_TRUE(goal.short_of());
  goal.limit = 3;
  EXPECT_FALSE(goal.short_of());
  goal.why_not = "none";
  EXPECT_TRUE(goal.short_of());
}

int calls = 0;
Tensor counted(const Arguments& a) {
  ++calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return a.input[kQ];
}

TEST(Goals, OfSeveralCallsATimeIsThatOfOne) {
  Group group{.name = "g", .size = kSmall, .calls = 4};
  add(group, "counted", {counted, "mha", kSmall});
  const Time time = group.contestants.at("counted").step();
  EXPECT_EQ(calls, 4);
  EXPECT_GE(time.wall, 0.005);
  EXPECT_LT(time.wall, 0.019) << "of one call, not of four";
}

TEST(CheckedOperators, AreAsExactAsTheirDtypeAllows) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const std::string& name : benched_names()) {
      SCOPED_TRACE(c10::str(name, " ", type));
      check_operator({name, {2, 96, 4, 32}, type});
    }
}

TEST(CheckedOperators, AreThoseThatAreTimed) {
  const AttentionCase what{"dcmha", {1, 96, 4, 32}};
  const auto narrow_and_windowed = [&](Arguments a) {
    a = as_leaves(a, at::kBFloat16);
    a.window = 5;
    return a;
  };
  check_operator(what, at::kCPU, narrow_and_windowed);
  check_operator(what, at::kCPU, last_query);
  const auto cancelled = [](Arguments a) {  // gradients of four gates are nothing but what rounding leaves
    a = last_query(a);
    a.input[kK] = a.input[kK].detach().slice(1, 0, 1).expand_as(a.input[kK]).contiguous();
    return a;
  };
  for (int draw = 0; draw < 10; ++draw) check_operator(what, at::kCPU, cancelled);
  const auto lost = [](Arguments a) {  // beyond what a dtype holds: the operator and float64 differ
    a.input[kQ] = (a.input[kQ].detach() * 1e38).requires_grad_();
    return a;
  };
  EXPECT_THROW(check_operator(what, at::kCPU, lost), Error);
  EXPECT_NO_THROW(check_operator(what));
}

TEST(Passes, OneBackendAloneRunsAndTheChoiceIsBack) {
  const Arguments a = as_leaves(benched_operator("mha").arguments(kSmall), at::kFloat);
  EXPECT_LE((run_flash(a) - run_definition(a)).abs().max().item<double>(), 1e-5);
  EXPECT_THROW(run_cudnn(a), c10::Error);
  const at::Context& context = at::globalContext();
  EXPECT_TRUE(context.userEnabledFlashSDP() && context.userEnabledMathSDP() && context.userEnabledMemEfficientSDP() &&
              context.userEnabledCuDNNSDP());
}

TEST(Machine, TheGpuIsNamedAsItsDriverDoes) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(gpu_name(folder.path()), "unknown");
  for (const char* place : {"0000:a0:00.0", "0000:04:00.0"}) {
    const std::filesystem::path gpu = std::filesystem::path(folder.path()) / "gpus" / place;
    std::filesystem::create_directories(gpu);
    std::ofstream(gpu / "information") << "Model: \t\t NVIDIA " << place << "\nIRQ: 7\n";
  }
  EXPECT_EQ(gpu_name(folder.path()), "NVIDIA 0000:04:00.0");
}

TrainBench tiny_training() {
  TrainBench bench{.threads = 1, .turns = {.warmups = 0, .repeats = 1}};
  bench.shape = {.hidden = 16, .layers = 1, .heads = 2, .vocab = 32, .T = 8, .B = 4, .tied = true};
  return bench;
}

TEST(TrainGoals, AreOfTheModelOfTheGoals) {
  const TrainShape s = gpu_train_goals().shape;
  EXPECT_EQ(train_shape_options().write(s)["tied"], true);
  EXPECT_EQ(s.T * s.B, 16384);
  EXPECT_EQ(s.vocab, 50304);
}

// The parameters of our models at the sizes, as a rival answers them.
std::string facts(const char* mechanism) {
  TrainBench bench = tiny_training();
  bench.rivals.clear();
  bench.contenders = {{mechanism, {{"mechanism", mechanism}, {"num_heads", 2}}}};
  return text("{\"parameters\": ", measure_training(bench).ours.front().parameters, "}");
}

TEST(TrainGoals, EachHasBothTimesOfAsManyTokens) {
  const StandIn python(facts("softmax"), facts("dcmha"));
  TrainBench bench = tiny_training();
  bench.python = python.path();
  const std::vector<Goal> goals = measure_train_goals(bench, gpu_train_goals());
  ASSERT_EQ(goals.size(), 4u);
  for (const Goal& goal : goals) EXPECT_EQ(goal.why_not, "") << goal.what;
  const Goal flash = of(goals, "mha over compiled PyTorch with flash, tokens/s");
  EXPECT_EQ(flash.limit, 0.95);
  EXPECT_EQ(flash.of_time.wall, 1);
  EXPECT_DOUBLE_EQ(flash.measured(), 1 / flash.over_time.wall);
  EXPECT_GT(flash.over_time.wall, 0);
  for (const char* name : {"dcmha", "differential_v1"}) {
    const Goal goal = of(goals, text(name, " over mha, tokens/s"));
    EXPECT_EQ(goal.of_time.wall, flash.over_time.wall) << "the time of plain attention";
    EXPECT_GT(goal.over_time.wall, 0);
  }
  EXPECT_EQ(of(goals, "dcmha over the authors' DCMHA, compiled, tokens/s").of_time.wall, 2)
      << "a step of half the rows";
  const std::vector<nlohmann::json> asked = python.asked();
  ASSERT_EQ(asked.size(), 2u);
  for (const nlohmann::json& one : asked) {
    EXPECT_EQ(one["compile"], true);
    EXPECT_EQ(one["dtype"], "bfloat16");
    EXPECT_EQ(one["tie_embeddings"], true);
  }
  EXPECT_EQ(asked[0]["batch_size"], 4);
  EXPECT_EQ(asked[1]["batch_size"], 2);
  EXPECT_EQ(asked[1]["attention"], "authors_dcmha");
}

TEST(TrainGoals, OfACpuAreInFloat32BesideEagerPyTorch) {
  const StandIn python(facts("softmax"));
  TrainBench bench = tiny_training();
  bench.python = python.path();
  const std::vector<Goal> goals = measure_train_goals(bench, cpu_train_goals(kAmx));
  ASSERT_EQ(goals.size(), 3u);
  for (const Goal& goal : goals) EXPECT_EQ(goal.why_not, "") << goal.what;
  EXPECT_EQ(of(goals, "mha over eager PyTorch, tokens/s").of_time.wall, 1);
  EXPECT_EQ(of(goals, "dcmha over mha, tokens/s").limit, 0.92);
  ASSERT_EQ(python.asked().size(), 1u);
  EXPECT_EQ(python.asked()[0]["dtype"], "float32");
  EXPECT_EQ(cpu_train_goals(kAvx512).rates[1].limit, 0);
}

TEST(TrainGoals, ARivalOfAnotherModelIsNotMeasured) {
  const std::string plain = facts("softmax");
  const StandIn python(plain, plain);
  TrainBench bench = tiny_training();
  bench.python = python.path();
  const std::vector<Goal> goals = measure_train_goals(bench, gpu_train_goals());
  EXPECT_NE(of(goals, "dcmha over the authors' DCMHA, compiled, tokens/s").why_not.find("want the same model"),
            std::string::npos);
  EXPECT_EQ(of(goals, "dcmha over mha, tokens/s").why_not, "");
}

}  // namespace
}  // namespace motet
