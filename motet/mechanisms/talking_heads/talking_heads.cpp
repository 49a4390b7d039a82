#include "motet/mechanisms/talking_heads/talking_heads.h"

#include <cmath>

#include "motet/core/error.h"
#include "motet/layers/token_by_token.h"

namespace motet {
namespace {

const Fields<TalkingHeadsOptions>& options() {
  using T = TalkingHeadsOptions;
  constexpr Sides kNone{false, false}, kQuery{true, false}, kKey{false, true}, kBoth{true, true};
  const Words<Sides> sides{{"none", kNone}, {"query", kQuery}, {"key", kKey}, {"both", kBoth}};
  const Words<std::optional<Sides>> own{
      {"same", std::nullopt}, {"none", kNone}, {"query", kQuery}, {"key", kKey}, {"both", kBoth}};
  static const Fields<T> table{
      {"score_heads", &T::score_heads, {0, 1024}, "key heads h_k; 0 = num_heads"},
      {"softmax_heads", &T::softmax_heads, {0, 1024}, "softmax heads h; 0 = num_heads"},
      {"value_heads", &T::value_heads, {0, 1024}, "value heads h_v; 0 = num_heads"},
      {"key_dim", &T::key_dim, {0, 4096}, "width of queries and keys; 0 = head_dim"},
      {"value_dim", &T::value_dim, {0, 4096}, "width of values; 0 = head_dim"},
      {"mixes",
       &T::mixes,
       {{"both", {true, true}}, {"pre", {true, false}}, {"post", {false, true}}},
       "mix the logits (pre), the weights (post) or both"},
      {"static", &T::fixed, "learned maps that are the same everywhere"},
      {"start",
       &T::start,
       {{"identity", T::Start::identity}, {"random", T::Start::random}},
       "first values of the static maps (square ones only can be the identity)",
       where("static", {true})},
      {"dynamic", &T::dynamic, sides, "maps computed from the query's or key's hidden state"},
      {"dynamic_logits", &T::dynamic_logits, own, "dynamic maps of the logits alone; same: as dynamic"},
      {"dynamic_weights", &T::dynamic_weights, own, "dynamic maps of the weights alone; same: as dynamic"},
      {"dynamic_std",
       &T::dynamic_std,
       {0, 1},
       "first standard deviation of the dynamic maps, times 1/sqrt(width heads)"},
      {"residual", &T::residual, "add the scores to their mix (x-transformers)"},
      {"qk_scale",
       &T::qk_scale,
       {{"default", T::Scale::by_width}, {"none", T::Scale::none}},
       "1/sqrt(key_dim), or 1 as in the authors' weights"},
      {"collinear",
       &T::collinear,
       {{"none", std::nullopt}, {"exact", CocaForm::exact}, {"slack", CocaForm::slack}, {"strict", CocaForm::strict}},
       "collinear queries and keys, as the form of coca"}};
  return table;
}

struct Counts {
  int64_t score, softmax, value;
};

Counts counts(const TalkingHeadsOptions& o, int64_t num_heads) {
  const auto own = [&](int64_t given) { return given > 0 ? given : num_heads; };
  return {own(o.score_heads), own(o.softmax_heads), own(o.value_heads)};
}

HeadSizes sizes(const Setting& s) {
  const TalkingHeadsOptions o = options().read(s.options.all);
  const AttentionOptions& common = s.options.common;
  const Counts n = counts(o, common.num_heads);
  if (common.num_kv_heads != 0 && common.num_kv_heads != common.num_heads)
    refuse_option("num_kv_heads",
                  "talking heads has a stored key for each score head and a value for each value head; set score_heads "
                  "and value_heads");
  return {.query_heads = n.score,
          .softmax_heads = n.softmax,
          .key_heads = n.score,
          .value_heads = n.value,
          .output_heads = n.value,
          .key_dim = o.key_dim > 0 ? o.key_dim : head_dim(s),
          .value_dim = o.value_dim > 0 ? o.value_dim : head_dim(s),
          .key_name = o.collinear ? "t_proj" : "k_proj"};
}

// What is learned of the mix before the softmax (logits) or after it (weights). Nothing: it passes its input on.
struct Terms {
  bool fixed = false, query = false, key = false;
  bool any() const { return fixed || query || key; }
};

Terms terms(const TalkingHeadsOptions& o, bool logits) {
  const std::optional<Sides> own = logits ? o.dynamic_logits : o.dynamic_weights;
  const Sides sides = own.value_or(o.dynamic);
  if (logits ? o.mixes.pre : o.mixes.post) return {.fixed = o.fixed, .query = sides.query, .key = sides.key};
  const auto word = [](Sides s) { return s.query ? (s.key ? "both" : "query") : "key"; };
  if (own && (own->query || own->key))
    refuse_option(logits ? "dynamic_logits" : "dynamic_weights",
                  text("'", word(*own), "' while mixes is '", logits ? "post" : "pre", "', want none or mixes = both"));
  return {};
}

// Identity where the counts agree and that is asked for, else fan-in.
void fill_mix(const std::string& name, Tensor mix, bool identity, const Streams& random) {
  if (!mix.defined()) return;
  if (identity && mix.size(0) == mix.size(1)) {
    mix.copy_(at::eye(mix.size(0), mix.options()));
  } else {
    random.normal(name, mix, 1 / std::sqrt(static_cast<double>(mix.size(0))));
  }
}

}  // namespace

TalkingHeads::TalkingHeads(const Setting& s) : Projected(s, sizes(s)), options_(options().read(s.options.all)) {
  const Counts n = counts(options_, s.options.common.num_heads);
  const Terms logits = terms(options_, true), weights = terms(options_, false);
  if (!logits.any() && n.score != n.softmax)
    refuse_option("softmax_heads", "must equal score_heads when the logits are not mixed");
  if (!weights.any() && n.softmax != n.value)
    refuse_option("value_heads", "must equal softmax_heads when the weights are not mixed");
  if (options_.residual && n.score != n.softmax)
    refuse_option("residual", "adds the scores to their mix, which needs score_heads = softmax_heads");
  if (options_.collinear) collinear_.emplace(*options_.collinear, sizes_.key_dim, rotary_);
  const int64_t memory = s.memory_size > 0 ? s.memory_size : s.hidden_size;
  const auto add = [&](bool wanted, const char* name, std::vector<int64_t> shape) {
    return wanted ? register_parameter(name, s.zeros(shape)) : Tensor();
  };
  logits_mix_NM = add(logits.fixed, "logits_mix", {n.score, n.softmax});
  weights_mix_NM = add(weights.fixed, "weights_mix", {n.softmax, n.value});
  query_logits_CNM = add(logits.query, "query_logits_mix", {s.hidden_size, n.score, n.softmax});
  key_logits_CNM = add(logits.key, "key_logits_mix", {memory, n.score, n.softmax});
  query_weights_CNM = add(weights.query, "query_weights_mix", {s.hidden_size, n.softmax, n.value});
  key_weights_CNM = add(weights.key, "key_weights_mix", {memory, n.softmax, n.value});
}

Tensor TalkingHeads::full(const Tensor& map_CNM, const Tensor& x_BTC) const {
  if (!map_CNM.defined()) return {};
  const Tensor map = map_CNM.flatten(1);
  const Tensor made = token_by_token(x_BTC, [&](const Tensor& x) { return at::matmul(x, map); });
  return made.unflatten(-1, {map_CNM.size(1), map_CNM.size(2)});
}

Keys TalkingHeads::keys(const Tensor& memory, const Positions& at) { return restore(compact_keys(memory, at), at); }

Keys TalkingHeads::compact_keys(const Tensor& memory, const Positions& at) {
  Keys k;
  std::tie(k.k_BSGD, k.v_BSGE) = key_and_value_heads(memory);
  k.k_BSGD = collinear_ ? collinear_->compact(k.k_BSGD) : rotary_(k.k_BSGD, at);
  k.pre.full_BSHH = full(key_logits_CNM, memory);
  k.post.full_BSHH = full(key_weights_CNM, memory);
  return k;
}

Keys TalkingHeads::restore(const Keys& compact, const Positions& at) {
  Keys k = compact;
  if (collinear_) k.k_BSGD = collinear_->key(compact.k_BSGD, rotary_, at);
  return k;
}

Queries TalkingHeads::queries(const Tensor& x, const Positions& at) {
  Queries q;
  q.q_BTHD = collinear_ ? collinear_->query(query_heads(x), rotary_, at) : rotary_(query_heads(x), at);
  q.pre.full_BTHH = full(query_logits_CNM, x);
  q.post.full_BTHH = full(query_weights_CNM, x);
  return q;
}

Attention TalkingHeads::attention(const Positions& queries, const Positions& keys, Pass pass) {
  Attention a = Projected::attention(queries, keys, pass);
  a.pre = {options_.residual, logits_mix_NM};
  a.post = {false, weights_mix_NM};
  if (options_.qk_scale == TalkingHeadsOptions::Scale::none) a.scale = 1.0;
  return a;
}

std::vector<LearnedMap> TalkingHeads::learned() {
  std::vector<LearnedMap> maps;
  if (logits_mix_NM.defined()) maps.push_back({"logits mix", logits_mix_NM});
  if (weights_mix_NM.defined()) maps.push_back({"weights mix", weights_mix_NM});
  return maps;
}

void TalkingHeads::initialize_extras(const Streams& random) {
  Projected::initialize_extras(random);
  const bool identity = options_.start == TalkingHeadsOptions::Start::identity;
  fill_mix("logits_mix", logits_mix_NM, identity, random);
  fill_mix("weights_mix", weights_mix_NM, identity, random);
  for (const auto& [name, map] :
       {std::pair("query_logits_mix", query_logits_CNM), std::pair("key_logits_mix", key_logits_CNM),
        std::pair("query_weights_mix", query_weights_CNM), std::pair("key_weights_mix", key_weights_CNM)})
    if (map.defined())
      random.normal(name, map, options_.dynamic_std / std::sqrt(static_cast<double>(map.size(0) * map.size(1))));
}

bool TalkingHeads::decays(const std::string& name) const {
  return name != "logits_mix" && name != "weights_mix" && Projected::decays(name);
}

MechanismEntry talking_heads_entry() {
  return {.name = "talking_heads",
          .summary = "static and dynamic linear maps over heads around the softmax",
          .options = options().table(),
          .presets = {{"talking_heads", true, {{"mechanism", "talking_heads"}}}},
          .make = [](const Setting& s) -> std::shared_ptr<Mechanism> { return std::make_shared<TalkingHeads>(s); }};
}

}  // namespace motet
