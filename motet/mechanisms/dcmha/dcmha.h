#pragma once
#include "motet/mechanisms/dcmha/composer.h"
#include "motet/mechanisms/projected.h"

namespace motet {

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
  int64_t prepared_bytes(WeightType) const override;
  void prepare(Prepared, WeightType, WeightArena&) override;
  void drop_prepared() override;

 private:
  Tensor block_diagonal(const Tensor& map_GNN) const;

  DcmhaOptions options_;
  int64_t heads_;
  Composer composer_;
  Tensor static_pre_GNN, static_post_GNN;
};

MechanismEntry dcmha_entry();

}  // namespace motet
