#include "motet/mechanisms/differential/differential.h"

#include <cmath>

#include "motet/core/error.h"
#include "motet/layers/token_by_token.h"

namespace motet {
namespace {

const Fields<DifferentialOptions>& options() {
  using D = DifferentialOptions;
  static const Fields<D> table{
      {"version",
       &D::version,
       {{"v1", D::Version::v1}, {"v2", D::Version::v2}},
       "V1: half the heads in pairs, values of double width; V2: double query heads"},
      {"lambda_start",
       &D::lambda_start,
       {{"schedule", D::LambdaStart::schedule}, {"constant", D::LambdaStart::constant}},
       "V1: lambda_init by depth, 0.8 - 0.6 exp(-0.3 depth), or lambda_init",
       where("version", {"v1"})},
      {"lambda_init",
       &D::lambda_init,
       {0, 1},
       "V1: lambda_init of every layer when lambda_start is constant",
       where("lambda_start", {"constant"})},
      {"lambda_std",
       &D::lambda_std,
       {0, 10},
       "V1: first standard deviation of the lambda vectors",
       where("version", {"v1"})},
      {"head_norm", &D::head_norm, head_norms(), "V1: RMS norm per head with a weight, without, or none",
       where("version", {"v1"})},
      {"head_norm_eps", &D::head_norm_eps, {0, 1}, "epsilon of the head norm", unless("head_norm", {"none"})},
      {"compose", &D::compose, "V1: heads are composed between softmax and subtraction, as in DCMHA without gates",
       where("version", {"v1"})},
      {"compose_rank", &D::compose_rank, {1, 64}, "rank of the dynamic maps of compose", where("compose", {true})},
      {"lambda_form",
       &D::lambda_form,
       {{"sigmoid", D::LambdaForm::sigmoid}, {"raw", D::LambdaForm::raw}, {"none", D::LambdaForm::none}},
       "V2: factor of the second map: sigmoid of a projection of the layer's input, that projection, or 1",
       where("version", {"v2"})},
      {"pairs",
       &D::pairs,
       {{"within", D::Pairs::within}, {"across", D::Pairs::across}},
       "V2: heads of a pair read one stored head, or different ones",
       where("version", {"v2"})}};
  return table;
}

bool is_second(const DifferentialOptions& o) { return o.version == DifferentialOptions::Version::v2; }

// num_heads counts the heads H of the plain Transformer. V1: H/2 pairs with values of double width; V2: 2H score heads.
HeadSizes sizes(const Setting& s) {
  const int64_t heads = s.options.common.num_heads, kv = num_kv_heads(s), dim = head_dim(s);
  const DifferentialOptions own = options().read(s.options.all);
  if (is_second(own)) {
    if (own.pairs == DifferentialOptions::Pairs::across && kv % 2)
      refuse_option("pairs", text("across wants an even number of stored heads, have ", kv));
    return {.query_heads = 2 * heads,
            .softmax_heads = 2 * heads,
            .key_heads = kv,
            .value_heads = kv,
            .output_heads = heads,
            .key_dim = dim,
            .value_dim = dim};
  }
  if (heads % 2)
    refuse_option("num_heads", text("differential attention V1 pairs heads, want an even number, have ", heads));
  if (kv % 2)
    refuse_option("num_kv_heads", text("differential attention V1 pairs key heads, want an even number, have ", kv));
  return {.query_heads = heads,
          .softmax_heads = heads,
          .key_heads = kv,
          .value_heads = kv / 2,
          .output_heads = heads / 2,
          .key_dim = dim,
          .value_dim = 2 * dim};
}

double start_of_lambda(const DifferentialOptions& o, int64_t layer) {
  if (o.lambda_start == DifferentialOptions::LambdaStart::constant) return o.lambda_init;
  return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(layer));
}

}  // namespace

