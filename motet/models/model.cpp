#include "motet/models/model.h"

#include <torch/nn/modules/container/modulelist.h>

#include <cmath>

#include "motet/core/error.h"
#include "motet/models/recompute.h"

namespace motet {
namespace {

// The trunk carries the names `model.*` of the published layout.
class Trunk : public torch::nn::Module {};

bool is_output_projection(const std::string& name) { return name.ends_with("o_proj") || name.ends_with("down_proj"); }

void fill(const std::string& module, Tensor weight, const ModelConfig& config, const Streams& random) {
  const std::string name = module + ".weight";
  const double out = static_cast<double>(weight.size(0)), in = static_cast<double>(weight.size(1)),
               layers = static_cast<double>(config.num_layers());
  switch (config.options.initializer) {
    case Initializer::normal:
      return random.normal(name, weight, config.options.initializer_range);
    case Initializer::kaiming:  // torch's own default
      return random.uniform(name, weight, 1 / std::sqrt(in));
    case Initializer::xavier:
      return random.uniform(name, weight, std::sqrt(6 / (in + out)));
    case Initializer::pythia:
      return random.normal(name, weight,
                           is_output_projection(module) ? 2 / (layers * std::sqrt(out)) : std::sqrt(2 / (5 * in)));
  }
}

// What the parts keep for inference, on the CPU in one piece of memory.
void prepare_each(const ModelImpl& model, Prepared what, WeightType type) {
  std::vector<Preparable*> parts;  // in the order in which a token reads them
  for (const auto& module : model.modules())
    if (auto* part = dynamic_cast<Preparable*>(module.get())) parts.push_back(part);
  int64_t bytes = 0;
  for (Preparable* part : parts) bytes += part->prepared_bytes(type);
  WeightArena arena(bytes);
  for (Preparable* part : parts) part->prepare(what, type, arena);
}

}  // namespace

ModelImpl::ModelImpl(ModelConfig config, at::Device device) : config_(std::move(config)) {
  const int64_t width = config_.hidden_size();
  check_form(config_);
  auto trunk = register_module("model", std::make_shared<Trunk>());
  embedding_ = Embedding(config_, *trunk, device);
  auto layers = trunk->register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config_.num_blocks(); ++i) {
    blocks_.emplace_back(Block(config_, i, device));
    layers->push_back(blocks_.back());
  }
  const Block first = blocks_.front();
  blocks_.resize(static_cast<size_t>(config_.num_layers()), first);
  if (!config_.post_norm())
    norm = trunk->register_module("norm", Norm(width, config_.norm_kind(), config_.options.norm_eps, device));
  if (config_.masked_head()) masked_head = register_module("masked_head", MaskedHead(config_, device));
  if (!config_.options.tie_embeddings)
    lm_head = register_module("lm_head", Linear(config_.masked_head() ? config_.embedding_width() : width,
                                                config_.vocab_size, false, device));
}

void ModelImpl::set_precision(Precision precision, const std::string& what) {
  check_precision(precision, device(), config_.autocast.value_or(dtype() == at::kDouble ? at::kDouble : at::kFloat),
                  what);
  for (const Block& block : blocks_) block->self_attn->precision = precision;
  for (const auto& module : modules())
    if (auto* layer = module->as<LinearImpl>()) layer->precision = precision;
}

void ModelImpl::initialize(uint64_t seed) {
  at::NoGradGuard no_grad;
  const Streams random(seed);
  embedding_.initialize(random, config_.options.initializer_range);
  for (const auto& item : named_modules()) {
    auto* linear = item.value()->as<LinearImpl>();
    if (!linear || Embedding::is_table(item.key() + ".weight")) continue;
    fill(item.key(), linear->weight, config_, random);
    if (linear->bias.defined()) linear->bias.zero_();
  }
  if (masked_head) masked_head->bias.zero_();
  for (size_t i = 0; i < static_cast<size_t>(config_.num_blocks()); ++i)
    blocks_[i]->self_attn->initialize_extras(random.of(text("model.layers.", i, ".self_attn")));
}

bool ModelImpl::decays(const std::string& name, const Tensor& parameter) const {
  if (parameter.dim() < 2 || Embedding::is_table(name)) return false;
  static const std::string kLayer = "model.layers.", kAttention = ".self_attn.";
  const size_t at = name.find(kAttention);
  if (at == std::string::npos) return true;
  const auto& block = blocks_.at(std::stoul(name.substr(kLayer.size())));
  return block->self_attn->decays(name.substr(at + kAttention.size()));
}

