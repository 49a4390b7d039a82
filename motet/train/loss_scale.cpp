#include "motet/train/loss_scale.h"

namespace motet {

void LossScale::unscale(const std::vector<Tensor>& gradients, double times) const {
  if (!on_ || gradients.empty()) return;
  Tensor found = at::zeros({1}, gradients[0].options().dtype(at::kFloat)),
         inverse = at::full({1}, times / scale_, found.options());
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse);
}

bool LossScale::update(bool finite) {
  constexpr int64_t kGrowthInterval = 2000;
  if (!on_) return true;
  finite_steps_ = finite ? finite_steps_ + 1 : 0;
  if (!finite) scale_ /= 2;
  if (finite_steps_ == kGrowthInterval) scale_ *= 2, finite_steps_ = 0;
  return finite;
}

void LossScale::restore(const nlohmann::json& state) {
  scale_ = state.at("scale").get<double>();
  finite_steps_ = state.at("finite_steps").get<int64_t>();
}

}  // namespace motet
