#include "motet/mechanisms/coca/coca.h"

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

}  // namespace

Coca::Coca(const Setting& s)
    : Projected(s, sizes(s)), collinear_(options().read(s.options.all).form, sizes_.key_dim, rotary_) {}

Keys Coca::compact_keys(const Tensor& memory, const Positions&) {
  const auto [k, v] = key_and_value_heads(memory);
  return {collinear_.compact(k), v, {}, {}};
}

Keys Coca::restore(const Keys& compact, const Positions& at) {
  return {collinear_.key(compact.k_BSGD, rotary_, at), compact.v_BSGE, {}, {}};
}

Keys Coca::keys(const Tensor& memory, const Positions& at) { return restore(compact_keys(memory, at), at); }

Queries Coca::queries(const Tensor& x, const Positions& at) {
  return {collinear_.query(query_heads(x), rotary_, at), {}, {}, {}};
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
