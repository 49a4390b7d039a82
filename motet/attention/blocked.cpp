// Everything the operator allows, in torch operations, blocked over queries: memory grows linearly in T. The backward
// pass is written by hand and recomputes each block from the inputs; README.md derives it. CPU and CUDA.
#include <algorithm>

#include "motet/attention/definition.h"
#include "motet/attention/heads.h"
#include "motet/attention/kernels.h"
#include "motet/attention/matrices.h"
#include "motet/attention/visibility.h"

namespace motet {
namespace {

// Elements of one [heads, rows, S] tensor of a block; about ten are alive in the backward pass. First values, chosen
// for memory (4 MB a tensor on the CPU) and not tuned for speed; measure with `MOTET_KERNEL=blocked motet bench
// attention`.
constexpr int64_t kBlockElements = 1 << 20;
constexpr int64_t kBlockElementsCuda = 1 << 26;

// One problem prepared for blocks: padding cleared, inputs in the accumulation dtype, stored heads spread to heads.
struct Prepared {
  Problem p;
  Tensor q_BHTD, k_BHSD, v_BHSE, bias_BHTS;
  MixMatrices pre, post;
};

Prepared prepared(const Problem& given) {
  Prepared r;
  r.p = without_padding(given);
  const auto wide = r.p.accumulate();
  const auto spread = [&](const Tensor& x_BSGD, const std::vector<int64_t>& table) {
    return spread_heads(x_BSGD.to(wide), table).transpose(1, 2);
  };
  r.q_BHTD = r.p.q_BTHD.to(wide).transpose(1, 2);
  r.k_BHSD = spread(r.p.k_BSGD, r.p.key_of);
  r.v_BHSE = spread(r.p.v_BSGE, r.p.value_of);
  if (r.p.bias_BHTS.defined()) r.bias_BHTS = r.p.bias_BHTS.to(wide);
  r.pre = mix_matrices(r.p.pre, wide);
  r.post = mix_matrices(r.p.post, wide);
  return r;
}

// A block: some sequences [b0,b1), queries [t0,t1), keys [s0,s1). One sequence at a time on the CPU, where products
// over the head axis then need no copy; all of them on a device, where calls are dear.
struct Place {
  int64_t b0, b1;
  QueryKeyBlock at;
  Tensor sequences(const Tensor& t) const { return t.size(0) == 1 ? t : t.slice(0, b0, b1); }
  Tensor queries(const Tensor& t, int64_t dim) const { return sequences(t).slice(dim, at.t0, at.t1); }
  Tensor keys(const Tensor& t, int64_t dim) const { return sequences(t).slice(dim, at.s0, at.s1); }
  MixMatrices matrices(const MixMatrices& m) const {
    return {m.query.defined() && m.query.dim() == 4 ? queries(m.query, 1) : m.query,
            m.key.defined() ? keys(m.key, 3) : m.key};
  }
};

std::vector<Place> places(const Problem& p) {
  const int64_t step_b = p.q_BTHD.is_cpu() ? 1 : std::max<int64_t>(p.B, 1);
  const int64_t heads = std::max({p.score_heads, p.softmax_heads, p.output_heads});
  const int64_t row = std::max<int64_t>(step_b * heads * std::max<int64_t>(p.S, 1), 1);
  const int64_t budget = p.q_BTHD.is_cpu() ? kBlockElements : kBlockElementsCuda;
  const int64_t step_t = std::clamp<int64_t>(budget / row, 16, std::max<int64_t>(p.T, 16));
  std::vector<Place> all;
  for (int64_t b = 0; b < p.B; b += step_b)
    for (int64_t t = 0; t < p.T; t += step_t)
      all.push_back({b, b + step_b, visible_keys(p, t, std::min(t + step_t, p.T))});
  return all;
}

// The mask of the block's own sequences: that of all would cost B times as much for each of B places.
Tensor block_hidden(const Prepared& r, const Place& place) {
  Problem own = r.p;
  own.B = place.b1 - place.b0;
  for (Tensor& table : own.table)
    if (table.defined()) table = table.slice(0, place.b0, place.b1);
  if (own.bias_BHTS.defined()) own.bias_BHTS = place.sequences(own.bias_BHTS);
  return hidden(own, place.at);
}

// y = x mixed over heads; x [b,N,t,s]. By query: products of matrices. By key: head by head along contiguous rows, for
// matrices of one key each would gather x with a stride (eight times slower at 16,384 keys).
Tensor mixed(const Tensor& x, const MixMatrices& m) {
  if (m.none()) return x;
  Tensor y;
  if (m.query.defined()) y = at::einsum(m.query.dim() == 4 ? "bnts,btnm->bmts" : "bnts,nm->bmts", {x, m.query});
  for (int64_t n = 0; m.key.defined() && n < x.size(1); ++n) {
    const Tensor x_n = x.narrow(1, n, 1), key_BM1S = m.key.select(1, n).unsqueeze(2);
    y = y.defined() ? y.addcmul_(x_n, key_BM1S) : x_n * key_BM1S;
  }
  return y;
}

// Gradient of x from that of the mix's output; adds the gradients of the matrices to `sum`.
Tensor mixed_backward(const Tensor& x, const Tensor& g, const MixMatrices& m, const MixMatrices& sum) {
  if (m.none()) return g;
  Tensor dx;
  if (m.query.defined()) {
    const bool varies = m.query.dim() == 4;
    Tensor(sum.query).add_(at::einsum(varies ? "bnts,bmts->btnm" : "bnts,bmts->nm", {x, g}));
    dx = at::einsum(varies ? "bmts,btnm->bnts" : "bmts,nm->bnts", {g, m.query});
  }
  if (!m.key.defined()) return dx;
  for (int64_t n = 0; n < x.size(1); ++n) sum.key.select(1, n).add_((x.narrow(1, n, 1) * g).sum(2));
  for (int64_t o = 0; o < g.size(1); ++o) {
    const Tensor g_o = g.narrow(1, o, 1), key_BN1S = m.key.select(2, o).unsqueeze(2);
    dx = dx.defined() ? dx.addcmul_(g_o, key_BN1S) : g_o * key_BN1S;
  }
  return dx;
}

Tensor block_scores(const Prepared& r, const Place& place) {
  return at::matmul(place.queries(r.q_BHTD, 2) * r.p.scale, place.keys(r.k_BHSD, 2).transpose(2, 3));
}

Tensor block_logits(const Prepared& r, const Place& place, const Tensor& scores) {
  Tensor logits = mixed(scores, place.matrices(r.pre));
  if (!r.bias_BHTS.defined()) return logits;
  return logits + place.queries(r.bias_BHTS, 2).slice(3, place.at.s0, place.at.s1);
}

Tensor block_lambda(const Prepared& r, const Place& place) {
  return r.p.lambda.dim() == 3 ? place.queries(r.p.lambda, 1) : r.p.lambda;
}

// P, exactly 0 where hidden. A block holds whole rows, so softmax is taken anew: exp(L - lse) would not sum to 1 to the
// last bit, and with large logits the gradients of `pre` amplify that.
Tensor block_weights(const Tensor& logits, const Tensor& hidden_BHTS) {
  if (!hidden_BHTS.defined()) return at::softmax(logits, -1);
  const double infinity = std::numeric_limits<double>::infinity();
  return at::softmax(logits.masked_fill(hidden_BHTS, -infinity), -1).masked_fill_(hidden_BHTS, 0);
}

// The same for a part of the keys, under the lse of all of them.
Tensor weights_given_lse(const Tensor& logits, const Tensor& lse_BHT, const Tensor& hidden_BHTS) {
  Tensor weights = (logits - lse_BHT.unsqueeze(3)).exp_();
  return hidden_BHTS.defined() ? weights.masked_fill_(hidden_BHTS, 0) : weights;
}

Tensor block_lse(const Tensor& logits, const Tensor& hidden_BHTS) {
  const double infinity = std::numeric_limits<double>::infinity();
  return at::logsumexp(hidden_BHTS.defined() ? logits.masked_fill(hidden_BHTS, -infinity) : logits, -1);
}

Tensor block_out(const Prepared& r, const Place& place, const Tensor& weights) {
  const Tensor u =
      r.p.lambda.defined() ? subtracted_pairs(weights, block_lambda(r, place)) : mixed(weights, place.matrices(r.post));
  return at::matmul(u, place.keys(r.v_BHSE, 2));
}

enum Results { kBoth, kLseOnly };

Attended run(const Problem& given, Results results, const Tensor& given_lse_BHT = {}) {
  const Prepared r = prepared(given);
  const Problem& p = r.p;
  const auto wide = r.q_BHTD.options();
  Attended done;
  if (results == kBoth) done.out_BTHE = at::zeros({p.B, p.T, p.output_heads, p.E}, p.q_BTHD.options());
  done.lse_BHT = given_lse_BHT.defined()
                     ? given_lse_BHT.to(wide.dtype())
                     : at::full({p.B, p.softmax_heads, p.T}, -std::numeric_limits<double>::infinity(), wide);
  for (const Place& place : places(p)) {
    if (place.at.s0 >= place.at.s1) continue;
    const Tensor logits = block_logits(r, place, block_scores(r, place));
    const Tensor unseen = block_hidden(r, place);
    Tensor lse = place.queries(done.lse_BHT, 2);
    if (!given_lse_BHT.defined()) lse.copy_(block_lse(logits, unseen));
    if (results == kLseOnly) continue;
    const Tensor weights =
        given_lse_BHT.defined() ? weights_given_lse(logits, lse, unseen) : block_weights(logits, unseen);
    place.queries(done.out_BTHE, 1).copy_(block_out(r, place, weights).transpose(1, 2));
  }
  return done;
}

// Sums of the gradients over blocks, in the accumulation dtype, per head; undefined where not wanted.
struct Sums {
  Tensor dq_BHTD, dk_BHSD, dv_BHSE, dbias, dlambda;
  MixMatrices pre, post;
};

// dlambda[i] = -sum_s g_i x_{2i+1} in lambda's shape; returns dx of the pairs.
Tensor pairs_backward(const Tensor& x, const Tensor& g, const Tensor& lambda, Tensor dlambda) {
  const Tensor d_BHT = -(g * x.slice(1, 1, {}, 2)).sum(3);
  if (lambda.dim() == 3) dlambda.add_(d_BHT.transpose(1, 2));
  if (lambda.dim() == 1) dlambda.add_(d_BHT.sum(at::IntArrayRef{0, 2}));
  if (lambda.dim() == 0) dlambda.add_(d_BHT.sum());
  const Tensor l = lambda.to(g.scalar_type());
  Tensor dx = at::empty_like(x);
  dx.slice(1, 0, {}, 2).copy_(g);
  dx.slice(1, 1, {}, 2).copy_(g * (l.dim() == 3 ? l.permute({0, 2, 1}).unsqueeze(3) : l.view({1, -1, 1, 1}))).neg_();
  return dx;
}

void add_bias_gradient(const Tensor& dlogits, const Place& place, Tensor dbias) {
  Tensor target = place.queries(dbias, 2).slice(3, place.at.s0, place.at.s1);
  target.add_(at::sum_to(dlogits, target.sizes()));
}

void block_backward(const Prepared& r, const Place& place, const Backward& b, Sums& sums) {
  const Tensor scores = block_scores(r, place);
  const Tensor weights = block_weights(block_logits(r, place, scores), block_hidden(r, place));
  const MixMatrices pre = place.matrices(r.pre), post = place.matrices(r.post);
  const bool pairs = r.p.lambda.defined();

  const Tensor dout = place.queries(b.dout_BTHE, 1).to(weights.scalar_type()).transpose(1, 2);
  const Tensor u = pairs ? subtracted_pairs(weights, block_lambda(r, place)) : mixed(weights, post);
  if (sums.dv_BHSE.defined()) place.keys(sums.dv_BHSE, 2).add_(at::matmul(u.transpose(2, 3), dout));
  const Tensor du = at::matmul(dout, place.keys(r.v_BHSE, 2).transpose(2, 3));
  Tensor dweights;
  if (pairs) {
    Tensor dlambda = sums.dlambda.dim() == 3 ? place.queries(sums.dlambda, 1) : sums.dlambda;
    dweights = pairs_backward(weights, du, block_lambda(r, place), dlambda);
  } else {
    dweights = mixed_backward(weights, du, post, place.matrices(sums.post));
  }
  const Tensor flow = weights * dweights;
  const Tensor dlogits = flow.sub_(weights * flow.sum(3, true));  // 0 where hidden, for the weights are
  if (sums.dbias.defined()) add_bias_gradient(dlogits, place, sums.dbias);
  const Tensor dscores = mixed_backward(scores, dlogits, pre, place.matrices(sums.pre));
  const Tensor q = place.queries(r.q_BHTD, 2), k = place.keys(r.k_BHSD, 2);
  if (sums.dq_BHTD.defined()) place.queries(sums.dq_BHTD, 2).add_(at::matmul(dscores, k), r.p.scale);
  if (sums.dk_BHSD.defined()) place.keys(sums.dk_BHSD, 2).add_(at::matmul(dscores.transpose(2, 3), q), r.p.scale);
}

Gradients backward(const Problem& given, const Backward& b) {
  const Prepared r = prepared(given);
  const Problem& p = r.p;
  const auto zeros = [&](int input, const Tensor& t) {
    return b.wanted[input] ? at::zeros(t.sizes(), t.options()) : Tensor();
  };
  Sums sums{zeros(kQ, r.q_BHTD), zeros(kK, r.k_BHSD), zeros(kV, r.v_BHSE), zeros(kBias, r.bias_BHTS), {},
            zeros_like(r.pre),   zeros_like(r.post)};
  if (p.lambda.defined()) sums.dlambda = at::zeros(p.lambda.sizes(), r.q_BHTD.options());
  for (const Place& place : places(p))
    if (place.at.s0 < place.at.s1) block_backward(r, place, b, sums);

  const auto stored = [](const Tensor& dx_BHSD, const std::vector<int64_t>& table, const Tensor& x_BSGD) {
    return summed_heads(dx_BHSD.transpose(1, 2), table, x_BSGD.size(2)).to(x_BSGD.scalar_type());
  };
  Gradients g;
  if (b.wanted[kQ]) g[kQ] = sums.dq_BHTD.transpose(1, 2).to(p.q_BTHD.scalar_type());
  if (b.wanted[kK]) g[kK] = stored(sums.dk_BHSD, p.key_of, p.k_BSGD);
  if (b.wanted[kV]) g[kV] = stored(sums.dv_BHSE, p.value_of, p.v_BSGE);
  if (b.wanted[kBias]) g[kBias] = sums.dbias.to(p.bias_BHTS.scalar_type());
  if (b.wanted[kLambda]) g[kLambda] = sums.dlambda.to(p.lambda.scalar_type());
  std::ranges::copy(part_gradients(p.pre, sums.pre, std::span(b.wanted).subspan(kPre, kNumMixParts)), g.begin() + kPre);
  std::ranges::copy(part_gradients(p.post, sums.post, std::span(b.wanted).subspan(kPost, kNumMixParts)),
                    g.begin() + kPost);
  return g;
}

}  // namespace

const Kernel kBlocked{"blocked",
                      [](const Problem&) { return std::string(); },
                      [](const Problem& p) { return run(p, kBoth); },
                      backward,
                      [](const Problem& p) { return run(p, kLseOnly).lse_BHT; },
                      [](const Problem& p, const Tensor& lse) { return run(p, kBoth, lse).out_BTHE; }};

}  // namespace motet
