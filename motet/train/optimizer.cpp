#include "motet/train/optimizer.h"

namespace motet {

AdamW::AdamW(ModelImpl& model, AdamWOptions options)
    : AdamW(model, options, [&](const std::string& name, const Tensor& p) { return model.decays(name, p); }) {}

AdamW::AdamW(ModelImpl& model, AdamWOptions options, const Decays& decays)
    : options_(options), groups_{{options.weight_decay, {}, {}, {}, {}}, {0, {}, {}, {}, {}}} {
  model.train();
  for (const auto& item : model.named_parameters()) {
    const Tensor& p = item.value();
    Group& group = groups_[decays(item.key(), p) ? 0 : 1];
    group.parameters.push_back(p);
    group.first.push_back(at::zeros_like(p));
    group.second.push_back(at::zeros_like(p));
    group.steps.push_back(at::zeros({}, p.options().dtype(at::kFloat)));
  }
}

void AdamW::step(double learning_rate) {
  at::NoGradGuard no_grad;
  for (Group& group : groups_) {
    std::vector<Tensor> parameters, gradients, first, second, steps;
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      if (!group.parameters[i].grad().defined()) continue;
      parameters.push_back(group.parameters[i]);
      gradients.push_back(group.parameters[i].grad());
      first.push_back(group.first[i]);
      second.push_back(group.second[i]);
      steps.push_back(group.steps[i].add_(1));
    }
    if (parameters.empty()) continue;
    at::_fused_adamw_(parameters, gradients, first, second, {}, steps, learning_rate, options_.beta1, options_.beta2,
                      group.weight_decay, options_.epsilon, false, false);
  }
}

void AdamW::zero_grad() {
  for (Group& group : groups_)
    for (Tensor& p : group.parameters) p.mutable_grad() = Tensor();
}

std::vector<Tensor> AdamW::gradients() const {
  std::vector<Tensor> all;
  for (const Group& group : groups_)
    for (const Tensor& p : group.parameters)
      if (p.grad().defined()) all.push_back(p.grad());
  return all;
}

Tensor AdamW::gradient_norm() const {
  at::NoGradGuard no_grad;
  const std::vector<Tensor> all = gradients();
  return all.empty() ? at::zeros({}) : at::linalg_vector_norm(at::stack(at::_foreach_norm(all)));
}

void AdamW::clip(double limit, double norm) {
  at::NoGradGuard no_grad;
  if (limit > 0 && norm > limit) at::_foreach_mul_(gradients(), limit / (norm + 1e-6));
}

}  // namespace motet
