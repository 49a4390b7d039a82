#include "motet/train/average.h"

#include <charconv>

#include "motet/core/error.h"

namespace motet {
namespace {

struct How {
  double decay = 0;    // of ema
  int64_t copies = 0;  // of the weights
};

template <class Number>
std::optional<Number> number_in(std::string_view word) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() ? std::optional(number) : std::nullopt;
}

How parsed(const std::string& how) {
  constexpr std::string_view kEma = "ema:", kLast = "last:";
  if (how.empty()) return {};
  if (how.starts_with(kEma))
    if (const auto decay = number_in<double>(std::string_view(how).substr(kEma.size()));
        decay && *decay > 0 && *decay < 1)
      return {.decay = *decay, .copies = 1};
  if (how.starts_with(kLast))
    if (const auto count = number_in<int64_t>(std::string_view(how).substr(kLast.size()));
        count && *count >= 2 && *count <= 100)
      return {.copies = *count};
  fail_usage("train.average: is ", quote(how), ", want ema:D with D between 0 and 1, or last:N with N from 2 to 100");
}

}  // namespace

int64_t WeightAverage::copies(const std::string& how) { return parsed(how).copies; }

WeightAverage::WeightAverage(ModelImpl& model, const std::string& how) : decay_(parsed(how).decay) {
  copies_.resize(static_cast<size_t>(copies(how)));
  if (copies_.empty()) return;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    names_.push_back(item.key());
    parameters_.push_back(item.value());
    for (auto& copy : copies_) copy.push_back(at::zeros_like(item.value()).requires_grad_(false));
  }
}

void WeightAverage::step(bool checkpoint) {
  at::NoGradGuard no_grad;
  if (copies_.empty() || parameters_.empty()) return;
  const bool ema = decay_ > 0;
  if (!ema && !checkpoint) return;
  std::vector<Tensor>& own = copies_[static_cast<size_t>(count_) % copies_.size()];
  if (ema && count_ > 0) {
    at::_foreach_lerp_(own, parameters_, 1 - decay_);
  } else {
    at::_foreach_copy_(own, parameters_);
  }
  ++count_;
}

std::vector<Tensor> WeightAverage::averaged() const {
  const auto all = std::min(static_cast<size_t>(count_), copies_.size());
  if (all == 1) return copies_[0];
  std::vector<Tensor> means;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor sum = copies_[0][i].clone();
    for (size_t k = 1; k < all; ++k) sum += copies_[k][i];
    means.push_back(sum.div_(static_cast<double>(all)));
  }
  return means;
}

WeightAverage::Applied::Applied(const WeightAverage& average) : parameters_(average.parameters_) {
  const std::vector<Tensor> values = average.averaged();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    own_.push_back(parameters_[i].data());
    parameters_[i].set_data(values[i]);
  }
}

WeightAverage::Applied::~Applied() {
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].set_data(own_[i]);
}

std::vector<std::pair<std::string, Tensor>> WeightAverage::tensors() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (size_t k = 0; k < copies_.size(); ++k)
    for (size_t i = 0; i < names_.size(); ++i)
      all.emplace_back(copies_.size() == 1 ? "average." + names_[i] : text("average.", k, ".", names_[i]),
                       copies_[k][i]);
  return all;
}

}  // namespace motet
