#pragma once
#include <functional>
#include <map>
#include <optional>

#include "motet/models/model.h"
#include "motet/train/options.h"
#include "motet/train/shards.h"

namespace motet {

/// Numbers by the names that torch.optim gives them.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  double momentum = 0.95;       // of sgd and muon, which is Nesterov's
  double learning_rate = 3e-3;  // peaks: step() scales them
  double muon_learning_rate = 0.02;
};
OptimizerOptions optimizer_options(const TrainOptions&);

/// AdamW (arXiv:1711.05101), Adam (arXiv:1412.6980), SGD with momentum, Muon (kellerjordan.github.io/posts/muon) for
/// the matrices inside the layers that decay, with AdamW for the rest; as torch.optim has them, by torch's fused
/// kernels where there is one. State has the parameters' dtype; frozen parameters have none.
class Optimizer {
 public:
  /// Which parameters decay, by name.
  using Decays = std::function<bool(const std::string& name, const Tensor& parameter)>;

  /// Decay as ModelImpl::decays says. The model begins to train: what was prepared for inference is dropped.
  Optimizer(ModelImpl&, OptimizerOptions);
  /// With `processes`, each keeps its part of the state and makes that part of a step, after which all have all
  /// parameters (ZeRO-1); they must outlive it, and all call the same functions. Null: the state is whole.
  Optimizer(ModelImpl&, OptimizerOptions, const Decays&, const Processes* processes = nullptr);
  /// One step at `factor` times the peak of each learning rate.
  void step(double factor = 1) { step(factor, std::nullopt); }
  /// clip() and step() where the device alone knows `norm` and whether it is a finite number, and so is `loss`: if not,
  /// nothing changes. Nobody waits for it. Not of muon.
  void clip_and_step(double factor, double limit, const Tensor& norm, const Tensor& loss);
  /// The same step, parameter by parameter with a copy of that one alone: by part of the model (models/cost.h) the norm
  /// of what the step changed, decay included, over the norm of the weights before it. A part of zeros has none.
  std::map<std::string, double> measured_step(double factor);
  void zero_grad();
  /// Those of all parameters that have one.
  std::vector<Tensor> gradients() const;
  /// The norm of all gradients together, a number on their device; 0 on the CPU without any.
  Tensor gradient_norm() const;
  /// Scales all gradients, whose norm is `norm`, so that it is at most `limit` (0: leaves them).
  void clip(double limit, double norm);

  /// What a step depends on beside parameters and gradients, by torch's name: "exp_avg.<parameter>",
  /// "exp_avg_sq.<parameter>", "step.<parameter>", "momentum_buffer.<parameter>". The tensors are the optimiser's own;
  /// of a shared state they are copies, and in other processes than the first their values are not there.
  std::vector<std::pair<std::string, Tensor>> state() const;
  /// Of such tensors, by which they were changed: what this process keeps of a shared state.
  void take(const std::vector<std::pair<std::string, Tensor>>& state);
  int64_t state_bytes() const;  // of this process

 private:
  struct Group;
  /// Where it is a number other than 0, a step changes nothing; float32 [], on the parameters' device.
  using LeftOut = std::optional<Tensor>;
  /// An optimiser's own numbers of a parameter, and its step for those of a group that have gradients.
  struct Rule {
    std::vector<const char*> state;
    void (*step)(const OptimizerOptions&, Group&, double factor, const LeftOut&);
  };
  static const Rule& rule_of(OptimizerKind);

  struct Group {
    const Rule* rule;
    double weight_decay;
    Shards shards;                           // this process's
    std::vector<Shards> everyones = {};      // by rank, where the state is shared
    std::vector<std::vector<Tensor>> state;  // by name of the rule, then by shard

    Group with_gradients() const;
    Group only(size_t shard) const;
    std::vector<Tensor> values() const;
    std::vector<Tensor> gradients() const;
  };
  void step(double factor, const LeftOut&);
  void share_parameters(const Group&) const;
  void add_state(const Group&, size_t number, std::vector<std::pair<std::string, Tensor>>& all) const;

  OptimizerOptions options_;
  const Processes* processes_;
  std::vector<Tensor> parameters_;  // all that learn
  std::vector<Group> groups_;
};

}  // namespace motet
