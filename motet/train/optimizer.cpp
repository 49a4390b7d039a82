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

// As torch.optim counts beside its fused kernels, which leave the count alone.
void count_step(const std::vector<Tensor>& steps, const std::optional<Tensor>& left_out) {
  if (left_out)
    at::_foreach_add_(steps, 1 - *left_out);
  else
    at::_foreach_add_(steps, 1);
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
  static const Rule adamw{{"exp_avg", "exp_avg_sq", "step"},
                          [](const OptimizerOptions& o, Group& g, double factor, const LeftOut& left_out) {
                            count_step(g.state[2], left_out);
                            at::_fused_adamw_(g.values(), g.gradients(), g.state[0], g.state[1], {}, g.state[2],
                                              factor * o.learning_rate, o.beta1, o.beta2, g.weight_decay, o.epsilon,
                                              false, false, {}, left_out);
                          }};
  static const Rule adam{adamw.state, [](const OptimizerOptions& o, Group& g, double factor, const LeftOut& left_out) {
                           count_step(g.state[2], left_out);
                           at::_fused_adam_(g.values(), g.gradients(), g.state[0], g.state[1], {}, g.state[2],
                                            factor * o.learning_rate, o.beta1, o.beta2, g.weight_decay, o.epsilon,
                                            false, false, {}, left_out);
                         }};
  static const Rule sgd{{"momentum_buffer"},
                        [](const OptimizerOptions& o, Group& g, double factor, const LeftOut& left_out) {
                          // Without momentum torch wants no buffers; ours stay 0.
                          const auto buffers = o.momentum > 0 ? g.state[0] : std::vector<Tensor>();
                          at::_fused_sgd_(g.values(), g.gradients(), buffers, g.weight_decay, o.momentum,
                                          factor * o.learning_rate, 0, false, false, false, {}, left_out);
                        }};
  static const Rule muon{{"momentum_buffer"}, [](const OptimizerOptions& o, Group& g, double factor, const LeftOut&) {
                           const double rate = factor * o.muon_learning_rate;
                           for (size_t i = 0; i < g.shards.size(); ++i) {
                             const Tensor p = g.shards[i].values(), gradient = g.shards[i].gradient();
                             g.state[0][i].lerp_(gradient, 1 - o.momentum);
                             const Tensor update = orthogonal(gradient.lerp(g.state[0][i], o.momentum));
                             const double shape = static_cast<double>(p.size(0)) / static_cast<double>(p.size(1));
                             p.mul_(1 - rate * g.weight_decay).add_(update, -rate * std::sqrt(std::max(1.0, shape)));
                           }
                         }};
  const Rule* const rules[] = {&adamw, &adam, &sgd, &muon};  // in the order of OptimizerKind
  return *rules[static_cast<size_t>(kind)];
}

Optimizer::Optimizer(ModelImpl& model, OptimizerOptions options)
    : Optimizer(model, options, [&](const std::string& name, const Tensor& p) { return model.decays(name, p); }) {}

Optimizer::Optimizer(ModelImpl& model, OptimizerOptions options, const Decays& decays, const Processes* processes)
    : options_(options), processes_(processes && !processes->alone() ? processes : nullptr) {
  model.train();
  const bool has_muon = options.kind == OptimizerKind::muon;
  const Rule& rule = rule_of(has_muon ? OptimizerKind::adamw : options.kind);
  groups_ = {{.rule = &rule, .weight_decay = options.weight_decay}, {.rule = &rule, .weight_decay = 0}};
  if (has_muon) groups_.push_back({.rule = &rule_of(OptimizerKind::muon), .weight_decay = options.weight_decay});
  for (const auto& item : model.named_parameters()) {
    const Tensor& p = item.value();
    if (!p.requires_grad()) continue;
    const bool decaying = decays(item.key(), p),
               matrix = has_muon && decaying && p.dim() == 2 && item.key().starts_with("model.layers.");
    groups_[matrix ? 2 : decaying ? 0 : 1].shards.push_back({item.key(), p, 0, p.numel()});
    parameters_.push_back(p);
  }
  for (Group& group : groups_) {
    if (processes_) {
      const auto shards_of = &group - groups_.data() == 2 ? whole_shards : flat_shards;
      group.everyones = shards_of(group.shards, processes_->size());
      group.shards = group.everyones[static_cast<size_t>(processes_->rank())];
    }
    for (const std::string_view name : group.rule->state) {
      group.state.emplace_back();
      for (const Shard& shard : group.shards)
        group.state.back().push_back(
            name == "step" ? at::zeros({}, shard.parameter.options().dtype(at::kFloat).requires_grad(false))
                           : at::zeros_like(shard.values()));
    }
  }
}

Optimizer::Group Optimizer::Group::with_gradients() const {
  Group part{.rule = rule, .weight_decay = weight_decay, .state = std::vector<std::vector<Tensor>>(state.size())};
  for (size_t i = 0; i < shards.size(); ++i) {
    if (!shards[i].parameter.grad().defined()) continue;
    part.shards.push_back(shards[i]);
    for (size_t k = 0; k < state.size(); ++k) part.state[k].push_back(state[k][i]);
  }
  return part;
}

Optimizer::Group Optimizer::Group::only(size_t shard) const {
  Group one{.rule = rule, .weight_decay = weight_decay, .shards = {shards[shard]}};
  for (const std::vector<Tensor>& all : state) one.state.push_back({all[shard]});
  return one;
}

std::vector<Tensor> Optimizer::Group::values() const {
  std::vector<Tensor> all;
  for (const Shard& shard : shards) all.push_back(shard.values());
  return all;
}

std::vector<Tensor> Optimizer::Group::gradients() const {
  std::vector<Tensor> all;
  for (const Shard& shard : shards) all.push_back(shard.gradient());
  return all;
}

