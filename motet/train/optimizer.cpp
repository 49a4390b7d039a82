#include "motet/train/optimizer.h"

#include <cmath>

#include "motet/models/cost.h"

namespace motet {
namespace {

// The nearest matrix whose singular values are about 1, by five steps of Newton and Schulz in bfloat16.
Tensor orthogonal(const Tensor& x) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315, kEpsilon = 1e-7;
  const bool tall = x.size(0) > x.size(1);
  Tensor y = x.to(at::kBFloat16);
  if (tall) y = y.t();
  y = y / y.norm().clamp_min(kEpsilon);
  for (int i = 0; i < 5; ++i) {
    const Tensor gram = y.matmul(y.t());
    y = at::addmm(y, at::addmm(gram, gram, gram, b, c), y, a);
  }
  return tall ? y.t() : y;
}

}  // namespace

OptimizerOptions optimizer_options(const TrainOptions& train) {
  return {.kind = train.optimizer,
          .beta1 = train.beta1,
          .beta2 = train.beta2,
          .epsilon = train.epsilon,
          .weight_decay = train.weight_decay,
          .momentum = train.momentum,
          .learning_rate = train.learning_rate,
          .muon_learning_rate = train.muon_learning_rate};
}

const Optimizer::Rule& Optimizer::rule_of(OptimizerKind kind) {
  static const Rule adamw{{"exp_avg", "exp_avg_sq", "step"}, [](const OptimizerOptions& o, Group& g, double factor) {
                            at::_foreach_add_(g.state[2], 1);
                            at::_fused_adamw_(g.parameters, g.gradients(), g.state[0], g.state[1], {}, g.state[2],
                                              factor * o.learning_rate, o.beta1, o.beta2, g.weight_decay, o.epsilon,
                                              false, false);
                          }};
  static const Rule adam{adamw.state, [](const OptimizerOptions& o, Group& g, double factor) {
                           at::_foreach_add_(g.state[2], 1);
                           at::_fused_adam_(g.parameters, g.gradients(), g.state[0], g.state[1], {}, g.state[2],
                                            factor * o.learning_rate, o.beta1, o.beta2, g.weight_decay, o.epsilon,
                                            false, false);
                         }};
  static const Rule sgd{{"momentum_buffer"}, [](const OptimizerOptions& o, Group& g, double factor) {
                          at::_fused_sgd_(g.parameters, g.gradients(), g.state[0], g.weight_decay, o.momentum,
                                          factor * o.learning_rate, 0, false, false, false);
                        }};
  static const Rule muon{{"momentum_buffer"}, [](const OptimizerOptions& o, Group& g, double factor) {
                           const double rate = factor * o.muon_learning_rate;
                           for (size_t i = 0; i < g.parameters.size(); ++i) {
                             Tensor &p = g.parameters[i], &buffer = g.state[0][i];
                             buffer.lerp_(p.grad(), 1 - o.momentum);
                             const Tensor update = orthogonal(p.grad().lerp(buffer, o.momentum));
                             const double shape = static_cast<double>(p.size(0)) / static_cast<double>(p.size(1));
                             p.mul_(1 - rate * g.weight_decay).add_(update, -rate * std::sqrt(std::max(1.0, shape)));
                           }
                         }};
  const Rule* const rules[] = {&adamw, &adam, &sgd, &muon};  // in the order of OptimizerKind
  return *rules[static_cast<size_t>(kind)];
}

Optimizer::Optimizer(ModelImpl& model, OptimizerOptions options)
    : Optimizer(model, options, [&](const std::string& name, const Tensor& p) { return model.decays(name, p); }) {}

