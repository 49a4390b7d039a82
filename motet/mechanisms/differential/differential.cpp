#include "motet/mechanisms/differential/differential.h"

#include <cmath>

#include "motet/core/error.h"

namespace motet {
namespace {

bool second(const Setting& s) { return s.word("version") == "v2"; }

// num_heads counts the heads H of the plain Transformer. V1: H/2 pairs with values of double width; V2: 2H score heads.
HeadSizes sizes(const Setting& s) {
  const int64_t heads = s.integer("num_heads"), kv = num_kv_heads(s), dim = head_dim(s);
  if (second(s))
    return {.query_heads = 2 * heads,
            .softmax_heads = 2 * heads,
            .key_heads = kv,
            .value_heads = kv,
            .output_heads = heads,
            .key_dim = dim,
            .value_dim = dim};
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

double start_of_lambda(const Setting& s) {
  if (s.word("lambda_start") == "constant") return s.number("lambda_init");
  return 0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(s.layer));
}

}  // namespace

Differential::Differential(const Setting& s)
    : Projected(s, sizes(s)), second_(second(s)), lambda_init_(start_of_lambda(s)) {
  if (second_) {
    lambda_proj = register_module("lambda_proj", Linear(s.hidden_size, sizes_.output_heads, false, s.device));
    return;
  }
  const int64_t dim = sizes_.key_dim;
  lambda_q1_D = register_parameter("lambda_q1", s.zeros({dim}));
  lambda_k1_D = register_parameter("lambda_k1", s.zeros({dim}));
  lambda_q2_D = register_parameter("lambda_q2", s.zeros({dim}));
  lambda_k2_D = register_parameter("lambda_k2", s.zeros({dim}));
  const std::string norm = s.word("head_norm");
  if (norm != "none")
    head_norm = register_module("subln", Norm(sizes_.value_dim, norm == "affine" ? NormKind::rms : NormKind::rms_plain,
                                              s.number("head_norm_eps"), s.device));
}

Tensor Differential::lambda() const {
  const auto exponent = [](const Tensor& q, const Tensor& k) {
    const auto wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return (q.to(wide) * k.to(wide)).sum().exp();
  };
  return exponent(lambda_q1_D, lambda_k1_D) - exponent(lambda_q2_D, lambda_k2_D) + lambda_init_;
}

Queries Differential::queries(const Tensor& x, const Positions& at) {
  Queries q = Projected::queries(x, at);
  q.lambda = second_ ? at::sigmoid(lambda_proj(x)) : lambda();
  return q;
}

Attention Differential::attention(const Positions& queries, const Positions& keys) {
  Attention a = Projected::attention(queries, keys);
  if (second_) return a;  // both heads of a pair read the same stored head: contiguous groups
  // Heads 2i and 2i+1 read different stored keys, so grouped keys need a table.
  const int64_t pairs = sizes_.output_heads, repeat = pairs / sizes_.value_heads;
  for (int64_t i = 0; i < pairs; ++i)
    for (int64_t b : {0, 1}) a.heads.key_of.push_back(2 * (i / repeat) + b);
  return a;
}

Tensor Differential::finish(const Tensor& out_BTHE, const Tensor& x) {
  return Projected::finish(head_norm ? head_norm(out_BTHE) * (1 - lambda_init_) : out_BTHE, x);
}

std::vector<LearnedMap> Differential::learned() {
  if (second_) return {};
  return {{"lambda", lambda().detach().view({1, 1})}};
}

void Differential::initialize_extras(const Streams& random) {
  Projected::initialize_extras(random);
  for (const auto& [name, vector] : {std::pair("lambda_q1", lambda_q1_D), std::pair("lambda_k1", lambda_k1_D),
                                     std::pair("lambda_q2", lambda_q2_D), std::pair("lambda_k2", lambda_k2_D)})
    if (vector.defined()) random.normal(name, vector, setting_.number("lambda_std"));
}

bool Differential::decays(const std::string& name) const {
  return name != "lambda_proj.weight" && Projected::decays(name);
}

std::string Differential::caveat() const {
  constexpr int64_t kFewest = 8;  // of the authors' experiments
  if (second_ || sizes_.output_heads >= kFewest) return "";
  return text(sizes_.output_heads, sizes_.output_heads == 1 ? " pair" : " pairs", " of heads, and its authors use ",
              kFewest, " or more");
}

MechanismEntry differential_entry() {
  using enum OptionType;
  return {.name = "differential",
          .summary = "the difference of two softmax maps (Differential Transformer V1, V2)",
          .options =
              {{"version",
                string,
                "v1",
                {},
                {},
                {"v1", "v2"},
                "V1: half the heads in pairs, values of double width; V2: double query heads"},
               {"lambda_start",
                string,
                "schedule",
                {},
                {},
                {"schedule", "constant"},
                "V1: lambda_init by depth, 0.8 - 0.6 exp(-0.3 depth), or lambda_init"},
               {"lambda_init", number, 0.8, 0, 1, {}, "V1: lambda_init of every layer when lambda_start is constant"},
               {"lambda_std", number, 0.1, 0, 10, {}, "V1: first standard deviation of the lambda vectors"},
               {"head_norm",
                string,
                "affine",
                {},
                {},
                {"affine", "plain", "none"},
                "V1: RMS norm per head with a weight, without, or none"},
               {"head_norm_eps", number, 1e-5, 0, 1, {}, "epsilon of the head norm"}},
          .presets = {{"differential_v1", true, {{"mechanism", "differential"}, {"version", "v1"}}},
                      {"differential_v2", true, {{"mechanism", "differential"}, {"version", "v2"}}}},
          .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<Differential>(s); }};
}

}  // namespace motet
