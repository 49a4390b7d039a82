// Long problems on a GPU that no tensor-core kernel of ours takes: products by PyTorch (cuBLAS) for some queries and
// all of their keys at once, everything between them by our kernels (cuda/between.h). Memory is linear in T.
#include "motet/attention/cuda_products.h"

#include <algorithm>
#include <cmath>

#include "motet/attention/cuda_problem.h"
#include "motet/attention/heads.h"

namespace motet {
namespace {

// A problem prepared for blocks of queries: padding cleared, stored heads spread to heads, numbers of a head together.
struct Prepared {
  Problem p;
  Tensor q_BHTD, k_BHSD, v_BHSE;
};

Prepared prepared(const Problem& given, bool values = true) {
  Prepared r{without_padding(given), {}, {}, {}};
  const auto spread = [](const Tensor& x_BSGD, const std::vector<int64_t>& table) {
    return spread_heads(x_BSGD, table).transpose(1, 2).contiguous();
  };
  r.q_BHTD = r.p.q_BTHD.transpose(1, 2);
  r.k_BHSD = spread(r.p.k_BSGD, r.p.key_of);
  if (values) r.v_BHSE = spread(r.p.v_BSGE, r.p.value_of);
  return r;
}

constexpr int64_t kMostPairs = 1 << 28;  // of a block that would otherwise have too few queries

int64_t rows_of_a_query(const Problem& p) { return p.B * std::max({p.score_heads, p.softmax_heads, p.output_heads}); }

// (head, query, key) of one query of every sequence among 64 that follow each other.
int64_t pairs_of_a_query(const Problem& p) {
  return rows_of_a_query(p) * (p.window > 0 ? std::min(p.S, p.window + 64) : p.S);
}

// The queries q of a block of so many pairs. A window has one key more with each of them: q (window + q) pairs.
int64_t queries_within(const Problem& p, int64_t pairs) {
  const int64_t of_a_row = pairs / rows_of_a_query(p);
  int64_t queries = of_a_row / p.S;
  if (p.window > 0) {
    const auto window = static_cast<double>(p.window);
    const double root = std::sqrt(window * window + 4 * static_cast<double>(of_a_row));
    queries = std::max(queries, static_cast<int64_t>((root - window) / 2));
  }
  return queries / 16 * 16;
}

}  // namespace

std::vector<QueryKeyBlock> product_blocks(const Problem& p, const BlockSize& size) {
  const int64_t most = queries_within(p, size.pairs), least = queries_within(p, kMostPairs);
  const int64_t queries = std::max({most, std::min(size.queries, least), int64_t{16}});
  std::vector<QueryKeyBlock> all;
  for (int64_t t = 0; t < p.T; t += queries) {
    const QueryKeyBlock one = visible_keys(p, t, std::min(t + queries, p.T));
    if (one.s0 < one.s1) all.push_back(one);
  }
  return all;
}

namespace {

// The problem that a block is: positions count from its first key.
Problem block_of(const Problem& p, const QueryKeyBlock& at) {
  Problem own = p;
  own.T = at.t1 - at.t0, own.S = at.s1 - at.s0;
  const auto queries = [&](const Tensor& x) { return x.slice(1, at.t0, at.t1); };
  const auto keys = [&](const Tensor& x) { return x.slice(1, at.s0, at.s1); };
  own.q_BTHD = queries(p.q_BTHD), own.k_BSGD = keys(p.k_BSGD), own.v_BSGE = keys(p.v_BSGE);
  if (p.lambda.defined() && p.lambda.dim() == 3) own.lambda = queries(p.lambda);
  for (HeadMix* mix : {&own.pre, &own.post})
    for (int i = 0; i < kNumMixParts; ++i) {
      Tensor& part = mix->part[i];
      if (part.defined() && kMixParts[i].side != Side::fixed)
        part = kMixParts[i].side == Side::query ? queries(part) : keys(part);
    }
  const Tensor start_B = p.table[kQueryStart].defined()
                             ? p.table[kQueryStart].to(at::kLong)
                             : at::full({p.B}, p.S - p.T, p.q_BTHD.options().dtype(at::kLong));
  own.table[kQueryStart] = start_B + (at.t0 - at.s0);
  for (const int limit : {kKeyBegin, kKeyEnd})
    if (p.table[limit].defined()) own.table[limit] = p.table[limit].to(at::kLong) - at.s0;
  if (p.table[kDocuments].defined()) own.table[kDocuments] = keys(p.table[kDocuments]);
  return own;
}

Tensor queries_of(const Tensor& x_BHTD, const QueryKeyBlock& at) { return x_BHTD.slice(2, at.t0, at.t1); }
Tensor keys_of(const Tensor& x_BHSD, const QueryKeyBlock& at) { return x_BHSD.slice(2, at.s0, at.s1); }

// a [B,H,M,K] b [B,H,K,N] -> [B,H,M,N], in a's type.
Tensor product(const Tensor& a, const Tensor& b) {
  return at::bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, {a.size(0), a.size(1)});
}
// The same in float32, as it was summed.
Tensor wide_product(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() == at::kFloat || a.is_cpu()) return product(a.to(at::kFloat), b.to(at::kFloat));
  return at::bmm(a.flatten(0, 1), b.flatten(0, 1), at::kFloat).unflatten(0, {a.size(0), a.size(1)});
}