void Optimizer::share_parameters(const Group& group) const {
  if (!processes_) return;
  std::vector<std::vector<Tensor>> everyones;
  for (const Shards& shards : group.everyones) {
    everyones.emplace_back();
    for (const Shard& shard : shards) everyones.back().push_back(shard.values());
  }
  share(*processes_, group.everyones, group.values(), everyones);
}

void Optimizer::step(double factor, const LeftOut& left_out) {
  at::NoGradGuard no_grad;
  for (const Group& group : groups_) {
    if (Group part = group.with_gradients(); !part.shards.empty()) part.rule->step(options_, part, factor, left_out);
    share_parameters(group);
  }
}

std::map<std::string, double> Optimizer::measured_step(double factor) {
  at::NoGradGuard no_grad;
  std::map<std::string, std::pair<Tensor, Tensor>> squares;  // of the changes and of the weights
  for (const Group& group : groups_) {
    for (size_t i = 0; i < group.shards.size(); ++i) {
      const Tensor values = group.shards[i].values(), before = values.clone();
      Group one = group.only(i);
      if (group.shards[i].parameter.grad().defined()) one.rule->step(options_, one, factor, {});
      const auto square = [](const Tensor& t) { return at::linalg_vector_norm(t).to(at::kDouble).square(); };
      const Tensor change = square(values - before), weight = square(before);
      const auto [sums, is_new] = squares.try_emplace(model_part(group.shards[i].name), change, weight);
      if (!is_new) sums->second = {sums->second.first + change, sums->second.second + weight};
    }
    share_parameters(group);
  }
  nlohmann::json own = nlohmann::json::object();
  for (const auto& [part, sums] : squares) own[part] = {sums.first.item<double>(), sums.second.item<double>()};
  std::map<std::string, std::pair<double, double>> all;
  for (const auto& of : processes_ ? processes_->everyones(own) : std::vector{own})
    for (const auto& [part, sums] : of.items())
      all[part].first += sums[0].get<double>(), all[part].second += sums[1].get<double>();
  std::map<std::string, double> ratios;
  for (const auto& [part, sums] : all)
    if (sums.second > 0) ratios[part] = std::sqrt(sums.first / sums.second);
  return ratios;
}

void Optimizer::zero_grad() {
  for (Tensor& p : parameters_) p.mutable_grad() = Tensor();
}

std::vector<Tensor> Optimizer::gradients() const {
  std::vector<Tensor> all;
  for (const Tensor& p : parameters_)
    if (p.grad().defined()) all.push_back(p.grad());
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

void Optimizer::clip_and_step(double factor, double limit, const Tensor& norm, const Tensor& loss) {
  at::NoGradGuard no_grad;
  const std::vector<Tensor> all = gradients();
  const Tensor wide = norm.to(at::kDouble), finite = norm.isfinite().logical_and(loss.isfinite());
  // Gradients that are not finite stay as they are, so that the first of them can be named.
  const Tensor scale = at::where(finite, (limit / (wide + 1e-6)).clamp_max(1), 1.0);
  if (limit > 0 && !all.empty()) at::_foreach_mul_(all, scale.to(all[0].scalar_type()));
  step(factor, finite.logical_not().to(at::kFloat));
}

// Of a shared state each process has its part, the first one all of them for the moment.
void Optimizer::add_state(const Group& group, size_t number, std::vector<std::pair<std::string, Tensor>>& all) const {
  const std::string_view name = group.rule->state[number];
  std::map<std::string, Tensor> whole;  // by parameter
  std::vector<std::vector<Tensor>> everyones;
  if (name == "step") {
    nlohmann::json own = nlohmann::json::object();
    for (size_t i = 0; i < group.shards.size(); ++i) own[group.shards[i].name] = group.state[number][i].item<double>();
    for (const auto& of : processes_->everyones(own))
      for (const auto& [parameter, step] : of.items())
        whole[parameter] = at::scalar_tensor(step.get<double>(), at::kFloat);
  } else {
    for (const Shards& shards : group.everyones) {
      everyones.emplace_back();
      for (const Shard& shard : shards) {
        Tensor& place = whole.try_emplace(shard.name, at::zeros_like(shard.parameter.detach())).first->second;
        everyones.back().push_back(shard.of(place));
      }
    }
    share(*processes_, group.everyones, group.state[number], processes_->first() ? everyones : decltype(everyones)());
  }
  for (const auto& [parameter, tensor] : whole) all.emplace_back(text(name, ".", parameter), tensor);
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state() const {
  at::NoGradGuard no_grad;
  std::vector<std::pair<std::string, Tensor>> all;
  for (const Group& group : groups_)
    for (size_t k = 0; k < group.state.size(); ++k) {
      if (processes_) {
        add_state(group, k, all);
        continue;
      }
      for (size_t i = 0; i < group.shards.size(); ++i)
        all.emplace_back(text(group.rule->state[k], ".", group.shards[i].name), group.state[k][i]);
    }
  return all;
}

void Optimizer::take(const std::vector<std::pair<std::string, Tensor>>& state) {
  if (!processes_) return;
  const std::map<std::string, Tensor> all(state.begin(), state.end());
  at::NoGradGuard no_grad;
  for (Group& group : groups_)
    for (size_t k = 0; k < group.state.size(); ++k)
      for (size_t i = 0; i < group.shards.size(); ++i) {
        const Tensor& whole = all.at(text(group.rule->state[k], ".", group.shards[i].name));
        group.state[k][i].copy_(whole.dim() == 0 ? whole : group.shards[i].of(whole));
      }
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (const Group& group : groups_)
    for (const auto& all : group.state)
      for (const Tensor& tensor : all) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace motet