Differential::Differential(const Setting& s)
    : Projected(s, sizes(s)),
      options_(options().read(s.options.all)),
      second_(is_second(options_)),
      lambda_init_(start_of_lambda(options_, s.layer)) {
  if (second_) {
    if (options_.lambda_form != DifferentialOptions::LambdaForm::none)
      lambda_proj = register_module("lambda_proj", Linear(s.hidden_size, sizes_.output_heads, false, s.device));
    return;
  }
  const int64_t dim = sizes_.key_dim;
  lambda_q1_D = register_parameter("lambda_q1", s.zeros({dim}));
  lambda_k1_D = register_parameter("lambda_k1", s.zeros({dim}));
  lambda_q2_D = register_parameter("lambda_q2", s.zeros({dim}));
  lambda_k2_D = register_parameter("lambda_k2", s.zeros({dim}));
  if (options_.head_norm)
    head_norm = register_module("subln", Norm(sizes_.value_dim, *options_.head_norm, options_.head_norm_eps, s.device));
  if (!options_.compose) return;
  if (s.memory_size > 0 && s.memory_size != s.hidden_size)
    refuse_option("compose", text("one generator for queries and memory wants memory of width ", s.hidden_size,
                                  ", have ", s.memory_size));
  composer_.emplace(*this, s,
                    ComposerSizes{.heads = sizes_.softmax_heads,
                                  .rank = options_.compose_rank,
                                  .branches = {kPostQuery, kPostKey},
                                  .gates = false});
  compose_static_HH = register_parameter("compose_static", s.zeros({sizes_.softmax_heads, sizes_.output_heads}));
}

Tensor Differential::lambda() const {
  const auto exponent = [](const Tensor& q, const Tensor& k) {
    const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return (q.to(wide) * k.to(wide)).sum().exp();
  };
  return exponent(lambda_q1_D, lambda_k1_D) - exponent(lambda_q2_D, lambda_k2_D) + lambda_init_;
}

Tensor Differential::lambda_of(const Tensor& x) {
  if (!second_) return lambda();
  if (!lambda_proj) return at::ones({}, x.options());
  const Tensor raw = lambda_proj(x);
  return options_.lambda_form == DifferentialOptions::LambdaForm::raw
             ? raw
             : token_by_token(raw, [](const Tensor& t) { return at::sigmoid(t); });
}

Tensor Differential::subtraction() const {
  const Tensor pair = at::stack({at::ones_like(lambda()), -lambda()});  // [2]
  return at::kron(at::eye(sizes_.output_heads, pair.options()), pair.unsqueeze(1));
}

// Composition before the subtraction: the rows up, of 2h heads, become those of h differences.
DcmhaMaps Differential::subtracted(DcmhaMaps maps) const {
  const Tensor factor = lambda(), up = maps.up_BTRN.to(factor.scalar_type());
  const int64_t heads = sizes_.softmax_heads;
  maps.up_BTRN = (up.slice(-1, 0, heads, 2) - factor * up.slice(-1, 1, heads, 2)).to(maps.up_BTRN.scalar_type());
  return maps;
}

Keys Differential::keys(const Tensor& memory, const Positions& at) {
  Keys k = Projected::keys(memory, at);
  if (composer_) {
    const DcmhaMaps maps = subtracted(composer_->maps(memory, Side::key).post);
    k.post = {maps.down_BTRN, maps.up_BTRN, {}, {}};
  }
  return k;
}

Queries Differential::queries(const Tensor& x, const Positions& at) {
  Queries q = Projected::queries(x, at);
  if (composer_) {
    const DcmhaMaps maps = subtracted(composer_->maps(x, Side::query).post);
    q.post = {maps.down_BTRN, maps.up_BTRN, {}, {}};
  } else if (options_.pairs == DifferentialOptions::Pairs::within) {
    q.lambda = lambda_of(x);
  }
  return q;
}

