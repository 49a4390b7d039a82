#include "motet/models/model.h"

#include <cmath>

#include "motet/core/error.h"

namespace motet {
namespace {

// The trunk carries the names `model.*` of the published layout.
class Trunk : public torch::nn::Module {};

void fill(Tensor weight, const std::string& kind, double range, int64_t num_layers, bool output, at::Generator random) {
  const double out = static_cast<double>(weight.size(0)), in = static_cast<double>(weight.size(1));
  if (kind == "normal") weight.normal_(0, range, random);
  if (kind == "kaiming") weight.uniform_(-1 / std::sqrt(in), 1 / std::sqrt(in), random);  // torch's own default
  if (kind == "xavier") weight.uniform_(-std::sqrt(6 / (in + out)), std::sqrt(6 / (in + out)), random);
  if (kind == "pythia")
    weight.normal_(0, output ? 2 / (static_cast<double>(num_layers) * std::sqrt(out)) : std::sqrt(2 / (5 * in)),
                   random);
}

bool is_output_projection(const std::string& name) { return name.ends_with("o_proj") || name.ends_with("down_proj"); }

Positions positions_of(const Tensor& ids, const Tensor& documents) {
  return documents.defined() ? Positions::packed(documents)
                             : Positions::range(0, ids.size(1), ids.size(1), ids.device());
}

}  // namespace

ModelImpl::ModelImpl(ModelConfig config) : config_(std::move(config)) {
  const int64_t width = config_.hidden_size();
  auto trunk = register_module("model", std::make_shared<Trunk>());
  embed_tokens = trunk->register_module("embed_tokens", Linear(width, config_.vocab_size, false));
  auto layers = trunk->register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config_.num_layers(); ++i) {
    blocks_.emplace_back(Block(config_, i));
    layers->push_back(blocks_.back());
  }
  norm = trunk->register_module("norm", Norm(width, config_.gated() ? NormKind::rms : NormKind::layer,
                                             config_.options.at("norm_eps").get<double>()));
  if (!config_.options.at("tie_embeddings").get<bool>())
    lm_head = register_module("lm_head", Linear(width, config_.vocab_size, false));
}

void ModelImpl::initialize(uint64_t seed) {
  at::NoGradGuard no_grad;
  at::Generator random = at::detail::createCPUGenerator(seed);
  const std::string kind = config_.options.at("initializer").get<std::string>();
  const double range = config_.options.at("initializer_range").get<double>();
  embed_tokens->weight.normal_(0, range, random);
  for (const auto& item : named_modules()) {
    auto* linear = item.value()->as<LinearImpl>();
    if (!linear || linear == embed_tokens.get()) continue;
    fill(linear->weight, kind, range, config_.num_layers(), is_output_projection(item.key()), random);
    if (linear->bias.defined()) linear->bias.zero_();
  }
  for (const Block& block : blocks_) block->self_attn->initialize_extras(random);
}

Tensor ModelImpl::embedded(const Tensor& ids) const {
  if (ids.size(1) > config_.context)
    fail_usage("the input has ", ids.size(1), " tokens, want at most the model's context of ", config_.context);
  return embed_tokens->rows(ids);
}

Tensor ModelImpl::hidden(const Tensor& ids, int64_t length) {
  const int64_t tokens = ids.size(1);
  if (length > 0 && tokens > length)
    fail_usage("hidden: length is ", length, ", want at least the ", tokens, " tokens");
  return hidden(ids, Positions::range(0, tokens, length > 0 ? length : tokens, ids.device()));
}

Tensor ModelImpl::hidden(const Tensor& ids, const Positions& at) {
  Tensor x = embedded(ids);
  for (Block& block : blocks_) x = block->forward(x, at);
  return norm(x);
}

std::vector<Tensor> ModelImpl::states(const Tensor& ids, const Positions& at) {
  std::vector<Tensor> all{embedded(ids)};
  for (Block& block : blocks_) all.push_back(block->forward(all.back(), at));
  return all;
}

Tensor ModelImpl::logits(const Tensor& hidden) { return lm_head ? lm_head(hidden) : embed_tokens->forward(hidden); }

Tensor ModelImpl::forward(const Tensor& ids, const Tensor& documents) {
  return logits(hidden(ids, positions_of(ids, documents)));
}

void ModelImpl::keep_weights(WeightType type) {
  std::vector<LinearImpl*> matrices;  // in the order in which a token reads them
  for (const auto& item : named_modules())
    if (auto* linear = item.value()->as<LinearImpl>()) matrices.push_back(linear);
  int64_t bytes = 0;
  for (const LinearImpl* matrix : matrices) bytes += matrix->bytes_as(type);
  WeightArena arena(bytes);
  for (LinearImpl* matrix : matrices) matrix->keep_as(type, arena);
}

std::vector<Tensor> ModelImpl::attention_inputs(const Tensor& ids) {
  std::vector<Tensor> inputs;
  Tensor x = embedded(ids);
  const Positions at = Positions::range(0, ids.size(1), ids.size(1), ids.device());
  for (Block& block : blocks_) {
    inputs.push_back(block->input_layernorm(x));
    x = block->forward(x, at);
  }
  return inputs;
}

std::string ModelImpl::first_non_finite(const Tensor& ids, const Tensor& documents) {
  at::NoGradGuard no_grad;
  const auto finite = [](const Tensor& t) { return t.isfinite().all().item<bool>(); };
  Tensor x = embedded(ids);
  if (!finite(x)) return "the embedding";
  const Positions at = positions_of(ids, documents);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x = blocks_[i]->forward(x, at);
    if (!finite(x)) return text("layer ", i);
  }
  return finite(logits(norm(x))) ? "" : "the output";
}

int64_t ModelImpl::num_parameters() const {
  int64_t count = 0;
  for (const Tensor& p : parameters()) count += p.numel();
  return count;
}

Tensor token_loss(const Tensor& logits_BTV, const Tensor& targets_BT) {
  return at::cross_entropy_loss(logits_BTV.flatten(0, 1).to(at::promote_types(logits_BTV.scalar_type(), at::kFloat)),
                                targets_BT.flatten());
}

}  // namespace motet
