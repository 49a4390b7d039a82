#include "motet/mechanisms/projected.h"

#include <cmath>

#include "motet/core/error.h"

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
  const int64_t heads = s.integer("num_heads"), given = s.integer("head_dim");
  if (given > 0) return given;
  if (s.hidden_size % heads)
    refuse_option("num_heads", text(heads, " heads do not divide hidden_size ", s.hidden_size,
                                    ", want a divisor or an explicit head_dim"));
  return s.hidden_size / heads;
}

int64_t num_kv_heads(const Setting& s) {
  const int64_t heads = s.integer("num_heads"), given = s.integer("num_kv_heads");
  if (given == 0) return heads;
  if (heads % given)
    refuse_option("num_kv_heads", text(given, " does not divide num_heads ", heads, ", want a divisor"));
  return given;
}

HeadSizes plain_sizes(const Setting& s) {
  const int64_t heads = s.integer("num_heads"), kv = num_kv_heads(s), dim = head_dim(s);
  return {.query_heads = heads,
          .softmax_heads = heads,
          .key_heads = kv,
          .value_heads = kv,
          .output_heads = heads,
          .key_dim = dim,
          .value_dim = dim};
}

Rotary rotary_of(const Setting& s, int64_t key_dim) {
  using Scaling = RotaryOptions::Scaling;
  static const std::map<std::string, Scaling> scalings{{"none", Scaling::none},
                                                       {"linear", Scaling::linear},
                                                       {"ntk", Scaling::ntk},
                                                       {"dynamic", Scaling::dynamic},
                                                       {"llama3", Scaling::llama3}};
  const int64_t trained = s.integer("rope_trained_length");
  const double fraction = s.number("rope_fraction");
  RotaryOptions o{
      .dims = static_cast<int64_t>(static_cast<double>(key_dim) * fraction),
      .base = s.number("rope_base"),
      .pairing = s.word("rope_pairing") == "half" ? RotaryOptions::Pairing::half : RotaryOptions::Pairing::interleaved,
      .scaling = scalings.at(s.word("rope_scaling")),
      .factor = s.number("rope_factor"),
      .max_position = trained > 0 ? trained : s.max_position,
      .low_freq_factor = s.number("rope_low_freq_factor"),
      .high_freq_factor = s.number("rope_high_freq_factor")};
  if (fraction < 1) o.dims -= o.dims % 2;  // a fraction of the head rounds down to whole pairs
  if (o.dims % 2)
    refuse_option("rope_fraction", text("a head width of ", key_dim,
                                        " has no whole rotary pairs, want an even width or rope_fraction 0"));
  return Rotary(o);
}

int64_t layer_window(const Setting& s) {
  const int64_t window = s.integer("window");
  if (window == 0) return 0;
  static const std::map<std::string, std::string> patterns{
      {"local", "L"}, {"LG", "LG"}, {"LGLL", "LGLL"}, {"LGL6", "LGLLLLLL"}};
  const std::string& pattern = patterns.at(s.word("window_pattern"));
  if (pattern[s.layer % pattern.size()] == 'G') return 0;
  if (!s.causal) refuse_option("window", "windows need causal attention, want model.causal = true or window = 0");
  return window + (s.word("window_mask") == "released" ? 1 : 0);
}

Projected::Projected(const Setting& s, const HeadSizes& n) : setting_(s), sizes_(n), rotary_(rotary_of(s, n.key_dim)) {
  const int64_t memory = s.memory_size > 0 ? s.memory_size : s.hidden_size;
  const bool bias = s.flag("bias");
  q_proj = register_module("q_proj", Linear(s.hidden_size, n.query_heads * n.key_dim, bias, s.device));
  k_proj = register_module(n.key_name, Linear(memory, n.key_heads * n.key_dim, bias, s.device));
  v_proj = register_module("v_proj", Linear(memory, n.value_heads * n.value_dim, bias, s.device));
  o_proj = register_module("o_proj", Linear(n.output_heads * n.value_dim, s.hidden_size, bias, s.device));
  if (s.flag("qk_norm")) {
    q_norm = register_module("q_norm", Norm(n.key_dim, NormKind::rms, s.number("qk_norm_eps"), s.device));
    k_norm = register_module("k_norm", Norm(n.key_dim, NormKind::rms, s.number("qk_norm_eps"), s.device));
  }
  window_ = layer_window(s);  // refuses a window without causal attention
  bias_ = s.word("position_bias");
  if (bias_ == "relative") relative_bias_NH = register_parameter("relative_bias", s.zeros({kBuckets, n.softmax_heads}));
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
  if (bias_ == "none") return {};
  const auto row = [](const Tensor& at) { return at.dim() == 1 ? at.unsqueeze(0) : at; };
  const Tensor distance_BTS = row(queries.at).unsqueeze(2) - row(keys.at).unsqueeze(1);
  const auto type = q_proj->weight.scalar_type();
  if (bias_ == "relative") return relative_bias_NH.index({bucket(distance_BTS, setting_.causal)}).permute({0, 3, 1, 2});
  const Tensor slopes = alibi_slopes(sizes_.softmax_heads, distance_BTS.device()).view({1, -1, 1, 1});
  return (slopes * -magnitude(distance_BTS).unsqueeze(1).to(at::kDouble)).to(type);
}

Attention Projected::attention(const Positions& queries, const Positions& keys) {
  Attention a;
  a.visibility.causal = setting_.causal;
  a.visibility.window = window_;
  a.visibility.bias_BHTS = position_bias(queries, keys);
  a.visibility.documents_BS = keys.documents_BT;
  return a;
}

Tensor Projected::finish(const Tensor& out_BTHE, const Tensor&) { return o_proj(out_BTHE.flatten(2)); }

void Projected::initialize_extras(const Streams&) {
  if (relative_bias_NH.defined()) relative_bias_NH.zero_();
}

bool Projected::decays(const std::string& name) const { return name != "relative_bias"; }

}  // namespace motet