Attention Differential::attention(const Positions& queries, const Positions& keys, Pass pass) {
  Attention a = Projected::attention(queries, keys, pass);
  if (second_) return a;  // contiguous groups: heads 2i and 2i+1 read one stored head
  // Heads 2i and 2i+1 read different stored keys, so grouped keys need a table.
  const int64_t pairs = sizes_.output_heads, repeat = pairs / sizes_.value_heads;
  for (int64_t i = 0; i < pairs; ++i)
    for (int64_t b : {0, 1}) a.heads.key_of.push_back(2 * (i / repeat) + b);
  if (composer_) a.post = {false, subtraction() + compose_static_HH};
  return a;
}

// Pairs across stored heads have different values, so that their outputs are subtracted: heads i and i + H.
Tensor Differential::finish(const Tensor& out_BTHE, const Tensor& x) {
  if (options_.pairs == DifferentialOptions::Pairs::across) {
    const int64_t heads = sizes_.output_heads;
    const Tensor lambda = lambda_of(x);
    return Projected::finish(
        out_BTHE.slice(2, 0, heads) - (lambda.dim() > 0 ? lambda.unsqueeze(-1) : lambda) * out_BTHE.slice(2, heads), x);
  }
  return Projected::finish(head_norm ? head_norm(out_BTHE) * (1 - lambda_init_) : out_BTHE, x);
}

std::vector<LearnedMap> Differential::learned() {
  if (second_) return {};
  std::vector<LearnedMap> maps{{"lambda", lambda().detach().view({1, 1})}};
  if (composer_) maps.push_back({"map after softmax", (subtraction() + compose_static_HH).detach()});
  return maps;
}

std::vector<Diagnostic> Differential::diagnostics(const Tensor& x, const Queries& q, const Keys& k) {
  std::vector<Diagnostic> all = Projected::diagnostics(x, q, k);
  const Tensor lambda = lambda_of(x);
  all.push_back({"lambda", lambda.dim() > 0 ? lambda.mean(at::IntArrayRef{0, 1}) : lambda.view({1})});
  return all;
}

void Differential::initialize_extras(const Streams& random) {
  Projected::initialize_extras(random);
  for (const auto& [name, vector] : {std::pair("lambda_q1", lambda_q1_D), std::pair("lambda_k1", lambda_k1_D),
                                     std::pair("lambda_q2", lambda_q2_D), std::pair("lambda_k2", lambda_k2_D)})
    if (vector.defined()) random.normal(name, vector, options_.lambda_std);
  if (!composer_) return;
  composer_->initialize(random);
  random.normal("compose_static", compose_static_HH, 0.1 / std::sqrt(static_cast<double>(sizes_.softmax_heads)));
}

int64_t Differential::prepared_bytes(WeightType type) const { return composer_ ? composer_->prepared_bytes(type) : 0; }

void Differential::prepare(Prepared what, WeightType type, WeightArena& arena) {
  if (composer_) composer_->prepare(what, type, arena);
}

void Differential::drop_prepared() {
  if (composer_) composer_->drop_prepared();
}

bool Differential::decays(const std::string& name) const {
  return name != "lambda_proj.weight" && name != "compose_static" && Projected::decays(name);
}

std::string Differential::caveat() const {
  constexpr int64_t kFewest = 8;  // of the authors' experiments
  if (second_ || sizes_.output_heads >= kFewest) return "";
  return text(sizes_.output_heads, sizes_.output_heads == 1 ? " pair" : " pairs", " of heads, and its authors use ",
              kFewest, " or more");
}

MechanismEntry differential_entry() {
  return {.name = "differential",
          .summary = "the difference of two softmax maps (Differential Transformer V1, V2)",
          .options = options().table(),
          .presets = {{"differential_v1", true, {{"mechanism", "differential"}, {"version", "v1"}}},
                      {"differential_v2", true, {{"mechanism", "differential"}, {"version", "v2"}}}},
          .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<Differential>(s); }};
}

}  // namespace motet
