#include "motet/layers/rotary.h"

#include <cmath>
#include <numbers>
#include <sstream>

#include "motet/core/error.h"
#include "motet/kernels/rows.h"
#include "motet/layers/linear.h"

namespace motet {
namespace {

using Options = RotaryOptions;

// The a and b halves of the pairs of the first `dims` dimensions.
std::pair<Tensor, Tensor> pairs(const Tensor& x, int64_t dims, bool interleaved) {
  if (interleaved) return {x.slice(-1, 0, dims, 2), x.slice(-1, 1, dims, 2)};
  return {x.slice(-1, 0, dims / 2), x.slice(-1, dims / 2, dims)};
}

// (a, b) -> (a cos - b sin, b cos + a sin); backward is the rotation by the opposite angle.
Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved, double sign) {
  const int64_t dims = 2 * cos.size(-1);
  const Tensor wide = x.to(cos.scalar_type());
  Tensor out = at::empty(wide.sizes(), wide.options());
  const auto [a, b] = pairs(wide, dims, interleaved);
  auto [out_a, out_b] = pairs(out, dims, interleaved);
  at::mul_out(out_a, a, cos).addcmul_(b, sin, -sign);
  at::mul_out(out_b, b, cos).addcmul_(a, sin, sign);
  if (dims < x.size(-1)) out.slice(-1, dims).copy_(wide.slice(-1, dims));
  return out.to(x.scalar_type());
}

class Rotate : public torch::autograd::Function<Rotate> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& cos,
                        const Tensor& sin, bool interleaved) {
    context->save_for_backward({cos, sin});
    context->saved_data["interleaved"] = interleaved;
    return rotated(x, cos, sin, interleaved, 1);
  }
  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    const auto saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], context->saved_data["interleaved"].toBool(), -1), Tensor(),
            Tensor(), Tensor()};
  }
};

Tensor llama3(const Tensor& theta, const Options& o) {
  const Tensor wavelength = 2 * std::numbers::pi / theta;
  const double length = static_cast<double>(o.max_position);
  const Tensor smooth = (length / wavelength - o.low_freq_factor) / (o.high_freq_factor - o.low_freq_factor);
  const Tensor between = (1 - smooth) * theta / o.factor + smooth * theta;
  return at::where(wavelength < length / o.high_freq_factor, theta,
                   at::where(wavelength > length / o.low_freq_factor, theta / o.factor, between));
}

// The kernel's way, without gradient.
Tensor rotated_heads(const Tensor& x_BTHD, const RotaryTables& t, const Options& o) {
  const int64_t T = x_BTHD.size(1), H = x_BTHD.size(2), D = x_BTHD.size(3), rows = x_BTHD.size(0) * T,
                pairs = o.dims / 2;
  const bool one_table = t.cos.size(0) == 1;
  const Tensor y = at::empty(x_BTHD.sizes(), x_BTHD.options());
  const float *from = x_BTHD.const_data_ptr<float>(), *cos = t.cos.const_data_ptr<float>(),
              *sin = t.sin.const_data_ptr<float>();
  float* const to = y.mutable_data_ptr<float>();
  over_parts(rows, (1 << 15) / std::max<int64_t>(H * D, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = (one_table ? row % T : row) * pairs;
      const bool interleaved = o.pairing == Options::Pairing::interleaved;
      rotate_heads(from + row * H * D, H, D, {cos + at, sin + at, pairs, interleaved}, to + row * H * D);
    }
  });
  return y;
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
  const Tensor begin_BT = std::get<0>(at::where(begins_BT, place_T, at::zeros_like(place_T)).cummax(1));
  Positions positions{place_T - begin_BT, tokens};
  positions.documents_BT = documents;
  return positions;
}

Positions Positions::range(int64_t begin, int64_t end, int64_t length, at::Device device) {
  return {at::arange(begin, end, at::TensorOptions().dtype(at::kLong).device(device)), length};
}

Rotary::Rotary(Options options) : options_(options), key_(options.key()) {
  const bool stretches = options.scaling == Options::Scaling::ntk || options.scaling == Options::Scaling::dynamic;
  if (options.dims % 2) fail_usage("rotary embedding: ", options.dims, " dimensions rotate, want an even number");
  if (options.dims > 0 && options.dims <= 2 && stretches)
    fail_usage("rotary embedding: NTK scaling with ", options.dims, " rotary dimensions, want more than 2");
  if (options.scaling == Options::Scaling::llama3 && options.high_freq_factor <= options.low_freq_factor)
    fail_usage("rotary embedding: high_freq_factor is ", options.high_freq_factor, ", want more than low_freq_factor ",
               options.low_freq_factor);
}

Tensor Rotary::inverse_frequencies(int64_t length) const {
  const Options& o = options_;
  const double r = static_cast<double>(o.dims), exponent = r / (r - 2);
  double base = o.base;
  if (o.scaling == Options::Scaling::ntk) base *= std::pow(o.factor, exponent);
  if (o.scaling == Options::Scaling::dynamic && length > o.max_position)
    base *= std::pow(o.factor * static_cast<double>(length) / static_cast<double>(o.max_position) - (o.factor - 1),
                     exponent);
  const Tensor j = at::arange(0, o.dims, 2, at::kDouble);
  const Tensor theta = at::exp(j * (-std::log(base) / r));
  return o.scaling == Options::Scaling::llama3 ? llama3(theta, o) : theta;
}

RotaryTables Rotary::tables(const Positions& positions, at::ScalarType type) const {
  const std::string key = key_ + c10::toString(type);
  if (const auto found = positions.tables->find(key); found != positions.tables->end()) return found->second;
  Tensor at = positions.at.to(at::kDouble);
  if (options_.scaling == Options::Scaling::linear) at = at / options_.factor;
  const Tensor theta = inverse_frequencies(positions.length).to(at.device());
  const Tensor angle = (at.dim() == 1 ? at.unsqueeze(0) : at).unsqueeze(-1).unsqueeze(-1) * theta;
  return (*positions.tables)[key] = {angle.cos().to(type), angle.sin().to(type)};
}

Tensor Rotary::operator()(const Tensor& x_BTHD, const Positions& positions) const {
  if (!active()) return x_BTHD;
  const RotaryTables t = tables(positions, x_BTHD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  if (for_kernels(x_BTHD)) return rotated_heads(x_BTHD, t, options_);
  return Rotate::apply(x_BTHD, t.cos, t.sin, options_.pairing == Options::Pairing::interleaved);
}

}  // namespace motet
