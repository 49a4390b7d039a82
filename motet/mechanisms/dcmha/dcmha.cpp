#include "motet/mechanisms/dcmha/dcmha.h"

#include <algorithm>
#include <cmath>

#include "motet/core/error.h"

namespace motet {

const Fields<DcmhaOptions>& dcmha_options() {
  using D = DcmhaOptions;
  static const Fields<D> table{
      {"rank", &D::rank, {1, 64}, "rank of the dynamic low-rank maps", where("low_rank", {true})},
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
      {"gelu",
       &D::gelu,
       {{"erf", Activation::gelu}, {"tanh", Activation::gelu_tanh}},
       "GELU of the generator",
       where("low_rank", {true})}};
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

namespace {

ComposerSizes composer_sizes(const DcmhaOptions& o, int64_t heads) {
  if (heads % o.groups)
    refuse_option("groups", text(o.groups, " groups do not divide num_heads ", heads, ", want a divisor"));
  return {.heads = heads,
          .groups = o.groups,
          .rank = o.rank,
          .branches = active_branches(o),
          .low_rank = o.low_rank,
          .gates = o.gates,
          .gelu_by_tanh = o.gelu == Activation::gelu_tanh};
}

}  // namespace

Dcmha::Dcmha(const Setting& s)
    : Projected(s, plain_sizes(s)),
      options_(dcmha_options().read(s.options.all)),
      heads_(s.options.common.num_heads),
      composer_(*this, s, composer_sizes(options_, heads_)) {
  const DcmhaOptions& o = options_;
  const int64_t own = heads_ / o.groups;
  if (s.memory_size > 0 && s.memory_size != s.hidden_size)
    refuse_option("mechanism", text("dcmha has one generator for queries and memory, want memory of width ",
                                    s.hidden_size, ", have ", s.memory_size));
  if (o.fixed && o.where.pre) static_pre_GNN = register_parameter("compose_static_pre", s.zeros({o.groups, own, own}));
  if (o.fixed && o.where.post)
    static_post_GNN = register_parameter("compose_static_post", s.zeros({o.groups, own, own}));
}

int64_t Dcmha::prepared_bytes(WeightType type) const { return composer_.prepared_bytes(type); }

void Dcmha::prepare(Prepared what, WeightType type, WeightArena& arena) { composer_.prepare(what, type, arena); }

void Dcmha::drop_prepared() { composer_.drop_prepared(); }

Keys Dcmha::keys(const Tensor& memory, const Positions& at) {
  Keys k = Projected::keys(memory, at);
  const auto [pre, post] = composer_.maps(memory, Side::key);
  k.pre = {pre.down_BTRN, pre.up_BTRN, pre.gate_BTN, {}};
  k.post = {post.down_BTRN, post.up_BTRN, post.gate_BTN, {}};
  return k;
}

Queries Dcmha::queries(const Tensor& x, const Positions& at) {
  Queries q = Projected::queries(x, at);
  const auto [pre, post] = composer_.maps(x, Side::query);
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
      all.push_back({text(kDcmhaBranches[branch], "_gate"), gates[branch]->abs().mean(at::IntArrayRef{0, 1})});
  return all;
}

// The authors' training code (JAX); README.md has them in a table.
void Dcmha::initialize_extras(const Streams& random) {
  Projected::initialize_extras(random);
  composer_.initialize(random);
  const double fixed = 0.1 * std::sqrt(1 / static_cast<double>(heads_ / options_.groups));
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
                      {"dcmha_query_wise", false, {{"mechanism", "dcmha"}, {"sides", "query"}}},
                      {"dcmha_light",
                       false,
                       {{"mechanism", "dcmha"}, {"where", "post"}, {"window", 128}, {"layers", "last"}}}},
          .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<Dcmha>(s); }};
}

}  // namespace motet
