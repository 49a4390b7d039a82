#include "motet/mechanisms/dcmha/dcmha.h"

#include <algorithm>
#include <cmath>

#include "motet/core/error.h"
#include "motet/kernels/rows.h"
#include "motet/layers/feed_forward.h"

namespace motet {
namespace {

constexpr int kPreQuery = 0, kPreKey = 1, kPostQuery = 2, kPostKey = 3;
constexpr double kDownNormEps = 1e-6;  // part of the function: the norms start near it (README.md, trap 3)

}  // namespace

std::vector<int> active_branches(const Setting& s) {
  const std::string sides = s.word("sides"), where = s.word("where");
  std::vector<int> active;
  for (int branch : {kPreQuery, kPreKey, kPostQuery, kPostKey}) {
    const bool key = branch == kPreKey || branch == kPostKey, post = branch >= kPostQuery;
    if (sides != (key ? "query" : "key") && where != (post ? "pre" : "post")) active.push_back(branch);
  }
  return active;
}

Dcmha::Dcmha(const Setting& s)
    : Projected(s, plain_sizes(s)),
      heads_(s.integer("num_heads")),
      groups_(s.integer("groups")),
      rank_(s.integer("rank")),
      branches_(active_branches(s)) {
  if (heads_ % groups_)
    refuse_option("groups", text(groups_, " groups do not divide num_heads ", heads_, ", want a divisor"));
  const int64_t own = heads_ / groups_, hidden = 2 * rank_ * own, branches = static_cast<int64_t>(branches_.size());
  if (s.memory_size > 0 && s.memory_size != s.hidden_size)
    refuse_option("mechanism", text("dcmha has one generator for queries and memory, want memory of width ",
                                    s.hidden_size, ", have ", s.memory_size));
  if (s.flag("low_rank")) {
    hidden_CGPK = register_parameter("compose_hidden", s.zeros({s.hidden_size, groups_, branches, hidden}));
    up_GPKRN = register_parameter("compose_up", s.zeros({groups_, branches, hidden, 2 * rank_, own}));
  }
  if (s.flag("gates")) gate_CPH = register_parameter("compose_gate", s.zeros({s.hidden_size, branches, heads_}));
  const std::string where = s.word("where");
  if (s.flag("static") && where != "post")
    static_pre_GNN = register_parameter("compose_static_pre", s.zeros({groups_, own, own}));
  if (s.flag("static") && where != "pre")
    static_post_GNN = register_parameter("compose_static_post", s.zeros({groups_, own, own}));
}

std::vector<int64_t> Dcmha::places(bool key) const {
  std::vector<int64_t> places;
  for (size_t i = 0; i < branches_.size(); ++i)
    if ((branches_[i] == kPreKey || branches_[i] == kPostKey) == key) places.push_back(static_cast<int64_t>(i));
  return places;
}

Dcmha::Generator Dcmha::generator(bool key) const {
  if (prepared_[key] && !at::GradMode::is_enabled()) return *prepared_[key];
  const auto own = [places = places(key)](const Tensor& t, int64_t axis) {  // what of axis P is this side's
    std::vector<Tensor> parts;
    for (const int64_t place : places) parts.push_back(t.select(axis, place));
    return at::stack(parts, axis);
  };
  std::vector<Tensor> columns;
  if (hidden_CGPK.defined()) columns.push_back(own(hidden_CGPK, 2).flatten(1));
  if (gate_CPH.defined()) columns.push_back(own(gate_CPH, 1).flatten(1));
  Generator made{.rows_XC = at::cat(columns, 1).t()};
  if (up_GPKRN.defined()) made.up = own(up_GPKRN, 1).flatten(3).flatten(0, 1);
  return made;
}

void Dcmha::prepare(WeightType, WeightArena&) {
  at::NoGradGuard no_grad;
  drop_prepared();
  for (const bool key : {false, true}) {
    if (places(key).empty() || (!hidden_CGPK.defined() && !gate_CPH.defined())) continue;
    Generator made = generator(key);
    made.rows_XC = made.rows_XC.contiguous();
    if (made.up.defined() && groups_ == 1) made.up_rows = made.up.transpose(1, 2).contiguous();
    prepared_[key] = made;
  }
}

void Dcmha::drop_prepared() {
  for (std::optional<Generator>& side : prepared_) side.reset();
}

// side() for a few rows in float32, prepared: torch's calls would take longer than the numbers.
Dcmha::Side Dcmha::few_rows(const Tensor& x, bool key) const {
  const std::vector<int64_t> places = this->places(key);
  const Generator& generator = *prepared_[key];
  const Tensor made_BTX = linear_rows(x, generator.rows_XC);
  const int64_t branches = static_cast<int64_t>(places.size()), rows = x.size(0) * x.size(1), all = made_BTX.size(2),
                gates = gate_CPH.defined() ? branches * heads_ : 0, maps = all - gates, width = maps / branches,
                half = rank_ * heads_;
  const auto activation = setting_.word("gelu") == "tanh" ? Activation::gelu_tanh : Activation::gelu;
  const Tensor hidden = maps ? activated(made_BTX.slice(2, 0, maps).contiguous(), activation) : Tensor();
  const float* const made = made_BTX.const_data_ptr<float>();
  std::vector<float> both(static_cast<size_t>(2 * half));  // down and up of one row
  Side side;
  for (int64_t i = 0; i < branches; ++i) {
    Parts& parts = branches_[static_cast<size_t>(places[static_cast<size_t>(i)])] < kPostQuery ? side.pre : side.post;
    if (maps) {
      const std::vector<int64_t> shape{x.size(0), x.size(1), rank_, heads_};
      parts.down = at::empty(shape, x.options()), parts.up = at::empty(shape, x.options());
      const float* const weight = generator.up_rows.const_data_ptr<float>() + i * 2 * half * width;
      const LinearTask task{{.data = weight, .N = 2 * half, .K = width}, both.data()};
      for (int64_t row = 0; row < rows; ++row) {
        linear({&task, 1}, hidden.const_data_ptr<float>() + row * maps + i * width, 1, {});
        rms_norm_rows(both.data(), rank_, heads_, nullptr, static_cast<float>(kDownNormEps),
                      parts.down.mutable_data_ptr<float>() + row * half);
        std::copy_n(both.data() + half, half, parts.up.mutable_data_ptr<float>() + row * half);
      }
    }
    if (!gates) continue;
    parts.gate = at::empty({x.size(0), x.size(1), heads_}, x.options());
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t n = 0; n < heads_; ++n)
        parts.gate.mutable_data_ptr<float>()[row * heads_ + n] = std::tanh(made[row * all + maps + i * heads_ + n]);
  }
  return side;
}

