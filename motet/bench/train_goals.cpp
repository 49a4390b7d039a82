#include "motet/bench/train_goals.h"

#include "motet/bench/machine.h"
#include "motet/core/error.h"

namespace motet {
namespace {

constexpr const char *kNanoGpt = "compiled PyTorch with flash", *kAuthors = "the authors' DCMHA, compiled",
                     *kEager = "eager PyTorch";

std::vector<Contender> contenders(int64_t heads) {
  const auto with_heads = [&](nlohmann::json attention) {
    attention["num_heads"] = heads;
    return attention;
  };
  return {{"mha", with_heads({{"mechanism", "softmax"}})},
          {"dcmha", with_heads({{"mechanism", "dcmha"}})},
          {"differential_v1", with_heads({{"mechanism", "differential"}, {"version", "v1"}})}};
}

// The authors' weights of all heads and keys stay for the backward pass: half of the rows, as many tokens as fit.
std::vector<TrainRival> compiled(int64_t rows) {
  return {{kNanoGpt, {{"compile", true}, {"backend", "flash"}}, "mha"},
          {kAuthors,
           {{"compile", true}, {"attention", "authors_dcmha"}, {"batch_size", std::max<int64_t>(1, rows / 2)}},
           "dcmha"}};
}

}  // namespace

TrainGoals gpu_train_goals() {
  return {
      .shape = {.hidden = 768, .layers = 12, .heads = 12, .vocab = 50304, .T = 1024, .B = 16, .tied = true},
      .dtype = TrainDtype::bfloat16,
      .rivals = compiled,
      .rates = {
          {"mha", kNanoGpt, 0.95}, {"dcmha", "mha", 0.75}, {"dcmha", kAuthors, 0}, {"differential_v1", "mha", 0.93}}};
}

TrainGoals cpu_train_goals(const std::string& kind) {
  return {.shape = {},
          .dtype = TrainDtype::float32,
          .rivals = [](int64_t) { return std::vector<TrainRival>{{kEager}}; },
          .rates = {{"mha", kEager, 0}, {"dcmha", "mha", kind == kAmx ? 0.92 : 0}, {"differential_v1", "mha", 0}}};
}

std::vector<Goal> measure_train_goals(const TrainBench& base, const TrainGoals& wanted) {
  TrainBench bench = base;
  bench.contenders = contenders(base.shape.heads);
  bench.rivals = wanted.rivals(base.shape.B);
  bench.without_missing = true;
  bench.dtype = wanted.dtype;
  const TrainTimes times = measure_training(bench);
  const auto tokens = static_cast<double>(base.shape.T * base.shape.B);
  std::vector<Goal> goals;
  const auto find = [&](const std::string& name) {
    for (const auto* all : {&times.ours, &times.rivals})
      for (const TrainTime& t : *all)
        if (t.name == name) return t;
    fail("bench train: no contender ", name);
  };
  for (const RateGoal& row : wanted.rates) {
    const TrainTime ours = find(row.of), theirs = find(row.over);
    const auto time = [&](const TrainTime& t) {
      const double share = tokens / static_cast<double>(t.tokens);
      return Time{t.step.wall * share, t.step.cpu * share};
    };
    // Rates are inverse times: `of` of the ratio of times is the other's.
    Goal goal{.what = text(row.of, " over ", row.over, ", tokens/s"),
              .of = row.over,
              .over = row.of,
              .limit = row.limit,
              .at_least = true,
              .wall = true,
              .why_not = theirs.why_not};
    if (goal.why_not.empty()) goal.of_time = time(theirs), goal.over_time = time(ours);
    goals.push_back(goal);
  }
  return goals;
}

}  // namespace motet
