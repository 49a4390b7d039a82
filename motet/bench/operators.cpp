#include "motet/bench/operators.h"

#include "motet/core/error.h"

namespace motet {
namespace {

using Shape = std::vector<int64_t>;

class Inputs {
 public:
  Tensor operator()(const Shape& shape, double scale = 1) { return at::randn(shape, generator_).mul_(scale); }
  Tensor near_identity(int64_t heads) { return (*this)({heads, heads}, 0.1) + at::eye(heads); }

  /// Causal attention of H score heads on as many keys of width D, and values [value_heads, E].
  Arguments causal(const AttentionSize& n, int64_t D, int64_t value_heads, int64_t E) {
    Arguments a;
    a.input[kQ] = (*this)({n.B, n.T, n.H, D});
    a.input[kK] = (*this)({n.B, n.T, n.H, D});
    a.input[kV] = (*this)({n.B, n.T, value_heads, E});
    a.causal = true;
    return a;
  }

 private:
  at::Generator generator_ = at::detail::createCPUGenerator(1);
};

Arguments mha(const AttentionSize& n) { return Inputs().causal(n, n.D, n.H, n.D); }

Arguments key_size(const AttentionSize& n) { return Inputs().causal(n, 4 * n.D, n.H, n.D); }

Arguments talking_heads(const AttentionSize& n) {
  Inputs inputs;
  Arguments a = inputs.causal(n, n.D, n.H, n.D);
  a.input[kPre + kWeight] = inputs.near_identity(n.H);
  a.input[kPost + kWeight] = inputs.near_identity(n.H);
  return a;
}

Arguments composed(const AttentionSize& n, const std::vector<int>& sides) {
  constexpr int64_t kRank = 2;
  Inputs inputs;
  Arguments a = inputs.causal(n, n.D, n.H, n.D);
  a.pre_identity = a.post_identity = true;
  for (int place : {kPre, kPost}) {
    for (int side : sides) {
      a.input[place + side] = inputs({n.B, n.T, kRank, n.H});
      a.input[place + side + 1] = inputs({n.B, n.T, kRank, n.H}, 0.1);  // up
      a.input[place + side + 2] = inputs({n.B, n.T, n.H}, 0.1);         // gate
    }
  }
  return a;
}

Arguments dcmha(const AttentionSize& n) { return composed(n, {kQueryDown, kKeyDown}); }

Arguments dcmha_query_wise(const AttentionSize& n) { return composed(n, {kQueryDown}); }

Arguments differential_v1(const AttentionSize& n) {
  Arguments a = Inputs().causal(n, n.D, n.H / 2, 2 * n.D);
  a.input[kLambda] = at::full({}, 0.5);
  return a;
}

Arguments differential_v2(const AttentionSize& n) {
  Inputs inputs;
  Arguments a = inputs.causal(n, n.D, n.H, n.D);
  a.input[kQ] = inputs({n.B, n.T, 2 * n.H, n.D});
  a.input[kLambda] = inputs({n.B, n.T, n.H}).sigmoid_();
  return a;
}

}  // namespace

const std::vector<BenchedOperator>& benched_operators() {
  static const std::vector<BenchedOperator> all{
      {"mha", "plain attention", false, mha},
      {"key_size", "queries and keys of width 4 D", false, key_size},
      {"talking_heads", "static mixes before and after the softmax", false, talking_heads},
      {"dcmha", "identity, rank 2 and gates of both sides, before and after the softmax", false, dcmha},
      {"dcmha_query_wise", "the same of the queries' side alone", false, dcmha_query_wise},
      {"differential_v1", "H/2 pairs, values of width 2 D, one lambda", true, differential_v1},
      {"differential_v2", "2 H score heads, a lambda for each token and head", false, differential_v2},
  };
  return all;
}

std::vector<std::string> benched_names() {
  std::vector<std::string> names;
  for (const BenchedOperator& row : benched_operators()) names.emplace_back(row.name);
  return names;
}

const BenchedOperator& benched_operator(const std::string& name) {
  for (const BenchedOperator& row : benched_operators())
    if (row.name == name) return row;
  throw Error(unknown_name("mechanism", name, benched_names()));
}

}  // namespace motet