// One product for both branches of the side: on their own they are too thin to be fast.
Dcmha::Side Dcmha::side(const Tensor& x, bool key) const {
  const std::vector<int64_t> places = this->places(key);
  Side made;
  if (places.empty() || (!hidden_CGPK.defined() && !gate_CPH.defined())) return made;
  if (prepared_[key] && groups_ == 1 && for_kernels(x) && x.numel() > 0 && x.numel() <= kMaxLinearRows * x.size(2))
    return few_rows(x, key);
  const int64_t own = heads_ / groups_, branches = static_cast<int64_t>(places.size()), batch = x.size(0),
                count = x.size(1);
  const Generator generator = this->generator(key);
  const Tensor made_BTX = linear_rows(x, generator.rows_XC);
  const int64_t gates = gate_CPH.defined() ? branches * heads_ : 0, maps = made_BTX.size(2) - gates;
  Tensor down_PBTGRN, up_PBTGRN, gate_BTPN;
  if (maps) {
    const auto activation = setting_.word("gelu") == "tanh" ? Activation::gelu_tanh : Activation::gelu;
    const Tensor hidden_BTGPK =
        activated(made_BTX.slice(2, 0, maps).contiguous(), activation).view({batch * count, groups_ * branches, -1});
    const Tensor rows = at::bmm(hidden_BTGPK.transpose(0, 1), generator.up)
                            .view({groups_, branches, batch, count, 2 * rank_, own})
                            .permute({1, 2, 3, 0, 4, 5});  // [P,B,T,G,2R,N]
    down_PBTGRN = rms_norm(rows.slice(4, 0, rank_), {}, kDownNormEps), up_PBTGRN = rows.slice(4, rank_);
  }
  if (gates) gate_BTPN = at::tanh(made_BTX.slice(2, maps)).unflatten(-1, {branches, heads_});
  // Groups become blocks of rank: row (g, r) is zero outside the heads of group g.
  const auto spread = [&](const Tensor& t) {
    if (groups_ == 1) return t.squeeze(2);
    const Tensor own_group = at::eye(groups_, t.options()).view({1, 1, groups_, 1, groups_, 1});
    return (t.unsqueeze(4) * own_group).reshape({t.size(0), t.size(1), groups_ * rank_, groups_ * own});
  };
  for (int64_t i = 0; i < branches; ++i) {
    Parts& parts = branches_[places[i]] < kPostQuery ? made.pre : made.post;
    if (maps) parts.down = spread(down_PBTGRN.select(0, i)), parts.up = spread(up_PBTGRN.select(0, i));
    if (gate_BTPN.defined()) parts.gate = gate_BTPN.select(2, i);
  }
  return made;
}

