#include "motet/mechanisms/coca/collinear.h"

#include "motet/mechanisms/projected.h"

namespace motet {
namespace {

std::pair<Tensor, Tensor> halves(const Tensor& x) {
  return {x.slice(-1, 0, x.size(-1) / 2), x.slice(-1, x.size(-1) / 2)};
}

}  // namespace

Collinear::Collinear(CocaForm form, int64_t key_dim, const Rotary& rotary) : form_(form) {
  if (key_dim % 2)
    refuse_option("head_dim", text("collinear keys tie the halves of a head, want an even width, have ", key_dim));
  if (rotary.options().pairing != RotaryOptions::Pairing::half)
    refuse_option("rope_pairing", "collinear keys tie dimension j to j + width/2, want half");
  if (form != CocaForm::slack && rotary.options().dims != key_dim)
    refuse_option("rope_fraction", text("the ", form == CocaForm::exact ? "exact" : "strict",
                                        " form is defined for a whole rotated head, want 1"));
}

// h = relu of the mean of both halves.
Tensor Collinear::compact(const Tensor& k) const {
  const auto [first, second] = halves(k);
  return at::threshold((first + second) * 0.5, 0, 0);  // at::relu has no meta kernel
}

// slack and strict: rope([h ; h]), exact: rope([h ; 0]).
Tensor Collinear::key(const Tensor& h, const Rotary& rotary, const Positions& at) const {
  return rotary(at::cat({h, form_ == CocaForm::exact ? at::zeros_like(h) : h}, -1), at);
}

// slack: q * rope(q); strict: the same with tied q; exact: rope([x^2 + y^2 ; 0]) of the halves x, y.
Tensor Collinear::query(const Tensor& given, const Rotary& rotary, const Positions& at) const {
  Tensor q = given;
  const auto [first, second] = halves(q);
  if (form_ == CocaForm::exact) {
    const Tensor length = first * first + second * second;
    return rotary(at::cat({length, at::zeros_like(length)}, -1), at);
  }
  if (form_ == CocaForm::strict) {
    const Tensor mean = (first + second) * 0.5;
    q = at::cat({mean, mean}, -1);
  }
  return q * rotary(q, at);
}

}  // namespace motet
