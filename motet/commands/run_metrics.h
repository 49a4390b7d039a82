#pragma once
#include "motet/models/cost.h"
#include "motet/report/metrics.h"
#include "motet/report/tensorboard.h"
#include "motet/train/trainer.h"

namespace motet {

/// What the speed of a run is measured against, and the command that is running: its line {"step", "device", "threads",
/// "peak_flops_per_second", "flops_per_token", "command"} stands before the first step that a process makes.
struct RunMachine {
  at::Device device = at::kCPU;
  int64_t threads = 1;
  double peak_flops_per_second = 0;   // of matrix products in the run's dtype
  double flops_per_token = 0;         // of training: three times those of a forward pass
  double output_flops_per_token = 0;  // of them: for logits
  std::string command = {};
};
/// Measures the peak, of so many processes at once; what the measuring took does not count as the run's memory.
RunMachine measured_machine(const TrainOptions&, int64_t threads, int64_t processes, const ModelCost&);

/// metrics.jsonl, and every number of it for TensorBoard: "train/loss", "validation/loss", "machine/flops_per_token"
/// ... The event files are written anew from the lines that a resumed run has.
class RunMetrics {
 public:
  /// Throws Error when the files cannot be written.
  RunMetrics(const std::filesystem::path& run, const RunMachine&, double seconds_before);

  /// The step's line, with tokens_per_second, utilization (of the peak) and peak_bytes (of memory, since the process
  /// began to train; left out where nobody tells).
  void write(const StepRecord&);
  void write(const EvalRecord&);
  void write(const DiagnosisRecord&);

 private:
  void write(const nlohmann::json& record);
  void show(const nlohmann::json& record);

  RunMachine machine_;
  double begin_, seconds_ = 0;  // of steps, since 1970 and since the beginning of the run
  int64_t peak_bytes_ = 0;
  bool introduced_ = false;  // the machine's line is written
  MetricsWriter lines_;
  TensorBoardWriter events_;
};

}  // namespace motet
