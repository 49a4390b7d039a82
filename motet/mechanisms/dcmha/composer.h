#pragma once
#include <map>

#include "motet/attention/parts.h"
#include "motet/layers/streams.h"
#include "motet/mechanisms/mechanism.h"
#include "motet/ops/ops.h"

namespace motet {

/// Branches of the generator, in the order of the stored axis P, which has only those that are on.
inline constexpr const char* kDcmhaBranches[] = {"pre_query", "pre_key", "post_query", "post_key"};
enum DcmhaBranch { kPreQuery, kPreKey, kPostQuery, kPostKey };

/// What a composer makes of hidden states, and for how many heads.
struct ComposerSizes {
  int64_t heads = 0, groups = 1, rank = 2;  // N, G groups of N/G heads, R
  std::vector<int> branches;                // that are on, P of them
  bool low_rank = true, gates = true;
  bool gelu_by_tanh = false;
};

/// The generator of DCMHA: low-rank maps over heads and gates, from hidden states of queries and keys. Its parameters
/// are its owner's, compose_hidden [C,G,P,K], compose_up [G,P,K,2R,N/G] and compose_gate [C,P,N], K = 2 R N/G.
class Composer {
 public:
  Composer(torch::nn::Module& owner, const Setting&, ComposerSizes);

  struct Maps {
    DcmhaMaps pre, post;  // of branches that are off: undefined
  };
  /// From x [B,T,C], for queries or keys.
  Maps maps(const Tensor& x_BTC, Side) const;

  /// As the authors' training code (JAX) draws them; the first maps are near 0.
  void initialize(const Streams&);
  /// What maps() reads in passes without gradients until it is dropped, the rows that read x in this type, as a linear
  /// layer's (layers/preparable.h).
  int64_t prepared_bytes(WeightType) const;
  void prepare(Prepared, WeightType, WeightArena&);
  void drop_prepared();

 private:
  bool generates(Side) const;
  DcmhaGenerator generator(Side) const;     // the parameters of a side's branches
  std::vector<int64_t> places(Side) const;  // in sizes_.branches

  ComposerSizes sizes_;
  int64_t width_;
  Tensor hidden_CGPK, up_GPKRN, gate_CPH;
  std::map<Side, DcmhaGenerator> prepared_;
};

}  // namespace motet
