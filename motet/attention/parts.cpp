#include "motet/attention/parts.h"

#include <algorithm>

namespace motet {

bool HeadMix::any_part() const {
  return std::ranges::any_of(part, [](const Tensor& t) { return t.defined(); });
}

bool HeadMix::on(Side side) const {
  for (int i = 0; i < kNumMixParts; ++i)
    if (kMixParts[i].side == side && has(i)) return true;
  return false;
}

std::string input_name(int index) {
  static constexpr std::string_view kFirst[] = {"q", "k", "v", "bias", "pair_lambda"};
  if (index < kPre) return std::string(kFirst[index]);
  const bool post = index >= kPost;
  return (post ? "post_" : "pre_") + std::string(kMixParts[index - (post ? kPost : kPre)].name);
}

std::string_view table_name(int index) {
  static constexpr std::string_view kNames[] = {"query_start", "key_begin", "key_end", "documents"};
  return kNames[index];
}

HeadMix head_mix(const StaticMix& fixed, const QueryMix& query, const KeyMix& key) {
  return {fixed.identity,
          {fixed.weight_HH, query.down_BTRH, query.up_BTRH, query.gate_BTH, query.full_BTHH, key.down_BSRH, key.up_BSRH,
           key.gate_BSH, key.full_BSHH}};
}

Arguments flatten(const Queries& queries, const Keys& keys, const Attention& attention) {
  const Visibility& seen = attention.visibility;
  Arguments a;
  a.input[kQ] = queries.q_BTHD;
  a.input[kK] = keys.k_BSGD;
  a.input[kV] = keys.v_BSGE;
  a.input[kBias] = seen.bias_BHTS;
  a.input[kLambda] = queries.lambda;
  std::ranges::copy(head_mix(attention.pre, queries.pre, keys.pre).part, a.input.begin() + kPre);
  std::ranges::copy(head_mix(attention.post, queries.post, keys.post).part, a.input.begin() + kPost);
  a.table = {seen.query_start_B, seen.key_begin_B, seen.key_end_B, seen.documents_BS};
  a.pre_identity = attention.pre.identity;
  a.post_identity = attention.post.identity;
  a.causal = seen.causal;
  a.window = seen.window;
  a.key_of = attention.heads.key_of;
  a.value_of = attention.heads.value_of;
  a.scale = attention.scale;
  if (attention.precision == Precision::high) a.precision = "high";
  return a;
}

}  // namespace motet
