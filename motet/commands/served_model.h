#pragma once
#include "motet/generate/batch.h"
#include "motet/serve/model.h"

namespace motet {

/// A model that is ready for inference (ModelImpl::prepare), as the server's engine uses it. One thread at a time calls
/// it, with `threads` of torch; cache_bytes() any.
class BatchModel : public ServedModel {
 public:
  BatchModel(Model, CacheOptions, int64_t threads);

  int64_t context() const override { return model_->config().context; }
  int64_t cache_bytes(int64_t tokens) const override;
  std::unique_ptr<ServedSequence> begin(int64_t planned) override;
  bool can_end_at(const ServedSequence&, int64_t tokens) const override;
  std::unique_ptr<ServedSequence> copy(const ServedSequence&, int64_t tokens, int64_t planned) override;
  void step(std::span<const ServedPiece>, const OnLogits&) override;
  std::string first_non_finite(std::span<const int32_t> ids) override;
  void rest() override;

 private:
  struct Sequence;
  int64_t scaling_length(int64_t planned) const;

  Model model_;
  CacheOptions options_;
  int threads_;
  std::vector<LayerCost> costs_;
  bool scales_by_length_;
};

}  // namespace motet
