#pragma once
#include <optional>

#include "motet/mechanisms/projected.h"

namespace motet {

/// Branches of the generator, in the order of the stored axis P, which has only those that `sides` and `where` leave
/// on.
inline constexpr const char* kDcmhaBranches[] = {"pre_query", "pre_key", "post_query", "post_key"};

struct DcmhaOptions {
  int64_t rank = 2;
  Sides sides;   // whose hidden states the maps are made from
  Places where;  // around the softmax
  bool low_rank = true, gates = true, fixed = false;
  int64_t groups = 1;
  Activation gelu = Activation::gelu;
};
const Fields<DcmhaOptions>& dcmha_options();
/// Places in kDcmhaBranches of those that are on.
std::vector<int> active_branches(const DcmhaOptions&);

/// Dynamically composable multi-head attention: heads are recombined per query and key, before and after the softmax,
/// by low-rank maps and gates made from the layer's input. README.md of this folder.
class Dcmha : public Projected {
 public:
  explicit Dcmha(const Setting&);
  Keys keys(const Tensor& memory_BSC, const Positions&) override;
  Queries queries(const Tensor& x_BTC, const Positions&) override;
  Attention attention(const Positions& queries, const Positions& keys, Pass) override;
  std::vector<LearnedMap> learned() override;
  std::vector<Diagnostic> diagnostics(const Tensor& x_BTC, const Queries&, const Keys&) override;
  void initialize_extras(const Streams&) override;
  bool decays(const std::string& name) const override;
  void prepare(WeightType, WeightArena&) override;
  void drop_prepared() override;

 private:
  struct Side {
    DcmhaMaps pre, post;
  };
  Side side(const Tensor& x_BTC, bool key) const;
  bool generates(bool key) const;
  DcmhaGenerator generator(bool key) const;     // the parameters of a side's branches
  std::vector<int64_t> places(bool key) const;  // in branches_
  Tensor block_diagonal(const Tensor& map_GNN) const;

  DcmhaOptions options_;
  int64_t heads_;
  std::vector<int> branches_;  // that are on, P of them; G groups of N/G heads, K hidden
  Tensor hidden_CGPK, up_GPKRN, gate_CPH;
  Tensor static_pre_GNN, static_post_GNN;
  std::optional<DcmhaGenerator> prepared_[2];  // of queries and keys, without gaps
};

MechanismEntry dcmha_entry();

}  // namespace motet