Keys Dcmha::keys(const Tensor& memory, const Positions& at) {
  Keys k = Projected::keys(memory, at);
  const auto [pre, post] = side(memory, true);
  k.pre = {pre.down, pre.up, pre.gate, {}};
  k.post = {post.down, post.up, post.gate, {}};
  return k;
}

Queries Dcmha::queries(const Tensor& x, const Positions& at) {
  Queries q = Projected::queries(x, at);
  const auto [pre, post] = side(x, false);
  q.pre = {pre.down, pre.up, pre.gate, {}};
  q.post = {post.down, post.up, post.gate, {}};
  return q;
}

Tensor Dcmha::block_diagonal(const Tensor& map_GNN) const {
  if (!map_GNN.defined()) return {};
  return at::block_diag(map_GNN.unbind(0));
}

Attention Dcmha::attention(const Positions& queries, const Positions& keys) {
  Attention a = Projected::attention(queries, keys);
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

// The authors' training code (JAX): README.md, Parameters.
void Dcmha::initialize_extras(const Streams& random) {
  Projected::initialize_extras(random);
  const double width = static_cast<double>(setting_.hidden_size), own = static_cast<double>(heads_ / groups_),
               rank = static_cast<double>(rank_);
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
  using enum OptionType;
  return {
      .name = "dcmha",
      .summary = "heads composed per query and key, before and after the softmax (DCFormer)",
      .options =
          {{"rank", integer, 2, 1, 64, {}, "rank of the dynamic low-rank maps"},
           {"sides",
            string,
            "both",
            {},
            {},
            {"both", "query", "key"},
            "maps from the query's hidden state, the key's, or both"},
           {"where", string, "both", {}, {}, {"both", "pre", "post"}, "compose before the softmax, after it, or both"},
           {"low_rank", boolean, true, {}, {}, {}, "dynamic low-rank maps"},
           {"gates", boolean, true, {}, {}, {}, "dynamic gates"},
           {"static", boolean, false, {}, {}, {}, "a learned map that is the same everywhere"},
           {"groups", integer, 1, 1, 256, {}, "groups of heads; heads are composed inside their group"},
           {"gelu", string, "erf", {}, {}, {"erf", "tanh"}, "GELU of the generator"}},
      .presets = {{"dcmha", true, {{"mechanism", "dcmha"}}},
                  {"dcmha_query_wise", false, {{"mechanism", "dcmha"}, {"sides", "query"}}}},
      .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<Dcmha>(s); }};
}

}  // namespace motet
