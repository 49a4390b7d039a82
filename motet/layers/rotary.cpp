#include "motet/layers/rotary.h"

#include <cmath>
#include <numbers>
#include <sstream>

#include "motet/ops/ops.h"

namespace motet {
namespace {

using Options = RotaryOptions;

// at::where has no meta kernel, on which plans are made: the pieces are added up, each times 0 or 1.
Tensor llama3(const Tensor& theta, const Options& o) {
  const Tensor wavelength = 2 * std::numbers::pi / theta;
  const double length = static_cast<double>(o.max_position);
  const Tensor smooth = (length / wavelength - o.low_freq_factor) / (o.high_freq_factor - o.low_freq_factor);
  const Tensor between = (1 - smooth) * theta / o.factor + smooth * theta;
  const Tensor fast = (wavelength < length / o.high_freq_factor).to(theta.scalar_type()),
               slow = (wavelength > length / o.low_freq_factor).to(theta.scalar_type());
  return fast * theta + slow * (theta / o.factor) + (1 - fast - slow) * between;
}

}  // namespace

std::string Options::key() const {
  std::ostringstream s;
  s.precision(17);
  s << dims << ' ' << base << ' ' << int(pairing) << ' ' << int(scaling) << ' ' << factor << ' ' << max_position << ' '
    << low_freq_factor << ' ' << high_freq_factor;
  return s.str();
}

Positions Positions::packed(const Tensor& documents) {
  const int64_t tokens = documents.size(1);
  const Tensor place_T = at::arange(tokens, documents.options().dtype(at::kLong));
  const Tensor begins_BT = at::cat(
      {at::ones_like(documents.slice(1, 0, 1), at::kBool), documents.slice(1, 1) != documents.slice(1, 0, -1)}, 1);
  const Tensor begin_BT = std::get<0>((begins_BT * place_T).cummax(1));
  Positions positions{place_T - begin_BT, tokens};
  positions.documents_BT = documents;
  return positions;
}

Positions Positions::range(int64_t begin, int64_t end, int64_t length, at::Device device) {
  return {at::arange(begin, end, at::TensorOptions().dtype(at::kLong).device(device)), length};
}

Positions Positions::joined(std::vector<Positions> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  std::vector<Tensor> at;
  for (const Positions& part : parts) at.push_back(part.at);
  Positions all{at::cat(at)};
  all.parts = std::move(parts);
  return all;
}

Rotary::Rotary(Options options) : options_(options), key_(options.key()) {}

Tensor Rotary::inverse_frequencies(int64_t length, at::Device device) const {
  const Options& o = options_;
  const double r = static_cast<double>(o.dims), exponent = r / (r - 2);
  double base = o.base;
  if (o.scaling == Options::Scaling::ntk) base *= std::pow(o.factor, exponent);
  if (o.scaling == Options::Scaling::dynamic && length > o.max_position)
    base *= std::pow(o.factor * static_cast<double>(length) / static_cast<double>(o.max_position) - (o.factor - 1),
                     exponent);
  const Tensor j = at::arange(0, o.dims, 2, at::TensorOptions(at::kDouble).device(device));
  const Tensor theta = at::exp(j * (-std::log(base) / r));
  return o.scaling == Options::Scaling::llama3 ? llama3(theta, o) : theta;
}

RotaryTables Rotary::tables(const Positions& positions, at::ScalarType type) const {
  const std::string key = key_ + c10::toString(type);
  if (const auto found = positions.tables->find(key); found != positions.tables->end()) return found->second;
  // Of dynamic scaling alone the frequencies depend on the length of a part.
  if (!positions.parts.empty() && options_.scaling == Options::Scaling::dynamic) {
    std::vector<Tensor> cos, sin;
    for (const Positions& part : positions.parts) {
      const RotaryTables own = tables(part, type);
      cos.push_back(own.cos), sin.push_back(own.sin);
    }
    return (*positions.tables)[key] = {at::cat(cos, 1), at::cat(sin, 1)};
  }
  Tensor at = positions.at.to(at::kDouble);
  if (options_.scaling == Options::Scaling::linear) at = at / options_.factor;
  const Tensor theta = inverse_frequencies(positions.length, at.device());
  const Tensor angle = (at.dim() == 1 ? at.unsqueeze(0) : at).unsqueeze(-1).unsqueeze(-1) * theta;
  return (*positions.tables)[key] = {angle.cos().to(type), angle.sin().to(type)};
}

Tensor Rotary::operator()(const Tensor& x_BTHD, const Positions& positions) const {
  if (!active()) return x_BTHD;
  const RotaryTables t = tables(positions, x_BTHD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  return ops::rotate(x_BTHD, {t.cos, t.sin, options_.pairing == Options::Pairing::interleaved});
}

}  // namespace motet