Tensor ModelImpl::embedded(const Tensor& ids, const Positions& at, const Tensor& types) {
  if (ids.size(1) > config_.context)
    fail_usage("the input has ", ids.size(1), " tokens, want at most the model's context of ", config_.context);
  const AutocastScope scope(config_.autocast, device().type());
  return embedding_(ids, at, types);
}

Tensor ModelImpl::hidden(const Tensor& ids, int64_t length) {
  const int64_t tokens = ids.size(1);
  if (length > 0 && tokens > length)
    fail_usage("hidden: length is ", length, ", want at least the ", tokens, " tokens");
  return hidden(ids, Positions::range(0, tokens, length > 0 ? length : tokens, ids.device()));
}

Tensor ModelImpl::walk(Tensor x, const Attend& attend, const OnLayer& on_layer, const Dropout& dropout) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    const auto run = [this, block = blocks_[i].ptr(), layer, attend, own = dropout.at(i)](const Tensor& input) {
      const AutocastScope scope(config_.autocast, device().type());
      return block->after(input, attend(layer, *block, block->normed(input)), own);
    };
    x = recompute_ ? recomputed(x, run) : run(x);
    if (on_layer) on_layer(layer, x);
  }
  return x;
}

Tensor ModelImpl::walk(Tensor x, const Positions& at, const OnLayer& on_layer, const Dropout& dropout) {
  const auto attend = [at](int64_t, BlockImpl& block, const Tensor& normed) {
    return block.self_attn->forward(normed, at);
  };
  return walk(std::move(x), attend, on_layer, dropout);
}

Tensor ModelImpl::hidden(const Tensor& ids, const Positions& at, const Dropout& dropout, const Tensor& types) {
  const AutocastScope scope(config_.autocast, device().type());
  return normed(walk(embedded(ids, at, types), at, {}, dropout));
}

Positions ModelImpl::positions(const Tensor& ids, const Tensor& documents) {
  return documents.defined() ? Positions::packed(documents)
                             : Positions::range(0, ids.size(1), ids.size(1), ids.device());
}

std::vector<Tensor> ModelImpl::states(const Tensor& ids, const Positions& at) {
  std::vector<Tensor> all{embedded(ids, at)};
  walk(all[0], at, [&](int64_t, const Tensor& output) { all.push_back(output); });
  return all;
}

Tensor ModelImpl::before_decoding(const Tensor& hidden) {
  const AutocastScope scope(config_.autocast, device().type());
  return masked_head ? masked_head(hidden) : hidden;
}

Tensor ModelImpl::decoded(const Tensor& transformed) {
  const AutocastScope scope(config_.autocast, device().type());
  LinearLayer output = decoder()->operands();
  output.bias_N = output_bias();
  return ops::linear(transformed, output);
}

Tensor ModelImpl::logits(const Tensor& hidden) { return decoded(before_decoding(hidden)); }

Tensor ModelImpl::forward(const Tensor& ids, const Tensor& documents, const Tensor& types) {
  const AutocastScope scope(config_.autocast, device().type());
  return logits(hidden(ids, positions(ids, documents), {}, types));
}

void ModelImpl::prepare(WeightType type) { prepare_each(*this, Prepared::all, type); }

void ModelImpl::keep_matrices(WeightType type) { prepare_each(*this, Prepared::matrices, type); }

std::vector<Tensor> ModelImpl::attention_inputs(const Tensor& ids) {
  std::vector<Tensor> inputs;
  const Positions at = positions(ids, {});
  walk(embedded(ids, at), [&](int64_t, BlockImpl& block, const Tensor& normed) {
    inputs.push_back(normed);
    return block.self_attn->forward(normed, at);
  });
  return inputs;
}

std::string ModelImpl::first_non_finite(const Tensor& ids, const Tensor& documents) {
  at::NoGradGuard no_grad;
  const auto finite = [](const Tensor& t) { return t.isfinite().all().item<bool>(); };
  const Positions at = positions(ids, documents);
  const Tensor x = embedded(ids, at);
  if (!finite(x)) return "the embedding";
  std::string first;
  const Tensor last = walk(x, at, [&](int64_t layer, const Tensor& output) {
    if (first.empty() && !finite(output)) first = text("layer ", layer);
  });
  const AutocastScope scope(config_.autocast, device().type());
  return !first.empty() || finite(logits(normed(last))) ? first : "the output";
}

int64_t ModelImpl::mapped_bytes() const {
  int64_t bytes = 0;
  for (const auto& module : modules())
    if (const auto* linear = module->as<LinearImpl>()) bytes += linear->mapped_bytes();
  return bytes;
}

int64_t ModelImpl::num_parameters() const {
  int64_t count = 0;
  for (const Tensor& p : parameters()) count += p.numel();
  return count;
}

}  // namespace motet
