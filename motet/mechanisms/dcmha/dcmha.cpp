#include "motet/mechanisms/dcmha/dcmha.h"

#include <algorithm>
#include <cmath>

#include "motet/core/error.h"

namespace motet {
namespace {

constexpr int kPreQuery = 0, kPreKey = 1, kPostQuery = 2, kPostKey = 3;

}  // namespace

const Fields<DcmhaOptions>& dcmha_options() {
  using D = DcmhaOptions;
  static const Fields<D> table{
      {"rank", &D::rank, {1, 64}, "rank of the dynamic low-rank maps"},
      {"sides",
       &D::sides,
       {{"both", {true, true}}, {"query", {true, false}}, {"key", {false, true}}},
       "maps from the query's hidden state, the key's, or both"},
      {"where",
       &D::where,
       {{"both", {true, true}}, {"pre", {true, false}}, {"post", {false, true}}},
       "compose before the softmax, after it, or both"},
      {"low_rank", &D::low_rank, "dynamic low-rank maps"},
      {"gates", &D::gates, "dynamic gates"},
      {"static", &D::fixed, "a learned map that is the same everywhere"},
      {"groups", &D::groups, {1, 256}, "groups of heads; heads are composed inside their group"},
      {"gelu", &D::gelu, {{"erf", Activation::gelu}, {"tanh", Activation::gelu_tanh}}, "GELU of the generator"}};
  return table;
}

std::vector<int> active_branches(const DcmhaOptions& o) {
  std::vector<int> active;
  for (int branch : {kPreQuery, kPreKey, kPostQuery, kPostKey}) {
    const bool key = branch == kPreKey || branch == kPostKey, post = branch >= kPostQuery;
    if ((key ? o.sides.key : o.sides.query) && (post ? o.where.post : o.where.pre)) active.push_back(branch);
  }
  return active;
}

Dcmha::Dcmha(const Setting& s)
    : Projected(s, plain_sizes(s)),
      options_(dcmha_options().read(s.options.all)),
      heads_(s.options.common.num_heads),
      branches_(active_branches(options_)) {
  const DcmhaOptions& o = options_;
  if (heads_ % o.groups)
    refuse_option("groups", text(o.groups, " groups do not divide num_heads ", heads_, ", want a divisor"));
  const int64_t own = heads_ / o.groups, hidden = 2 * o.rank * own, branches = static_cast<int64_t>(branches_.size());
  if (s.memory_size > 0 && s.memory_size != s.hidden_size)
    refuse_option("mechanism", text("dcmha has one generator for queries and memory, want memory of width ",
                                    s.hidden_size, ", have ", s.memory_size));
  if (o.low_rank) {
    hidden_CGPK = register_parameter("compose_hidden", s.zeros({s.hidden_size, o.groups, branches, hidden}));
    up_GPKRN = register_parameter("compose_up", s.zeros({o.groups, branches, hidden, 2 * o.rank, own}));
  }
  if (o.gates) gate_CPH = register_parameter("compose_gate", s.zeros({s.hidden_size, branches, heads_}));
  if (o.fixed && o.where.pre) static_pre_GNN = register_parameter("compose_static_pre", s.zeros({o.groups, own, own}));
  if (o.fixed && o.where.post)
    static_post_GNN = register_parameter("compose_static_post", s.zeros({o.groups, own, own}));
}

std::vector<int64_t> Dcmha::places(bool key) const {
  std::vector<int64_t> places;
  for (size_t i = 0; i < branches_.size(); ++i)
    if ((branches_[i] == kPreKey || branches_[i] == kPostKey) == key) places.push_back(static_cast<int64_t>(i));
  return places;
}

DcmhaGenerator Dcmha::generator(bool key) const {
  const std::vector<int64_t> places = this->places(key);
  DcmhaGenerator made{.heads = heads_,
                      .groups = options_.groups,
                      .rank = options_.rank,
                      .branches = static_cast<int64_t>(places.size()),
                      .maps = hidden_CGPK.defined(),
                      .gates = gate_CPH.defined(),
                      .gelu_by_tanh = options_.gelu == Activation::gelu_tanh};
  const auto own = [&](const Tensor& t, int64_t axis) {  // what of axis P is this side's
    std::vector<Tensor> parts;
    for (const int64_t place : places) parts.push_back(t.select(axis, place));
    return at::stack(parts, axis);
  };
  std::vector<Tensor> columns;
  if (made.maps) columns.push_back(own(hidden_CGPK, 2).flatten(1));
  if (made.gates) columns.push_back(own(gate_CPH, 1).flatten(1));
  made.rows_XC = at::cat(columns, 1).t();
  if (made.maps) made.up_QKM = own(up_GPKRN, 1).flatten(3).flatten(0, 1);
  return made;
}

bool Dcmha::generates(bool key) const { return !places(key).empty() && (hidden_CGPK.defined() || gate_CPH.defined()); }

void Dcmha::prepare(WeightType, WeightArena&) {
  at::NoGradGuard no_grad;
  drop_prepared();
  for (const bool key : {false, true}) {
    if (!generates(key)) continue;
    DcmhaGenerator made = generator(key);
    made.rows_XC = made.rows_XC.contiguous();
    if (made.maps && options_.groups == 1) made.up_rows_PMK = made.up_QKM.transpose(1, 2).contiguous();
    prepared_[key] = made;
  }
}

void Dcmha::drop_prepared() {
  for (std::optional<DcmhaGenerator>& side : prepared_) side.reset();
}

Dcmha::Side Dcmha::side(const Tensor& x, bool key) const {
  Side made;
  if (!generates(key)) return made;
  const bool ready = prepared_[key] && !at::GradMode::is_enabled();
  const std::vector<DcmhaMaps> maps = ops::dcmha_maps(x, ready ? *prepared_[key] : generator(key));
  const std::vector<int64_t> places = this->places(key);
  for (size_t i = 0; i < places.size(); ++i)
    (branches_[static_cast<size_t>(places[i])] < kPostQuery ? made.pre : made.post) = maps[i];
  return made;
}

Keys Dcmha::keys(const Tensor& memory, const Positions& at) {
  Keys k = Projected::keys(memory, at);
  const auto [pre, post] = side(memory, true);
  k.pre = {pre.down_BTRN, pre.up_BTRN, pre.gate_BTN, {}};
  k.post = {post.down_BTRN, post.up_BTRN, post.gate_BTN, {}};
  return k;
}

Queries Dcmha::queries(const Tensor& x, const Positions& at) {
  Queries q = Projected::queries(x, at);
  const auto [pre, post] = side(x, false);
  q.pre = {pre.down_BTRN, pre.up_BTRN, pre.gate_BTN, {}};
  q.post = {post.down_BTRN, post.up_BTRN, post.gate_BTN, {}};
  return q;
}

Tensor Dcmha::block_diagonal(const Tensor& map_GNN) const {
  if (!map_GNN.defined()) return {};
  return at::block_diag(map_GNN.unbind(0));
}

Attention Dcmha::attention(const Positions& queries, const Positions& keys, Pass pass) {
  Attention a = Projected::attention(queries, keys, pass);
  a.pre = {true, block_diagonal(static_pre_GNN)};
  a.post = {true, block_diagonal(static_post_GNN)};
  return a;
}

std::vector<LearnedMap> Dcmha::learned() {
  std::vector<LearnedMap> maps;
  if (static_pre_GNN.defined()) maps.push_back({"static map before softmax", block_diagonal(static_pre_GNN)});
  if (static_post_GNN.defined()) maps.push_back({"static map after softmax", block_diagonal(static_post_GNN)});
  return maps;
}

// The mean size of each branch's gates: their signs would cancel.
std::vector<Diagnostic> Dcmha::diagnostics(const Tensor& x, const Queries& q, const Keys& k) {
  std::vector<Diagnostic> all = Projected::diagnostics(x, q, k);
  const Tensor* const gates[] = {&q.pre.gate_BTH, &k.pre.gate_BSH, &q.post.gate_BTH, &k.post.gate_BSH};
  for (size_t branch = 0; branch < std::size(gates); ++branch)
    if (gates[branch]->defined())
      all.push_back({text(kDcmhaBranches[branch], "_gate"), gates[branch]->abs().mean({0, 1})});
  return all;
}

// The authors' training code (JAX): README.md, Parameters.
void Dcmha::initialize_extras(const Streams& random) {
  Projected::initialize_extras(random);
  const double width = static_cast<double>(setting_.hidden_size), own = static_cast<double>(heads_ / options_.groups),
               rank = static_cast<double>(options_.rank);
  const double hidden = 2 * rank * own;
  if (hidden_CGPK.defined()) random.normal("compose_hidden", hidden_CGPK, std::sqrt(2 / (width + hidden)));
  if (up_GPKRN.defined()) random.normal("compose_up", up_GPKRN, std::sqrt(1 / hidden) * 2 / (own + rank) * 0.01);
  if (gate_CPH.defined()) random.normal("compose_gate", gate_CPH, std::sqrt(2 / (width + own)) * 0.005);
  const double fixed = 0.1 * std::sqrt(2 / (2 * own));
  if (static_pre_GNN.defined()) random.normal("compose_static_pre", static_pre_GNN, fixed);
  if (static_post_GNN.defined()) random.normal("compose_static_post", static_post_GNN, fixed);
}

bool Dcmha::decays(const std::string& name) const {
  return name != "compose_gate" && !name.starts_with("compose_static") && Projected::decays(name);
}

MechanismEntry dcmha_entry() {
  return {.name = "dcmha",
          .summary = "heads composed per query and key, before and after the softmax (DCFormer)",
          .options = dcmha_options().table(),
          .presets = {{"dcmha", true, {{"mechanism", "dcmha"}}},
                      {"dcmha_query_wise", false, {{"mechanism", "dcmha"}, {"sides", "query"}}}},
          .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<Dcmha>(s); }};
}

}  // namespace motet
