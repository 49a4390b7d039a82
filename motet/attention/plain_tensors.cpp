#include "motet/attention/plain_tensors.h"

#include "motet/ops/number_type.h"

namespace motet {
namespace {

// Whether numbers of dimensions `first` and on follow each other without gaps.
bool without_gaps(const Tensor& t, int64_t first) {
  int64_t numbers = 1;
  for (int64_t i = t.dim() - 1; i >= first; numbers *= t.size(i--))
    if (t.size(i) != 1 && t.stride(i) != numbers) return false;
  return true;
}

}  // namespace

plain::Problem plain_sizes(const Problem& from) {
  plain::Problem p;
  p.B = from.B, p.T = from.T, p.S = from.S, p.D = from.D, p.E = from.E;
  p.score_heads = from.score_heads, p.softmax_heads = from.softmax_heads, p.output_heads = from.output_heads;
  p.key_heads = from.k_BSGD.size(2), p.value_heads = from.v_BSGE.size(2);
  p.q.type = number_type(from.q_BTHD), p.k.type = number_type(from.k_BSGD), p.v.type = number_type(from.v_BSGE);
  p.key_of = from.key_of, p.value_of = from.value_of;
  p.scale = from.scale, p.causal = from.causal, p.window = from.window;
  return p;
}

PlainProblem::PlainProblem(const Problem& from, Mixes mixes) : p_(plain_sizes(from)) {
  plain::Problem& p = p_;
  p.q = operand(from.q_BTHD), p.k = operand(from.k_BSGD), p.v = operand(from.v_BSGE);
  add_scales(p.k, from.scales[kK]), add_scales(p.v, from.scales[kV]);
  const std::span all(from.scales);
  p.pre = mix(from.pre, all.subspan<kPre, kNumMixParts>(), mixes);
  p.post = mix(from.post, all.subspan<kPost, kNumMixParts>(), mixes);
  if (from.lambda.defined()) p.pairs = pairs(from.lambda);
  const int64_t** tables[kNumTables] = {&p.query_start, &p.key_begin, &p.key_end, &p.documents};
  for (int i = 0; i < kNumTables; ++i)
    if (from.table[i].defined()) *tables[i] = hold(from.table[i].to(at::kLong).contiguous()).const_data_ptr<int64_t>();
}

plain::Operand PlainProblem::operand(const Tensor& x) {
  const Tensor& t = hold(x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous());
  return {t.const_data_ptr(), number_type(t), t.stride(0), t.stride(1), t.stride(2)};
}

// Of an operand or of a part of a mix.
template <class Plain>
void PlainProblem::add_scales(Plain& x, const Tensor& given) {
  if (!given.defined()) return;
  const Tensor& scale = hold(without_gaps(given, 2) ? given : given.contiguous());
  x.scale = scale.const_data_ptr<float>(), x.scale_batch = scale.stride(0), x.scale_row = scale.stride(1);
}

const float* PlainProblem::floats(const Tensor& x) {
  return hold(x.to(at::kFloat).contiguous()).const_data_ptr<float>();
}

// What a cache holds is not copied, be it a part of its tokens or of their rows.
plain::MixTensor PlainProblem::mix_tensor(const Tensor& given, bool as_given) {
  const bool fixed = given.dim() == 2;
  Tensor t = as_given ? given : given.to(at::kFloat);
  if (!without_gaps(t, fixed ? 0 : 2)) t = t.contiguous();
  const Tensor& held = hold(t);
  return {held.const_data_ptr(), fixed ? 0 : held.stride(0), fixed ? 0 : held.stride(1), number_type(held)};
}

plain::HeadMix PlainProblem::mix(const HeadMix& from, std::span<const Tensor, kNumMixParts> scales, Mixes mixes) {
  plain::HeadMix to;
  to.identity = from.identity;
  for (int i = 0; i < kNumMixParts; ++i) {
    if (!from.has(i)) continue;
    const bool widened = mixes == Mixes::as_given && scales[i].defined();
    const Tensor t = widened ? from.part[i].to(at::kFloat).mul_(scales[i].unsqueeze(-1)) : from.part[i];
    to.part[i] = mix_tensor(t, mixes == Mixes::as_given || plain::by_key(i));
    if (!widened) add_scales(to.part[i], scales[i]);
  }
  if (from.has(kQueryDown)) to.query_rank = from.part[kQueryDown].size(2);
  if (from.has(kKeyDown)) to.key_rank = from.part[kKeyDown].size(2);
  return to;
}

plain::Pairs PlainProblem::pairs(const Tensor& lambda) {
  plain::Pairs to{floats(lambda)};
  if (lambda.dim() >= 1) to.head_stride = 1;
  if (lambda.dim() == 3) to.row_stride = lambda.size(2), to.batch_stride = lambda.size(1) * lambda.size(2);
  return to;
}

PlainGradients::PlainGradients(const Problem& p, const Wanted& wanted, Types types) : p_(p) {
  const auto want = [&](int index, const Tensor& like, at::ScalarType type) {
    if (wanted[index]) g_[index] = at::empty(like.sizes(), like.options().dtype(type));
  };
  const auto own = [&](const Tensor& x) { return types == Types::inputs ? x.scalar_type() : at::kFloat; };
  for (const auto& [index, tensor] : {std::pair{kQ, &p.q_BTHD}, {kK, &p.k_BSGD}, {kV, &p.v_BSGE}})
    want(index, *tensor, own(*tensor));
  for (int i = 0; i < kNumMixParts; ++i) {
    if (p.pre.has(i)) want(kPre + i, p.pre.part[i], at::kFloat);
    if (p.post.has(i)) want(kPost + i, p.post.part[i], at::kFloat);
  }
  if (wanted[kLambda]) g_[kLambda] = at::empty({p.B, p.T, p.output_heads}, p.q_BTHD.options().dtype(at::kFloat));
}

Gradients PlainGradients::finish() && {
  const auto cast = [&](int index, const Tensor& like) {
    if (g_[index].defined()) g_[index] = g_[index].to(like.scalar_type());
  };
  if (g_[kLambda].defined()) g_[kLambda] = at::sum_to(g_[kLambda].to(at::kDouble), p_.lambda.sizes());
  cast(kQ, p_.q_BTHD), cast(kK, p_.k_BSGD), cast(kV, p_.v_BSGE), cast(kLambda, p_.lambda);
  for (int i = 0; i < kNumMixParts; ++i) cast(kPre + i, p_.pre.part[i]), cast(kPost + i, p_.post.part[i]);
  return std::move(g_);
}

Tensor empty_out(const Problem& p) { return at::empty({p.B, p.T, p.output_heads, p.E}, p.q_BTHD.options()); }

Tensor empty_lse(const Problem& p) {
  return at::empty({p.B, p.softmax_heads, p.T}, p.q_BTHD.options().dtype(at::kFloat));
}

}  // namespace motet
