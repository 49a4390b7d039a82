#include "motet/models/cost.h"

namespace motet {
namespace {

// Multiply-adds of one mix at one place of the T x S plane.
double mix_work(const StaticMix& fixed, const Tensor& qdown, const Tensor& qup, const Tensor& qgate,
                const Tensor& qfull, const KeyMix& key) {
  const auto last = [](const Tensor& t, int64_t axes) {
    double n = t.defined() ? 1 : 0;
    for (int64_t i = 1; t.defined() && i <= axes; ++i) n *= static_cast<double>(t.size(-i));
    return n;
  };
  return last(fixed.weight_HH, 2) + last(qdown, 2) + last(qup, 2) + last(qgate, 1) + last(qfull, 2) +
         last(key.down_BSRH, 2) + last(key.up_BSRH, 2) + last(key.gate_BSH, 1) + last(key.full_BSHH, 2);
}

double pair_work(const Queries& q, const Keys& k, const Attention& a) {
  const Attended one = composed_attention(q, k, a);
  const double scores = static_cast<double>(q.q_BTHD.size(2) * q.q_BTHD.size(3));
  const double outputs = static_cast<double>(one.out_BTHE.size(2) * one.out_BTHE.size(3));
  const double pairs = q.lambda.defined() ? static_cast<double>(one.out_BTHE.size(2)) : 0;
  return scores + outputs + pairs +
         mix_work(a.pre, q.pre.down_BTRH, q.pre.up_BTRH, q.pre.gate_BTH, q.pre.full_BTHH, k.pre) +
         mix_work(a.post, q.post.down_BTRH, q.post.up_BTRH, q.post.gate_BTH, q.post.full_BTHH, k.post);
}

int64_t stored_elements(const Keys& k) {
  int64_t n = 0;
  for_each_tensor(k, [&](const Tensor& t) { n += t.defined() ? t.numel() : 0; });
  return n;
}

// Keys that a query sees, averaged over a context of T tokens.
double mean_visible(const Visibility& v, int64_t length) {
  const double T = static_cast<double>(length),
               w = v.window > 0 ? std::min<double>(static_cast<double>(v.window), T) : T;
  return v.causal ? (w * (w + 1) / 2 + (T - w) * w) / T : T;
}

}  // namespace

std::string model_part(const std::string& name) {
  if (name.find(".embed_") != std::string::npos) return "embedding";
  if (name.find("lm_head") != std::string::npos || name.starts_with("masked_head.")) return "output";
  if (name.find("self_attn") != std::string::npos) return "attention";
  if (name.find("mlp") != std::string::npos) return "feed-forward";
  return "norms";
}

ModelCost model_cost(ModelImpl& model) {
  at::NoGradGuard no_grad;
  ModelCost cost;
  const ModelConfig& c = model.config();
  double work = 0, output = 0;  // multiply-adds of one token: a matrix element once; vectors are not worth counting
  for (const auto& item : model.named_parameters()) {
    const Tensor& p = item.value();
    cost.parameters += p.numel();
    cost.parts[model_part(item.key())] += p.numel();
    const bool layered = item.key().starts_with("model.layers.");
    const int64_t times = layered ? c.num_layers() / c.num_blocks() : 1;  // shared layers are used again
    if (p.dim() < 2 || Embedding::is_table(item.key())) continue;
    (model_part(item.key()) == "output" ? output : work) += static_cast<double>(times * p.numel());
  }
  if (c.options.tie_embeddings) output += static_cast<double>(c.vocab_size * c.embedding_width());
  const Positions at = Positions::range(0, 1, 1, model.device());
  const Tensor x = at::zeros({1, 1, c.hidden_size()}, at::TensorOptions(model.dtype()).device(model.device()));
  for (const Block& block : model.blocks()) {
    const Queries q = block->self_attn->queries(x, at);
    const Keys k = block->self_attn->keys(x, at);
    const Attention a = block->self_attn->attention(at, at, Pass::whole);
    work += pair_work(q, k, a) * mean_visible(a.visibility, c.context);
    cost.cache_bytes_per_token += stored_elements(k) * 4;
  }
  cost.flops_per_token = 2 * (work + output), cost.output_flops_per_token = 2 * output;
  return cost;
}

}  // namespace motet
