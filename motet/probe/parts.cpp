#include "motet/probe/parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "motet/attention/heads.h"

namespace motet {
namespace {

constexpr int64_t kSquare = 256;  // tokens of what is quadratic in them and has no blocks
constexpr int64_t kNear = 16;
constexpr double kTiny = 1e-300;  // under a sum of nothing: 0 over it is 0

// What the maps of one side make of a head: matrices [B,T,N,M] of hears n, is heard as m; undefined: nothing.
struct SideParts {
  const Tensor &down_BTRN, &up_BTRM, &gate_BTM, &full_BTNM;
  Tensor matrices() const {
    Tensor out;
    const auto add = [&](const Tensor& t) { out = out.defined() ? out + t : t; };
    if (down_BTRN.defined()) add(at::einsum("btrn,btrm->btnm", {down_BTRN, up_BTRM}));
    if (gate_BTM.defined()) add(at::diag_embed(gate_BTM));
    if (full_BTNM.defined()) add(full_BTNM);
    return out.defined() ? out.to(at::kDouble) : out;
  }
};

void add_mix(std::vector<Diagnostic>& out, const std::string& name, const StaticMix& fixed, const QueryMix& q,
             const KeyMix& k) {
  const Tensor by_query = SideParts{q.down_BTRH, q.up_BTRH, q.gate_BTH, q.full_BTHH}.matrices(),
               by_key = SideParts{k.down_BSRH, k.up_BSRH, k.gate_BSH, k.full_BSHH}.matrices();
  if (!fixed.weight_HH.defined() && !by_query.defined() && !by_key.defined()) return;  // heads pass through
  Tensor mean_BNM;                                                                     // less what passes heads through
  const auto add = [&](const Tensor& t) { mean_BNM = mean_BNM.defined() ? mean_BNM + t : t; };
  if (fixed.weight_HH.defined()) add(fixed.weight_HH.to(at::kDouble).unsqueeze(0));
  for (const Tensor& side : {by_query, by_key})
    if (side.defined()) add(side.mean(1));
  if (const int64_t heads = mean_BNM.size(1); !fixed.identity && heads == mean_BNM.size(2))
    mean_BNM = mean_BNM - at::eye(heads, mean_BNM.options());
  const Tensor constant = mean_BNM.square().sum(1).mean(0);
  Tensor all = constant;
  out.push_back({name + "_fixed", constant});
  for (const auto& [side, matrices] : {std::pair("_by_query", by_query), std::pair("_by_key", by_key)}) {
    if (!matrices.defined()) continue;
    const Tensor changes = matrices.var(1, false).sum(1).mean(0);
    out.push_back({name + side, changes});
    all = all + changes;
  }
  out.push_back({name + "_dynamic", 1 - constant / all.clamp_min(std::numeric_limits<double>::min())});
}

// The two coordinates of each rotary pair, [B,T,H,J] each, as they were before they turned.
std::pair<Tensor, Tensor> unturned(const Tensor& x_BTHD, const Rotary& rotary, const Positions& at) {
  Positions back{-at.at, at.length};
  const int64_t dims = rotary.options().dims;
  const Tensor x = rotary(x_BTHD.to(at::kDouble), back).slice(-1, 0, dims);
  if (rotary.options().pairing == RotaryOptions::Pairing::interleaved)
    return {x.slice(-1, 0, dims, 2), x.slice(-1, 1, dims, 2)};
  return {x.slice(-1, 0, dims / 2), x.slice(-1, dims / 2)};
}

std::vector<int64_t> stored_heads(const Call& call) {
  if (!call.attention.heads.key_of.empty()) return call.attention.heads.key_of;
  const int64_t heads = call.q.q_BTHD.size(2), stored = call.k.k_BSGD.size(2);
  std::vector<int64_t> all;
  for (int64_t h = 0; h < heads; ++h) all.push_back(h * stored / heads);
  return all;
}

Call first_tokens(const Call& call) { return block(call, 0, std::min(kSquare, call.q.q_BTHD.size(1))); }

}  // namespace

std::vector<Diagnostic> composition(const Call& call) {
  std::vector<Diagnostic> out;
  add_mix(out, "pre", call.attention.pre, call.q.pre, call.k.pre);
  add_mix(out, "post", call.attention.post, call.q.post, call.k.post);
  return out;
}

std::vector<Diagnostic> rotary_rises(const Call& whole, const Rotary& rotary, const Positions& positions) {
  const Call call = first_tokens(whole);
  const int64_t T = call.q.q_BTHD.size(1), S = call.k.k_BSGD.size(1);
  const auto first = [&](int64_t n) { return Positions{positions.at.slice(-1, 0, n), positions.length}; };
  const auto [qx, qy] = unturned(call.q.q_BTHD, rotary, first(T));
  const auto [kx, ky] = unturned(spread_heads(call.k.k_BSGD, stored_heads(call)), rotary, first(S));
  const AttentionMaps maps = attention_maps(call.q, call.k, call.attention);
  const Tensor seen_B1TS = (~maps.hidden_BHTS).any(1, true).to(at::kDouble);
  const Tensor place_T = at::arange(S, seen_B1TS.options());
  const Tensor near_B1TS = seen_B1TS * ((place_T.slice(0, 0, T).unsqueeze(1) - place_T).abs() < kNear);
  // With the distance to a key ahead an angle turns the other way.
  const Tensor side_TS = 1 - 2 * (place_T.slice(0, 0, T).unsqueeze(1) < place_T).to(at::kDouble);
  const Tensor theta_J = rotary.inverse_frequencies(positions.length).cpu();
  const double slower = rotary.options().scaling == RotaryOptions::Scaling::linear ? rotary.options().factor : 1;

  constexpr double kRounding = 1e-4;  // angles of float32 are off by less: so near to 0 they count as collinear
  Tensor rises, near, weighted, size, rise, tokens;
  const auto add = [](Tensor& sum, const Tensor& values_BHTS) {
    const Tensor own = values_BHTS.sum({0, 2, 3});
    sum = sum.defined() ? sum + own : own;
  };
  const int64_t pairs = qx.size(3);
  for (int64_t j = 0; j < pairs; ++j) {
    const auto products = [&](const Tensor& q, const Tensor& k) {
      return at::einsum("bth,bsh->bhts", {q.select(3, j), k.select(3, j)});
    };
    const Tensor along = products(qx, kx) + products(qy, ky);
    const Tensor across = (products(qy, kx) - products(qx, ky)) * side_TS;
    const Tensor length = at::hypot(along, across) * seen_B1TS;
    const Tensor above_pi = (across < -kRounding * length) | ((across < 0) & (along < 0));
    const Tensor up = above_pi.to(at::kDouble) * seen_B1TS;
    add(rises, up), add(near, up * near_B1TS), add(weighted, up * length), add(size, length);
    add(rise, up * (length - along));
    const double step = theta_J[j].item<double>() / slower;
    add(tokens, up * (-at::atan2(across, along) / step).clamp_max(static_cast<double>(T)));
  }
  const Tensor count = seen_B1TS.sum(), near_count = near_B1TS.sum();
  const double all = static_cast<double>(pairs),
               scale = call.attention.scale.value_or(1 / std::sqrt(static_cast<double>(call.q.q_BTHD.size(3))));
  return {{"rotary_rises", rises / (count * all)},
          {"rotary_rises_near", near / (near_count * all)},
          {"rotary_rises_weighted", weighted / size.clamp_min(kTiny)},
          {"rotary_rise", rise * scale / count},
          {"rotary_rise_tokens", tokens / rises.clamp_min(1)}};
}

Diagnostic logit_rank(const Call& whole) {
  const Call call = first_tokens(whole);
  const AttentionMaps maps = attention_maps(call.q, call.k, call.attention);
  const Tensor values_HN = at::linalg_svdvals(maps.logits_BHTS[0].cpu().to(at::kDouble));
  const Tensor sum_H1 = values_HN.sum(-1, true), p = values_HN / sum_H1.clamp_min(kTiny);
  return {"logit_rank", (-at::xlogy(p, p).sum(-1)).exp() * (sum_H1 > 0).squeeze(-1)};
}

}  // namespace motet