Optimizer::Optimizer(ModelImpl& model, OptimizerOptions options, const Decays& decays) : options_(options) {
  model.train();
  const bool has_muon = options.kind == OptimizerKind::muon;
  const Rule& rule = rule_of(has_muon ? OptimizerKind::adamw : options.kind);
  groups_ = {{&rule, options.weight_decay, {}, {}, {}}, {&rule, 0, {}, {}, {}}};
  if (has_muon) groups_.push_back({&rule_of(OptimizerKind::muon), options.weight_decay, {}, {}, {}});
  for (Group& group : groups_) group.state.resize(group.rule->state.size());
  for (const auto& item : model.named_parameters()) {
    const Tensor& p = item.value();
    if (!p.requires_grad()) continue;
    const bool decaying = decays(item.key(), p),
               matrix = has_muon && decaying && p.dim() == 2 && item.key().starts_with("model.layers.");
    Group& group = groups_[matrix ? 2 : decaying ? 0 : 1];
    group.names.push_back(item.key());
    group.parameters.push_back(p);
    for (size_t i = 0; i < group.state.size(); ++i)
      group.state[i].push_back(std::string_view(group.rule->state[i]) == "step"
                                   ? at::zeros({}, p.options().dtype(at::kFloat).requires_grad(false))
                                   : at::zeros_like(p).requires_grad_(false));
  }
}

Optimizer::Group Optimizer::Group::with_gradients() const {
  Group part{rule, weight_decay, {}, {}, std::vector<std::vector<Tensor>>(state.size())};
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].grad().defined()) continue;
    part.parameters.push_back(parameters[i]);
    for (size_t k = 0; k < state.size(); ++k) part.state[k].push_back(state[k][i]);
  }
  return part;
}

std::vector<Tensor> Optimizer::Group::gradients() const {
  std::vector<Tensor> all;
  for (const Tensor& p : parameters)
    if (p.grad().defined()) all.push_back(p.grad());
  return all;
}

void Optimizer::step(double factor) {
  at::NoGradGuard no_grad;
  for (const Group& group : groups_)
    if (Group part = group.with_gradients(); !part.parameters.empty()) part.rule->step(options_, part, factor);
}

Optimizer::Group Optimizer::Group::only(size_t parameter) const {
  Group one{rule, weight_decay, {names[parameter]}, {parameters[parameter]}, {}};
  for (const std::vector<Tensor>& all : state) one.state.push_back({all[parameter]});
  return one;
}

std::map<std::string, double> Optimizer::measured_step(double factor) {
  at::NoGradGuard no_grad;
  std::map<std::string, std::pair<Tensor, Tensor>> squares;  // of the changes and of the weights
  for (const Group& group : groups_)
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const Tensor& p = group.parameters[i];
      const Tensor before = p.detach().clone();
      Group one = group.only(i);
      if (p.grad().defined()) one.rule->step(options_, one, factor);
      const auto square = [](const Tensor& t) { return at::linalg_vector_norm(t).to(at::kDouble).square(); };
      const Tensor change = square(p.detach() - before), weight = square(before);
      const auto [sums, is_new] = squares.try_emplace(model_part(group.names[i]), change, weight);
      if (!is_new) sums->second = {sums->second.first + change, sums->second.second + weight};
    }
  std::map<std::string, double> ratios;
  for (const auto& [part, sums] : squares)
    if (const double weight = sums.second.item<double>(); weight > 0)
      ratios[part] = std::sqrt(sums.first.item<double>() / weight);
  return ratios;
}

void Optimizer::zero_grad() {
  for (Group& group : groups_)
    for (Tensor& p : group.parameters) p.mutable_grad() = Tensor();
}

std::vector<Tensor> Optimizer::gradients() const {
  std::vector<Tensor> all;
  for (const Group& group : groups_)
    for (Tensor& g : group.gradients()) all.push_back(std::move(g));
  return all;
}

Tensor Optimizer::gradient_norm() const {
  at::NoGradGuard no_grad;
  const std::vector<Tensor> all = gradients();
  return all.empty() ? at::zeros({}) : at::linalg_vector_norm(at::stack(at::_foreach_norm(all)));
}

void Optimizer::clip(double limit, double norm) {
  at::NoGradGuard no_grad;
  if (limit > 0 && norm > limit) at::_foreach_mul_(gradients(), limit / (norm + 1e-6));
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const Group& group : groups_)
    for (size_t k = 0; k < group.state.size(); ++k)
      for (size_t i = 0; i < group.names.size(); ++i)
        all.emplace_back(text(group.rule->state[k], ".", group.names[i]), group.state[k][i]);
  return all;
}

}  // namespace motet
