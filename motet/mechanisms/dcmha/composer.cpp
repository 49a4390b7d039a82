#include "motet/mechanisms/dcmha/composer.h"

#include <cmath>

#include "motet/layers/token_by_token.h"

namespace motet {
namespace {

Side side_of(int branch) { return branch == kPreKey || branch == kPostKey ? Side::key : Side::query; }

// Of one group a token's bits do not depend on its company; torch makes the maps of several.
std::vector<DcmhaMaps> maps_of(const Tensor& x, const DcmhaGenerator& by) {
  if (by.groups == 1) return ops::dcmha_maps(x, by);
  const auto tokens = each_token(x, [&](const Tensor& t) { return ops::dcmha_maps(t, by); });
  std::vector<DcmhaMaps> all = tokens[0];
  for (size_t i = 0; i < all.size() && tokens.size() > 1; ++i)
    for (Tensor DcmhaMaps::* const part : {&DcmhaMaps::down_BTRN, &DcmhaMaps::up_BTRN, &DcmhaMaps::gate_BTN}) {
      if (!(all[i].*part).defined()) continue;
      std::vector<Tensor> parts;
      for (const std::vector<DcmhaMaps>& token : tokens) parts.push_back(token[i].*part);
      all[i].*part = at::cat(parts, 1);
    }
  return all;
}

}  // namespace

Composer::Composer(torch::nn::Module& owner, const Setting& s, ComposerSizes sizes)
    : sizes_(std::move(sizes)), width_(s.hidden_size) {
  const ComposerSizes& n = sizes_;
  const int64_t own = n.heads / n.groups, hidden = 2 * n.rank * own, branches = static_cast<int64_t>(n.branches.size());
  if (n.low_rank) {
    hidden_CGPK = owner.register_parameter("compose_hidden", s.zeros({width_, n.groups, branches, hidden}));
    up_GPKRN = owner.register_parameter("compose_up", s.zeros({n.groups, branches, hidden, 2 * n.rank, own}));
  }
  if (n.gates) gate_CPH = owner.register_parameter("compose_gate", s.zeros({width_, branches, n.heads}));
}

std::vector<int64_t> Composer::places(Side side) const {
  std::vector<int64_t> places;
  for (size_t i = 0; i < sizes_.branches.size(); ++i)
    if (side_of(sizes_.branches[i]) == side) places.push_back(static_cast<int64_t>(i));
  return places;
}

DcmhaGenerator Composer::generator(Side side) const {
  const std::vector<int64_t> places = this->places(side);
  DcmhaGenerator made{.heads = sizes_.heads,
                      .groups = sizes_.groups,
                      .rank = sizes_.rank,
                      .branches = static_cast<int64_t>(places.size()),
                      .maps = hidden_CGPK.defined(),
                      .gates = gate_CPH.defined(),
                      .gelu_by_tanh = sizes_.gelu_by_tanh};
  const auto own = [&](const Tensor& t, int64_t axis) {  // what of axis P is this side's
    std::vector<Tensor> parts;
    for (const int64_t place : places) parts.push_back(t.select(axis, place));
    return at::stack(parts, axis);
  };
  std::vector<Tensor> columns;
  if (made.maps) columns.push_back(own(hidden_CGPK, 2).flatten(1));
  if (made.gates) columns.push_back(own(gate_CPH, 1).flatten(1));
  const Tensor rows_XC = at::cat(columns, 1).t();
  made.rows_XC = {at::GradMode::is_enabled() ? rows_XC : rows_XC.contiguous()};  // as the kernels for inference want it
  if (made.maps) made.up_QKM = own(up_GPKRN, 1).flatten(3).flatten(0, 1);
  return made;
}

bool Composer::generates(Side side) const {
  return !places(side).empty() && (hidden_CGPK.defined() || gate_CPH.defined());
}

int64_t Composer::prepared_bytes(WeightType type) const {
  int64_t bytes = 0;
  for (const Side side : {Side::query, Side::key})
    if (generates(side))
      if (const Tensor rows_XC = generator(side).rows_XC.values_NK; rows_XC.is_cpu())
        bytes += arena_bytes(type, rows_XC.size(0), rows_XC.size(1));
  return bytes;
}

void Composer::prepare(Prepared what, WeightType type, WeightArena& arena) {
  at::NoGradGuard no_grad;
  drop_prepared();
  for (const Side side : {Side::query, Side::key}) {
    if (!generates(side)) continue;
    DcmhaGenerator made = generator(side);
    made.rows_XC = kept_in(type, made.rows_XC.values_NK, arena);
    if (what == Prepared::all && made.maps && sizes_.groups == 1)
      made.up_rows_PMK = made.up_QKM.transpose(1, 2).contiguous();
    prepared_[side] = made;
  }
}

void Composer::drop_prepared() { prepared_.clear(); }

Composer::Maps Composer::maps(const Tensor& x, Side side) const {
  Maps made;
  if (!generates(side)) return made;
  const auto ready = at::GradMode::is_enabled() ? prepared_.end() : prepared_.find(side);
  const std::vector<DcmhaMaps> maps = maps_of(x, ready != prepared_.end() ? ready->second : generator(side));
  const std::vector<int64_t> places = this->places(side);
  for (size_t i = 0; i < places.size(); ++i)
    (sizes_.branches[static_cast<size_t>(places[i])] < kPostQuery ? made.pre : made.post) = maps[i];
  return made;
}

void Composer::initialize(const Streams& random) {
  const double width = static_cast<double>(width_), own = static_cast<double>(sizes_.heads / sizes_.groups),
               rank = static_cast<double>(sizes_.rank), hidden = 2 * rank * own;
  if (hidden_CGPK.defined()) random.normal("compose_hidden", hidden_CGPK, std::sqrt(2 / (width + hidden)));
  if (up_GPKRN.defined()) random.normal("compose_up", up_GPKRN, std::sqrt(1 / hidden) * 2 / (own + rank) * 0.01);
  if (gate_CPH.defined()) random.normal("compose_gate", gate_CPH, std::sqrt(2 / (width + own)) * 0.005);
}

}  // namespace motet
