#pragma once
#include "motet/models/model.h"

namespace motet {

/// An average of the weights beside those that are trained: "ema:D", after each step D times itself and 1 - D times the
/// weights, from those after the first step on (arXiv:1803.05407's with decay, as torch.optim.swa_utils); or "last:N",
/// the mean of those after the last N checkpoints (arXiv:2209.14981). "": none.
class WeightAverage {
 public:
  /// Throws UsageError for another word, a D not between 0 and 1 and an N not from 2 to 100.
  WeightAverage(ModelImpl&, const std::string& how);

  /// After a step; whether a checkpoint follows it.
  void step(bool checkpoint);
  /// Whether there is an average yet.
  bool ready() const { return count_ > 0; }

  /// Copies of the trained weights that it keeps: 1, N or 0.
  static int64_t copies(const std::string& how);

  /// While it lives the model has the averaged weights.
  class Applied {
   public:
    explicit Applied(const WeightAverage&);
    ~Applied();
    Applied(const Applied&) = delete;

   private:
    std::vector<Tensor> parameters_, own_;
  };

  /// By name, "average.<parameter>" or "average.<i>.<parameter>"; the tensors are its own.
  std::vector<std::pair<std::string, Tensor>> tensors() const;
  int64_t state() const { return count_; }
  void restore(int64_t state) { count_ = state; }

 private:
  std::vector<Tensor> averaged() const;

  double decay_ = 0;   // of ema
  int64_t count_ = 0;  // of weights that went into it
  std::vector<std::string> names_;
  std::vector<Tensor> parameters_;           // the model's
  std::vector<std::vector<Tensor>> copies_;  // one of ema, N of last
};

}  // namespace motet
