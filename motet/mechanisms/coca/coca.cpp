#include "motet/mechanisms/coca/coca.h"

#include "motet/core/error.h"

namespace motet {
namespace {

HeadSizes sizes(const Setting& s) {
  HeadSizes plain = plain_sizes(s);
  plain.key_name = "t_proj";
  return plain;
}

const Fields<CocaOptions>& options() {
  static const Fields<CocaOptions> table{
      {"form",
       &CocaOptions::form,
       {{"exact", CocaForm::exact}, {"slack", CocaForm::slack}, {"strict", CocaForm::strict}},
       "exact: the paper's score, shift-invariant; slack: the released code; strict: queries tied too"}};
  return table;
}

std::pair<Tensor, Tensor> halves(const Tensor& x) {
  return {x.slice(-1, 0, x.size(-1) / 2), x.slice(-1, x.size(-1) / 2)};
}

}  // namespace

Coca::Coca(const Setting& s) : Projected(s, sizes(s)), form_(options().read(s.options.all).form) {
  if (sizes_.key_dim % 2)
    refuse_option("head_dim", text("coca ties the halves of a head, want an even width, have ", sizes_.key_dim));
  if (s.options.common.rope_pairing != RotaryOptions::Pairing::half)
    refuse_option("rope_pairing", "coca ties dimension j to j + width/2, want half");
  if (form_ != CocaForm::slack && rotary_.options().dims != sizes_.key_dim)
    refuse_option("rope_fraction", text("the ", form_ == CocaForm::exact ? "exact" : "strict",
                                        " form is defined for a whole rotated head, want 1"));
}

// h = relu of the mean of both halves.
Keys Coca::compact_keys(const Tensor& memory, const Positions&) {
  const auto [k, v] = key_and_value_heads(memory);
  const auto [first, second] = halves(k);
  return {at::threshold((first + second) * 0.5, 0, 0), v, {}, {}};  // at::relu has no meta kernel
}

// slack and strict: rope([h ; h]), exact: rope([h ; 0]).
Keys Coca::restore(const Keys& compact, const Positions& at) {
  const Tensor& h = compact.k_BSGD;
  const Tensor tied = at::cat({h, form_ == CocaForm::exact ? at::zeros_like(h) : h}, -1);
  return {rotary_(tied, at), compact.v_BSGE, {}, {}};
}

Keys Coca::keys(const Tensor& memory, const Positions& at) { return restore(compact_keys(memory, at), at); }

// slack: q * rope(q); strict: the same with tied q; exact: rope([x^2 + y^2 ; 0]) of the halves x, y.
Queries Coca::queries(const Tensor& x, const Positions& at) {
  Tensor q = query_heads(x);
  const auto [first, second] = halves(q);
  if (form_ == CocaForm::exact) {
    const Tensor length = first * first + second * second;
    return {rotary_(at::cat({length, at::zeros_like(length)}, -1), at), {}, {}, {}};
  }
  if (form_ == CocaForm::strict) {
    const Tensor mean = (first + second) * 0.5;
    q = at::cat({mean, mean}, -1);
  }
  return {q * rotary_(q, at), {}, {}, {}};
}

MechanismEntry coca_entry() {
  return {.name = "coca",
          .summary = "collinear queries and keys under rotary embedding, for long contexts (CoCA)",
          .options = options().table(),
          .presets = {{"coca", true, {{"mechanism", "coca"}, {"form", "exact"}}},
                      {"coca_slack", false, {{"mechanism", "coca"}, {"form", "slack"}}}},
          .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<Coca>(s); }};
}

}  // namespace motet