Tensor scores_of(const Prepared& r, const QueryKeyBlock& at) {
  return wide_product(queries_of(r.q_BHTD, at), keys_of(r.k_BHSD, at).transpose(2, 3));
}

Tensor like_scores(const Problem& own, int64_t heads) {
  return at::empty({own.B, heads, own.T, own.S}, own.q_BTHD.options());
}

Attended run(const Problem& given, const cuda::Api& api, bool outputs, const Tensor& given_lse, const BlockSize& size) {
  const Prepared r = prepared(given, outputs);
  Attended done;
  if (outputs) done.out_BTHE = empty_out(r.p).zero_();
  if (!given_lse.defined()) done.lse_BHT = empty_lse(r.p).fill_(-std::numeric_limits<float>::infinity());
  for (const QueryKeyBlock& at : product_blocks(r.p, size)) {
    const Problem own = block_of(r.p, at);
    ProblemCall call(own, api);
    const Tensor scores = scores_of(r, at), lse = empty_lse(own);
    cuda::Between between{scores.const_data_ptr<float>()};
    if (given_lse.defined())
      between.given_lse = call.plain().floats(queries_of(given_lse, at));
    else
      between.lse = lse.mutable_data_ptr<float>();
    const Tensor weights = outputs ? like_scores(own, own.output_heads) : Tensor();
    if (outputs) between.weights = weights.mutable_data_ptr();
    ProblemCall::check(api.between(call.get(), between, call.reserve(cuda::Pass::between)));
    if (!given_lse.defined()) queries_of(done.lse_BHT, at).copy_(lse);
    if (outputs) done.out_BTHE.slice(1, at.t0, at.t1).copy_(product(weights, keys_of(r.v_BHSE, at)).transpose(1, 2));
  }
  return done;
}

// Gradients of a block's mixes and lambda into those of all.
void add_parts(const PlainGradients& all, const PlainGradients& own, const QueryKeyBlock& at) {
  const auto add = [&](int input, Side side) {
    if (!own.tensor(input).defined()) return;
    const Tensor& to = all.tensor(input);
    if (side == Side::fixed) to.add_(own.tensor(input));
    if (side == Side::query) to.slice(1, at.t0, at.t1).copy_(own.tensor(input));
    if (side == Side::key) to.slice(1, at.s0, at.s1).add_(own.tensor(input));
  };
  add(kLambda, Side::query);
  for (int i = 0; i < kNumMixParts; ++i) add(kPre + i, kMixParts[i].side), add(kPost + i, kMixParts[i].side);
}

}  // namespace

