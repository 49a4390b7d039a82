#include "motet/compare/speed.h"

#include <malloc.h>

#include "motet/core/interrupt.h"
#include "motet/core/progress.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

constexpr int kSpeedRounds = 5;
constexpr double kSpeedSeconds = 60;  // of measuring, all models together; at least two rounds

std::unique_ptr<Trainer> fresh_trainer(const ArmResult& arm, const TextData& data, const TrainOptions& train) {
  Model model(arm.config, parse_device(train.device));
  model->initialize(0);
  return std::make_unique<Trainer>(model, data, train);
}

// While it lives, glibc takes each block of 64 kB or more from the kernel and gives it back when it is freed: resident
// memory is then what is in use, and not what the heap of the models before has kept or torn into pieces.
class ExactMemory {
 public:
  ExactMemory() { ::mallopt(M_MMAP_THRESHOLD, 1 << 16); }
  ~ExactMemory() {  // where glibc's own, growing thresholds end; a block from the kernel costs page faults
    ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
    ::mallopt(M_TRIM_THRESHOLD, 64 << 20);
  }
  ExactMemory(const ExactMemory&) = delete;
};

// Memory of a training step beyond what was there before, on its device. A model is stepped unmeasured first and freed,
// so that what torch sets up once does not count for the arm that happens to come first.
int64_t step_memory(const ArmResult& arm, const TextData& data, const TrainOptions& train) {
  const ExactMemory exact;
  const at::Device device = parse_device(train.device);
  fresh_trainer(arm, data, train)->step();
  ::malloc_trim(0);
  const int64_t before = used_memory(device);
  if (!reset_peak_memory(device)) return 0;
  fresh_trainer(arm, data, train)->step();
  return std::max<int64_t>(peak_memory(device) - before, 0);
}

}  // namespace

void measure_speed(const RunConfig& run, const TextData& data, Comparison& all) {
  at::set_num_threads(static_cast<int>(all.threads));
  std::vector<std::unique_ptr<Trainer>> trainers(all.arms.size());
  std::vector<std::vector<double>> seconds(all.arms.size());
  Progress progress("measuring speed", static_cast<int64_t>(all.arms.size()) * (kSpeedRounds + 2));
  int64_t measured = 0;
  double total = 0;
  const auto endless = [&](size_t i) {
    TrainOptions train = arm_train(run, all.arms[i].arm, 0);
    train.steps = 1000000, train.tokens = 0, train.minutes = 0;
    return train;
  };
  const auto attempt = [&](size_t i, const auto& action) {
    check_interrupt();
    try {
      action();
    } catch (const Diverged&) {
      trainers[i] = nullptr;
    }
    progress.update(++measured, all.arms[i].arm.label);
  };
  for (size_t i = 0; i < trainers.size(); ++i)
    attempt(i, [&] { all.arms[i].peak_bytes = step_memory(all.arms[i], data, endless(i)); });
  for (size_t i = 0; i < trainers.size(); ++i) trainers[i] = fresh_trainer(all.arms[i], data, endless(i));
  for (int round = 0; round <= kSpeedRounds; ++round) {
    if (round > 2 && total > kSpeedSeconds) break;
    for (size_t i = 0; i < trainers.size(); ++i) {
      if (!trainers[i]) continue;
      attempt(i, [&] {
        const double step = trainers[i]->step().seconds;
        total += step;
        if (round > 0) seconds[i].push_back(step);  // the first step warms up
      });
    }
  }
  progress.finish();
  for (size_t i = 0; i < trainers.size(); ++i) {
    if (!trainers[i]) continue;
    std::ranges::sort(seconds[i]);
    all.arms[i].tokens_per_second =
        static_cast<double>(trainers[i]->tokens_per_step()) / seconds[i][seconds[i].size() / 2];
  }
}

}  // namespace motet
