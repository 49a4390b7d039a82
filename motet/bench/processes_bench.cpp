#include "motet/bench/processes_bench.h"

#include <cmath>
#include <deque>

#include "motet/core/error.h"
#include "motet/core/progress.h"
#include "motet/train/plan.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

constexpr double kRounding = 1e-4;  // of a loss, in float32, within the few steps before anything is measured

// Seconds of the processor that all processes used.
double of_all(const Processes& processes, double seconds) {
  double sum = 0;
  for (const nlohmann::json& own : processes.everyones(nlohmann::json(seconds))) sum += own.get<double>();
  return sum;
}

class Way {
 public:
  Way(const TrainBench& bench, const TextData& data, bool sharded, std::shared_ptr<Processes> processes)
      : processes_(std::move(processes)) {
    RunConfig run = bench_run(bench);
    run.train.shard_optimizer = sharded;
    const ModelConfig config = run.model_config(bench.shape.vocab);
    plan_ = training_plan(config, run.train, processes_->size());
    Model model(config, bench.device);
    model->initialize(1);
    trainer_ = std::make_unique<Trainer>(model, data, run.train, processes_);
  }

  // The loss of a step that all of this way's processes make.
  double step(bool counts) {
    StepRecord record;
    Time time = timed([&] { record = trainer_->step(); }, trainer_->model().device());
    time.cpu = of_all(*processes_, time.cpu);
    if (counts) times_.push_back(time);
    if (!processes_->alone()) trainer_->check_stop();  // of a signal all learn together
    return record.loss;
  }

  ProcessesTime result(const std::string& name) const {
    return {name, processes_->size(), median(times_), plan_.exchanged_bytes, trainer_->optimizer().state_bytes()};
  }

  int64_t parameters() const { return plan_.cost.parameters; }
  int64_t tokens() const { return trainer_->tokens_per_step(); }

 private:
  std::shared_ptr<Processes> processes_;
  TrainingPlan plan_;
  std::unique_ptr<Trainer> trainer_;
  std::vector<Time> times_;
};

}  // namespace

ProcessesTimes measure_processes(const TrainBench& bench, const std::shared_ptr<Processes>& processes) {
  const TextData data = random_tokens(bench.shape.vocab, bench.shape.T);
  std::deque<Way> ways;
  ways.emplace_back(bench, data, false, processes);
  ways.emplace_back(bench, data, true, processes);
  std::optional<Way> alone;  // of the first process: the others wait meanwhile
  if (processes->first()) alone.emplace(bench, data, false, std::make_shared<Processes>());
  Progress progress("bench processes", processes->first() ? bench.turns.warmups + bench.turns.repeats : 0);
  for (int64_t turn = 0; turn < bench.turns.warmups + bench.turns.repeats; ++turn) {
    if (processes->first()) progress.update(turn, "");
    const bool counts = turn >= bench.turns.warmups;
    const double loss = alone ? alone->step(counts) : 0;
    for (Way& way : ways) {
      processes->everyones(nlohmann::json(turn));  // the clocks start together
      const double own = way.step(counts);
      if (alone && !counts && std::abs(own - loss) > kRounding * loss)
        fail("bench processes: step ", turn + 1, " has loss ", own, " with ", processes->size(), " processes and ",
             loss, " alone, want the same");
    }
  }
  progress.finish();
  const auto count = [&](const char* how) { return text(processes->size(), " processes", how); };
  ProcessesTimes result{ways[0].parameters(), ways[0].tokens(), {}};
  if (alone) result.ways.push_back(alone->result("1 process"));
  result.ways.push_back(ways[0].result(count("")));
  result.ways.push_back(ways[1].result(count(", shard_optimizer")));
  return result;
}

}  // namespace motet