std::string products_why_not(const Problem& p) {
  constexpr int64_t kLeastPairs = 1 << 22, kFewQueries = 16;  // not measured
  const auto type = p.q_BTHD.scalar_type();
  if (p.T <= kFewQueries || pairs_of_a_query(p) * p.T < kLeastPairs) return "few pairs";
  if (pairs_of_a_query(p) * kFewQueries > kMostPairs) return "pairs of few queries fill the memory";
  if (p.k_BSGD.scalar_type() != type || p.v_BSGE.scalar_type() != type) return "keys of another type";
  // Which keys a block sees is not known on the host then.
  if (p.window > 0 && p.table[kQueryStart].defined()) return "a window that begins somewhere in each sequence";
  return "";
}

Attended products_forward(const Problem& p, const cuda::Api& api, const BlockSize& size) {
  return run(p, api, true, {}, size);
}
Tensor products_lse(const Problem& p, const cuda::Api& api, const BlockSize& size) {
  return run(p, api, false, {}, size).lse_BHT;
}
Tensor products_given_lse(const Problem& p, const Tensor& lse_BHT, const cuda::Api& api, const BlockSize& size) {
  return run(p, api, true, lse_BHT, size).out_BTHE;
}

Gradients products_backward(const Problem& given, const Backward& b, const cuda::Api& api, const BlockSize& size) {
  const Prepared r = prepared(given);
  const Problem& p = r.p;
  PlainGradients all(p, b.wanted, PlainGradients::Types::float32);
  for (int i = 0; i < kNumInputs; ++i)
    if (all.tensor(i).defined()) all.tensor(i).zero_();
  Wanted parts = b.wanted;
  parts[kQ] = parts[kK] = parts[kV] = false;
  const Tensor dout_BHTE = b.dout_BTHE.to(p.q_BTHD.scalar_type()).transpose(1, 2);
  const auto add_keys = [&](int input, const QueryKeyBlock& at, const Tensor& d_BHSD,
                            const std::vector<int64_t>& heads) {
    const Tensor to = all.tensor(input).slice(1, at.s0, at.s1);
    to.add_(summed_heads(d_BHSD.transpose(1, 2), heads, to.size(2)));
  };
  for (const QueryKeyBlock& at : product_blocks(p, size)) {
    const Problem own = block_of(p, at);
    ProblemCall call(own, api);
    const PlainGradients gradients(own, parts, PlainGradients::Types::float32);
    const Tensor dout = queries_of(dout_BHTE, at), scores = scores_of(r, at);
    const Tensor dmixed = wide_product(dout, keys_of(r.v_BHSE, at).transpose(2, 3));
    const Tensor weights = b.wanted[kV] ? like_scores(own, own.output_heads) : Tensor();
    const Tensor dscores = like_scores(own, own.score_heads);
    const cuda::BetweenBack between{scores.const_data_ptr<float>(), dmixed.const_data_ptr<float>(),
                                    b.wanted[kV] ? weights.mutable_data_ptr() : nullptr, dscores.mutable_data_ptr()};
    ProblemCall::check(
        api.between_back(call.get(), between, pointers(gradients), call.reserve(cuda::Pass::between_back)));
    add_parts(all, gradients, at);
    if (b.wanted[kV]) add_keys(kV, at, wide_product(weights.transpose(2, 3), dout), p.value_of);
    if (b.wanted[kQ])
      all.tensor(kQ).slice(1, at.t0, at.t1).copy_(wide_product(dscores, keys_of(r.k_BHSD, at)).transpose(1, 2));
    if (b.wanted[kK]) add_keys(kK, at, wide_product(dscores.transpose(2, 3), queries_of(r.q_BHTD, at)), p.key_of);
  }
  return std::move(all).finish();
}

}  // namespace motet
