#include "motet/train/loss.h"

#include "motet/ops/ops.h"

namespace motet {
namespace {

Tensor times(const Tensor& x, double factor) { return factor == 1 ? x : x * factor; }

// The mean over the targets.
TrainingLoss loss_of(const Tensor& logits_BTV, const Tensor& targets_BT, const TrainOptions& train, double factor) {
  if (train.label_smoothing == 0 && train.z_loss == 0) {
    const Tensor loss = ops::token_loss(logits_BTV, targets_BT);
    return {times(loss, factor), loss.detach()};
  }
  const Tensor wide = logits_BTV.to(at::promote_types(logits_BTV.scalar_type(), at::kFloat));
  const Tensor sum_BT = wide.logsumexp(-1);
  const Tensor own = (sum_BT - wide.gather(-1, targets_BT.unsqueeze(-1)).squeeze(-1)).mean();
  Tensor objective = own;
  if (const double s = train.label_smoothing; s > 0) objective = own * (1 - s) + (sum_BT - wide.mean(-1)).mean() * s;
  if (train.z_loss > 0) objective = objective + sum_BT.square().mean() * train.z_loss;
  return {times(objective, factor), own.detach()};
}

struct Parts {
  ModelImpl* model;
  const TrainOptions* train;  // of which loss_rows
  double factor;
};

// The loss of what the output matrix reads [1,N,E] and its gradients, `loss_rows` of N at a time. The factor is in the
// gradients of the logits already, which may be float16.
class LossInParts : public torch::autograd::Function<LossInParts> {
 public:
  // Weight and bias are operands so that their gradients have a place in the graph.
  static std::vector<Tensor> forward(torch::autograd::AutogradContext* context, const Tensor& hidden_1NE,
                                     const Tensor& weight_VE, const std::optional<Tensor>& bias_V,
                                     const Tensor& targets_1N, const Parts& parts) {
    const at::AutoGradMode with_gradients(true);
    const int64_t count = hidden_1NE.size(1);
    std::vector<Tensor> dhidden;
    Tensor dweight, dbias, objective, cross_entropy;
    const auto add = [](Tensor& sum, const Tensor& part) { sum = sum.defined() ? sum.add_(part) : part; };
    for (int64_t at = 0; at < count; at += parts.train->loss_rows) {
      const int64_t end = std::min(at + parts.train->loss_rows, count);
      const Tensor own = hidden_1NE.slice(1, at, end).detach().requires_grad_();
      const double share = static_cast<double>(end - at) / static_cast<double>(count);
      const TrainingLoss part =
          loss_of(parts.model->decoded(own), targets_1N.slice(1, at, end), *parts.train, share * parts.factor);
      std::vector<Tensor> wanted{own};
      if (weight_VE.requires_grad()) wanted.push_back(weight_VE);
      if (bias_V && bias_V->requires_grad()) wanted.push_back(*bias_V);
      const auto gradients = torch::autograd::grad({part.objective}, wanted);
      dhidden.push_back(gradients[0]);
      if (weight_VE.requires_grad()) add(dweight, gradients[1]);
      if (bias_V && bias_V->requires_grad()) add(dbias, gradients.back());
      add(objective, part.objective.detach()), add(cross_entropy, part.cross_entropy * share);
    }
    context->save_for_backward({at::cat(dhidden, 1), dweight, dbias});
    context->mark_non_differentiable({cross_entropy});
    return {objective, cross_entropy};
  }

  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const auto saved = context->get_saved_variables();
    const auto times = [&](const Tensor& own) { return own.defined() ? own * gradients[0] : Tensor(); };
    return {times(saved[0]), times(saved[1]), times(saved[2]), Tensor(), Tensor()};
  }
};

}  // namespace

TrainingLoss training_loss(ModelImpl& model, const TokenTensors& tokens, const TrainOptions& train,
                           const Dropout& dropout, double factor) {
  Positions at = ModelImpl::positions(tokens.inputs, tokens.documents);
  if (tokens.starts.defined()) at.at = at.at + tokens.starts;
  Tensor hidden = model.hidden(tokens.inputs, at, dropout);
  Tensor targets = tokens.targets;
  if (tokens.asked.defined()) {  // logits where they are asked for, nowhere else
    hidden = hidden.flatten(0, 1).index_select(0, tokens.asked).unsqueeze(0);
    targets = targets.flatten().index_select(0, tokens.asked).unsqueeze(0);
  }
  hidden = model.before_decoding(hidden);
  if (train.loss_rows == 0) return loss_of(model.decoded(hidden), targets, train, factor);
  const Tensor bias = model.output_bias();
  const auto made = LossInParts::apply(hidden.flatten(0, 1).unsqueeze(0), model.output_weight(),
                                       bias.defined() ? std::optional(bias) : std::nullopt,
                                       targets.flatten().unsqueeze(0), Parts{&model, &train, factor});
  return {made[0], made[1]};
}

}  // namespace motet
