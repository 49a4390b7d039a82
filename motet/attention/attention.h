#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motet/core/precision.h"
#include "motet/ops/torch.h"

// Composed attention: the one operator behind every mechanism.
//
//   A[h,t,s] = scale * q[t,h] . k[s,key_of(h)]               Hs score heads
//   L        = pre(A) + bias                                 Ha softmax heads
//   P[a,t,:] = softmax over visible s of L[a,t,:]            a query that sees no key gives 0 and passes no gradient
//   U        = post(P)                                       Ho output heads; rows need not sum to 1, may be negative
//   out[t,o] = sum_s U[o,t,s] v[s,value_of(o)]
//
// Shape letters: B batch, T queries, S keys, H heads (Hs, Ha, Ho by stage), G stored key or value heads, D key width,
// E value width, R rank, N and M input and output heads of a mix. An undefined tensor means absent.
namespace motet {

/// The query side of a head mix: down [B,T,R,N], up [B,T,R,M], gate [B,T,M], full [B,T,N,M].
struct QueryMix {
  Tensor down_BTRH, up_BTRH, gate_BTH, full_BTHH;
};

/// The key side of a head mix, as a cache holds it (dimension 1 is the key).
struct KeyMix {
  Tensor down_BSRH, up_BSRH, gate_BSH, full_BSHH;
};

/// The part of a head mix that is the same at every place: identity (a flag, never inferred) and weight [N,M].
/// A mix in which nothing is set on any side passes its input through.
struct StaticMix {
  bool identity = false;
  Tensor weight_HH;
};

/// q [B,T,Hs,D]. lambda (a number, [Ho] or [B,T,Ho]) makes the post mix pairs, alone: U[i] = P[2i] - lambda[i] P[2i+1].
struct Queries {
  Tensor q_BTHD;
  QueryMix pre, post;
  Tensor lambda;
};

/// k [B,S,Gk,D], v [B,S,Gv,E]: everything that a cache holds, and nothing else.
struct Keys {
  Tensor k_BSGD, v_BSGE;
  KeyMix pre, post;
};

/// f(tensor) for every tensor of a KeyMix, or of Keys, absent ones too, always in this order.
template <class M, class Function>
void for_each_part(M& mix, const Function& f) {
  f(mix.down_BSRH), f(mix.up_BSRH), f(mix.gate_BSH), f(mix.full_BSHH);
}
template <class K, class Function>
void for_each_tensor(K& keys, const Function& f) {
  f(keys.k_BSGD), f(keys.v_BSGE);
  for_each_part(keys.pre, f), for_each_part(keys.post, f);
}

/// Head counts by stage; 0 is taken from the tensors, any other number is checked against them. key_of and value_of say
/// which stored head a score (output) head reads; empty means contiguous groups.
struct Heads {
  int64_t scores = 0, softmax = 0, outputs = 0;
  std::vector<int64_t> key_of, value_of;
};

/// Query t of sequence b stands at query_start[b] + t (default S - T) and sees key s when key_begin[b] <= s <
/// key_end[b] and, if causal, s <= position and, with window w > 0 (causal only), position - s < w and, with documents
/// [B,S], both have the same one. Tables are integer tensors [B]. bias [1 or B, 1 or Ha, T, S] is added after the pre
/// mix; -inf hides.
struct Visibility {
  bool causal = false;
  int64_t window = 0;
  Tensor query_start_B, key_begin_B, key_end_B, documents_BS, bias_BHTS;
};

struct Attention {
  Heads heads;
  StaticMix pre, post;
  Visibility visibility;
  std::optional<double> scale;  // default 1 / sqrt(D)
  Precision precision = Precision::highest;
};

/// Why calls on tensors of this device and dtype (of q) cannot have the precision high; "" where they can.
std::string why_not_high(at::Device, at::ScalarType);
/// Throws UsageError, behind `what` (the option), where they cannot have it.
void check_precision(Precision, at::Device, at::ScalarType, const std::string& what);

/// out [B,T,Ho,E] in q's dtype; lse [B,Ha,T] = log sum_s exp L in float32 (float64 for float64 inputs), -inf where a
/// query sees nothing. lse is not differentiable.
struct Attended {
  Tensor out_BTHE, lse_BHT;
};

/// Composed attention with gradients for q, k, v, bias and every tensor of the mixes, lambda included.
/// Dtypes  q: float32, bfloat16, float16 or float64; k and v as q, or in 16 bits under a float32 q (a cache in fewer
///         bits); mix tensors, lambda and bias as q or float32, those of the key side also as k and v may be.
///         Sums, softmax and mixing run in at least float32; but the row cuda, where q has 16 bits and tensor cores
///         take the problem, keeps scores, weights and the parts of mixes in float16 between products that sum in
///         float32.
/// Error   of each element of out and of the gradients against float64: at most 4 eps (1 + M) X with eps = 2^-23, 2^-52
///         in float64. X is the sum of the absolute values of the terms that make the element, M the largest such sum
///         of a visible logit; of lse, X = 1. That is of terms whose roundings differ, up to 16384 keys: of equal
///         terms, and of more keys, sums lose as those of plain torch do. Results in 16 bits are off by another
///         1/2 unit of X in their last place: that is their rounding. The kernel fused adds 1/2 unit to `out`
///         in bfloat16, whose weights are rounded, fused_amx to the gradients of q, k and v too; sdpa has 4 units and,
///         in 16 bits, 2^-15 (1 + M) X + 2^-14. cuda on tensor cores has 1.5 units in bfloat16 and 2^-9 (1 + M) X +
///         2^-14; between products of PyTorch, which long problems get that no tensor-core kernel takes, it adds 1/2
///         unit to out and the gradients of q, k and v in 16 bits, and 2^-14 in float16. property_test.cpp holds every
///         row of the kernel table to this.
/// Precision  high is refused wherever the row fused_amx cannot run the problem and where q is not float32, and is
///         its own request for that row. It then replaces 4 eps above by 2^-14; up to 16 queries against more keys are
///         multiplied as ever.
/// Kernel  names a row of the kernel table; without it the first that runs the problem does (motet/ops/table.h).
/// Throws  c10::ValueError naming the argument, what it was and what it must be; a second derivative is refused.
/// Source  DCMHA arXiv:2405.08553, talking heads arXiv:2003.02436, differential attention arXiv:2410.05258; README.md.
Attended composed_attention(const Queries&, const Keys&, const Attention&, const char* kernel = nullptr);

/// Scales of keys in 8 bits: k and v are int8, and a row of a stored head stands for its scale (float32) times its
/// numbers. So may tensors of the mixes, for a row of their last dimension: scales in the shapes of the others.
struct KeyScales {
  Tensor k_BSG, v_BSG;
  KeyMix pre = {}, post = {};
};
/// for_each_tensor of the keys, of their scales.
template <class S, class Function>
void for_each_scale(S& scales, const Function& f) {
  f(scales.k_BSG), f(scales.v_BSG);
  for_each_part(scales.pre, f), for_each_part(scales.post, f);
}

/// Composed attention on such keys, inference alone; q in float32. The row fused reads them as they lie, and for up
/// to 16 queries the row cuda, mixes in 8 bits aside; where those cannot run the problem they are widened first.
Attended composed_attention(const Queries&, const Keys&, const KeyScales&, const Attention&);
/// The same keys in float32, those of them that have scales.
Keys widened_keys(const Keys&, const KeyScales&);

/// Phase 1 of a split over keys: lse [B,Ha,T] of this part of the keys. Inference only.
Tensor attention_lse(const Queries&, const Keys&, const Attention&, const char* kernel = nullptr);

/// Phase 2: the output of this part under the lse of all parts (log-sum-exp of theirs); outputs of parts add up.
Tensor attention_given_lse(const Queries&, const Keys&, const Attention&, const Tensor& lse_BHT,
                           const char* kernel = nullptr);

/// One head mix on its own: scores [B,N,T,S] -> [B,M,T,S]; differentiable by autograd.
Tensor apply_head_mix(const Tensor& scores_BHTS, const StaticMix&, const QueryMix&, const KeyMix&);

/// Every intermediate of the plain definition, [B,H,T,S]: for pictures and proofs; costs T x S memory per head.
struct AttentionMaps {
  Tensor scores_BHTS, logits_BHTS, weights_BHTS, mixed_BHTS;  // A, L (with bias, before the mask), P, U
  Tensor out_BTHE, lse_BHT, hidden_BHTS;                      // hidden: bool, True where a key is not seen
};
AttentionMaps attention_maps(const Queries&, const Keys&, const Attention&);
/// The same with other logits in the place of L, of the same shape: what attention makes of them.
using ChangeLogits = std::function<Tensor(const Tensor& logits_BHTS, const Tensor& hidden_BHTS)>;
AttentionMaps attention_maps(const Queries&, const Keys&, const Attention&, const ChangeLogits&);

/// Which kernel runs this problem, and why each better one does not.
struct Choice {
  std::string kernel;
  std::vector<std::pair<std::string, std::string>> passed_over;  // kernel, reason
};
Choice explain(const Queries&, const Keys&, const Attention&, const char* kernel = nullptr);

/// Names of the kernel table, best first.
std::vector<std::string> kernel_names();

}  // namespace motet
