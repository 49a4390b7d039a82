#include "motet/mechanisms/projected.h"

#include <cmath>

#include "motet/core/error.h"
#include "motet/layers/token_by_token.h"

namespace motet {
namespace {

// |x|; at::abs and at::where have no meta kernel.
Tensor magnitude(const Tensor& x) { return at::maximum(x, -x); }

// T5's buckets: half of them for single distances, the rest growing with the logarithm up to kFarthest.
constexpr int64_t kBuckets = 32, kFarthest = 128;

Tensor bucket(const Tensor& distance_TS, bool causal) {
  const int64_t buckets = causal ? kBuckets : kBuckets / 2, exact = buckets / 2;
  const Tensor ahead = causal ? at::zeros_like(distance_TS) : (distance_TS < 0).to(at::kLong) * buckets;
  const Tensor d = causal ? distance_TS.clamp_min(0) : magnitude(distance_TS);
  const double step =
      static_cast<double>(buckets - exact) / std::log(static_cast<double>(kFarthest) / static_cast<double>(exact));
  const Tensor far = (exact + (d.clamp_min(1).to(at::kDouble) / static_cast<double>(exact)).log() * step)
                         .to(at::kLong)
                         .clamp_max(buckets - 1);
  const Tensor near = (d < exact).to(at::kLong);
  return ahead + near * d + (1 - near) * far;
}

// ALiBi's slopes for n heads, arXiv:2108.12409: 2^(-8 i / n); other counts take every second slope of the next power.
Tensor alibi_slopes(int64_t heads, at::Device device) {
  int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  const auto options = at::TensorOptions(at::kDouble).device(device);
  const double n = static_cast<double>(power);
  const Tensor own = at::exp2(at::arange(1, power + 1, options) * (-8 / n));
  if (heads == power) return own;
  return at::cat({own, at::exp2(at::arange(1, 2 * (heads - power), 2, options) * (-4 / n))});
}

}  // namespace

void refuse_option(const char* name, const std::string& what) { fail_usage("model.attention.", name, ": ", what); }

int64_t head_dim(const Setting& s) {
  const int64_t heads = s.options.common.num_heads, given = s.options.common.head_dim;
  if (given > 0) return given;
  if (s.hidden_size % heads)
    refuse_option("num_heads", text(heads, " heads do not divide hidden_size ", s.hidden_size,
                                    ", want a divisor or an explicit head_dim"));
  return s.hidden_size / heads;
}

int64_t num_kv_heads(const Setting& s) {
  const int64_t heads = s.options.common.num_heads, given = s.options.common.num_kv_heads;
  if (given == 0) return heads;
  if (heads % given)
    refuse_option("num_kv_heads", text(given, " does not divide num_heads ", heads, ", want a divisor"));
  return given;
}

const Words<std::optional<NormKind>>& head_norms() {
  static const Words<std::optional<NormKind>> all{
      {"affine", NormKind::rms}, {"plain", NormKind::rms_plain}, {"none", std::nullopt}};
  return all;
}

HeadSizes plain_sizes(const Setting& s) {
  const int64_t heads = s.options.common.num_heads, kv = num_kv_heads(s), dim = head_dim(s);
  return {.query_heads = heads,
          .softmax_heads = heads,
          .key_heads = kv,
          .value_heads = kv,
          .output_heads = heads,
          .key_dim = dim,
          .value_dim = dim};
}

Rotary rotary_of(const Setting& s, int64_t key_dim) {
  const AttentionOptions& a = s.options.common;
  RotaryOptions o{.dims = static_cast<int64_t>(static_cast<double>(key_dim) * a.rope_fraction),
                  .base = a.rope_base,
                  .pairing = a.rope_pairing,
                  .scaling = a.rope_scaling,
                  .factor = a.rope_factor,
                  .max_position = a.rope_trained_length > 0 ? a.rope_trained_length : s.max_position,
                  .low_freq_factor = a.rope_low_freq_factor,
                  .high_freq_factor = a.rope_high_freq_factor};
  if (a.rope_fraction < 1) o.dims -= o.dims % 2;  // a fraction of the head rounds down to whole pairs
  if (o.dims % 2)
    refuse_option("rope_fraction", text("a head width of ", key_dim,
                                        " has no whole rotary pairs, want an even width or rope_fraction 0"));
  using enum RotaryOptions::Scaling;
  if (o.dims > 0 && o.dims <= 2 && (o.scaling == ntk || o.scaling == dynamic))
    refuse_option("rope_scaling", text("ntk and dynamic want more than 2 rotating dimensions, have ", o.dims));
  if (o.scaling == llama3 && o.high_freq_factor <= o.low_freq_factor)
    refuse_option("rope_high_freq_factor",
                  text(o.high_freq_factor, ", want more than rope_low_freq_factor ", o.low_freq_factor));
  return Rotary(o);
}

namespace {

bool is_local(const Setting& s) {
  const AttentionOptions& o = s.options.common;
  if (o.window == 0 || o.window_pattern[s.layer % o.window_pattern.size()] == 'G') return false;
  if (!s.causal) refuse_option("window", "windows need causal attention, want model.causal = true or window = 0");
  return true;
}

}  // namespace

Projected::Projected(const Setting& s, const HeadSizes& n)
    : setting_(s), sizes_(n), rotary_(rotary_of(s, n.key_dim)), local_(is_local(s)) {
  const AttentionOptions& o = s.options.common;
  const int64_t memory = s.memory_size > 0 ? s.memory_size : s.hidden_size;
  q_proj = register_module("q_proj", Linear(s.hidden_size, n.query_heads * n.key_dim, o.bias, s.device));
  k_proj = register_module(n.key_name, Linear(memory, n.key_heads * n.key_dim, o.bias, s.device));
  v_proj = register_module("v_proj", Linear(memory, n.value_heads * n.value_dim, o.bias, s.device));
  o_proj = register_module("o_proj", Linear(n.output_heads * n.value_dim, s.hidden_size, o.bias, s.device));
  if (o.qk_norm) {
    q_norm = register_module("q_norm", Norm(n.key_dim, NormKind::rms, o.qk_norm_eps, s.device));
    k_norm = register_module("k_norm", Norm(n.key_dim, NormKind::rms, o.qk_norm_eps, s.device));
  }
  if (o.output_gate) gate_proj = register_module("gate_proj", Linear(s.hidden_size, n.output_heads, false, s.device));
  if (o.position_bias == PositionBias::relative)
    relative_bias_NH = register_parameter("relative_bias", s.zeros({kBuckets, n.softmax_heads}));
}

Tensor Projected::query_heads(const Tensor& x) {
  const Tensor q = q_proj(x).unflatten(-1, {sizes_.query_heads, sizes_.key_dim});
  return q_norm ? q_norm(q) : q;
}

std::pair<Tensor, Tensor> Projected::key_and_value_heads(const Tensor& memory) {
  const std::vector<Tensor> made = linear_together({k_proj.get(), v_proj.get()}, memory);
  const Tensor k = made[0].unflatten(-1, {sizes_.key_heads, sizes_.key_dim});
  return {k_norm ? k_norm(k) : k, made[1].unflatten(-1, {sizes_.value_heads, sizes_.value_dim})};
}

Keys Projected::keys(const Tensor& memory, const Positions& at) {
  const auto [k, v] = key_and_value_heads(memory);
  return {rotary_(k, at), v, {}, {}};
}

Queries Projected::queries(const Tensor& x, const Positions& at) { return {rotary_(query_heads(x), at), {}, {}, {}}; }

Tensor Projected::position_bias(const Positions& queries, const Positions& keys) const {
  const PositionBias kind = setting_.options.common.position_bias;
  if (kind == PositionBias::none) return {};
  const auto row = [](const Tensor& at) { return at.dim() == 1 ? at.unsqueeze(0) : at; };
  const Tensor distance_BTS = row(queries.at).unsqueeze(2) - row(keys.at).unsqueeze(1);
  if (kind == PositionBias::relative)
    return relative_bias_NH.index({bucket(distance_BTS, setting_.causal)}).permute({0, 3, 1, 2});
  const Tensor slopes = alibi_slopes(sizes_.softmax_heads, distance_BTS.device()).view({1, -1, 1, 1});
  return (slopes * -magnitude(distance_BTS).unsqueeze(1).to(at::kDouble)).to(q_proj->weight.scalar_type());
}

int64_t Projected::window(Pass pass) const {
  const AttentionOptions& o = setting_.options.common;
  if (!local_) return 0;
  return o.window + (pass == Pass::whole && o.window_mask == WindowMask::released ? 1 : 0);
}

Attention Projected::attention(const Positions& queries, const Positions& keys, Pass pass) {
  Attention a;
  a.visibility.causal = setting_.causal;
  a.visibility.window = window(pass);
  a.visibility.bias_BHTS = position_bias(queries, keys);
  a.visibility.documents_BS = keys.documents_BT;
  return a;
}

Tensor Projected::finish(const Tensor& out_BTHE, const Tensor& x) {
  if (!gate_proj) return o_proj(out_BTHE.flatten(2));
  const Tensor gate_BTH = token_by_token(gate_proj(x), [](const Tensor& t) { return at::sigmoid(t); });
  return o_proj((out_BTHE * gate_BTH.unsqueeze(-1)).flatten(2));
}

std::vector<Diagnostic> Projected::diagnostics(const Tensor& x, const Queries&, const Keys&) {
  if (!gate_proj) return {};
  return {{"output_gate", at::sigmoid(gate_proj(x)).mean(at::IntArrayRef{0, 1})}};
}

void Projected::initialize_extras(const Streams&) {
  if (relative_bias_NH.defined()) relative_bias_NH.zero_();
}

bool Projected::decays(const std::string& name) const { return name != "relative_bias" && name != "gate_proj.weight"; }

}  // namespace motet
