#pragma once
#include <optional>

#include "motet/mechanisms/dcmha/composer.h"
#include "motet/mechanisms/projected.h"

namespace motet {

struct DifferentialOptions {
  enum class Version { v1, v2 };
  enum class LambdaStart { schedule, constant };
  enum class LambdaForm { sigmoid, raw, none };
  enum class Pairs { within, across };
  Version version = Version::v1;
  LambdaStart lambda_start = LambdaStart::schedule;
  double lambda_init = 0.8, lambda_std = 0.1;
  std::optional<NormKind> head_norm = NormKind::rms;
  double head_norm_eps = 1e-5;
  bool compose = false;
  int64_t compose_rank = 2;
  LambdaForm lambda_form = LambdaForm::sigmoid;
  Pairs pairs = Pairs::within;
};

/// Differential attention: the difference of two softmax maps. V1: pairs of heads over values of double width, lambda a
/// learned number of the layer, a norm per head. V2: double query heads, lambda per token and head. README.md.
class Differential : public Projected {
 public:
  explicit Differential(const Setting&);
  Keys keys(const Tensor& memory_BSC, const Positions&) override;
  Queries queries(const Tensor& x_BTC, const Positions&) override;
  Attention attention(const Positions& queries, const Positions& keys, Pass) override;
  Tensor finish(const Tensor& out_BTHE, const Tensor& x_BTC) override;
  std::vector<LearnedMap> learned() override;
  std::vector<Diagnostic> diagnostics(const Tensor& x_BTC, const Queries&, const Keys&) override;
  void initialize_extras(const Streams&) override;
  bool decays(const std::string& name) const override;
  std::string caveat() const override;
  int64_t prepared_bytes(WeightType) const override;
  void prepare(Prepared, WeightType, WeightArena&) override;
  void drop_prepared() override;

  Tensor lambda() const;  // V1: a number
  double lambda_init() const { return lambda_init_; }

 private:
  Tensor lambda_of(const Tensor& x_BTC);  // V1 and V2 without lambda: a number; V2: [B,T,Ho]
  Tensor subtraction() const;             // V1: [H,Ho], 1 and -lambda for each pair
  DcmhaMaps subtracted(DcmhaMaps) const;

  DifferentialOptions options_;
  bool second_;  // V2
  double lambda_init_;
  Tensor lambda_q1_D, lambda_k1_D, lambda_q2_D, lambda_k2_D;  // V1
  std::optional<Composer> composer_;                          // V1 with compose
  Tensor compose_static_HH;
  Linear lambda_proj{nullptr};  // V2, unless without lambda
  Norm head_norm{nullptr};      // V1
};

MechanismEntry differential_entry();

}  // namespace motet
