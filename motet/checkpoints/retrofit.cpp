#include "motet/checkpoints/retrofit.h"

#include <cmath>

#include "motet/core/error.h"

// Source of each start: the papers' own mechanisms at the point where they are plain attention; docs/checkpoints.md.
namespace motet {
namespace {

using nlohmann::json;
using Load = std::function<Tensor()>;

// What a retrofit works on: the adaptation so far, and random numbers for what is new.
struct Work {
  Adaptation& a;
  at::Generator random;

  json& options() { return a.config.attention; }
  int64_t heads() { return options().at("num_heads"); }
  int64_t width() const { return a.config.hidden_size(); }

  // The options of another mechanism: those that both have stay as they are.
  void become(const std::string& mechanism, const json& own) {
    json given{{"mechanism", mechanism}};
    for (const Option& option : common_attention_options().table()) given[option.name] = options().at(option.name);
    given["head_dim"] = head_width(a.config);
    given.update(own);
    options() = resolve_attention(given, "model.attention");
  }

  template <class Change>
  void each_layer(Change change) {
    for (int64_t i = 0; i < a.config.num_blocks(); ++i) change(text("model.layers.", i, ".self_attn."));
  }

  // Changes a tensor, and its bias when there is one.
  void change(const std::string& name, const std::function<Tensor(const Tensor&)>& how) {
    for (const char* part : {".weight", ".bias"})
      if (const auto found = a.tensors.find(name + part); found != a.tensors.end())
        found->second = [old = found->second, how] { return how(old()); };
  }

  void add(const std::string& name, const Tensor& value) {
    const at::ScalarType type = a.tensors.at("model.embed_tokens.weight")().scalar_type();
    a.tensors[name] = [value = value.to(type)] { return value; };
  }

  Tensor normal(at::IntArrayRef shape, double deviation) { return at::empty(shape).normal_(0, deviation, random); }
};

// Down rows are random, up rows and gates 0: both mixes add 0 at first, and their gradients are not 0.
void to_dcmha(Work& w) {
  const int64_t heads = w.heads(), rank = 2, hidden = 2 * rank * heads, branches = 4;
  w.become("dcmha", {{"rank", rank}});
  const double width = static_cast<double>(w.width()), inner = static_cast<double>(hidden);
  w.each_layer([&](const std::string& layer) {
    w.add(layer + "compose_hidden", w.normal({w.width(), 1, branches, hidden}, std::sqrt(2 / (width + inner))));
    const Tensor up = at::zeros({1, branches, hidden, 2 * rank, heads});
    up.slice(3, 0, rank).copy_(w.normal({1, branches, hidden, rank, heads}, 1 / std::sqrt(inner)));
    w.add(layer + "compose_up", up);
    w.add(layer + "compose_gate", at::zeros({w.width(), branches, heads}));
  });
}

// Each score head has its stored key and each value head its value: grouped ones are repeated.
void to_talking_heads(Work& w) {
  const int64_t heads = w.heads(), stored = kv_heads(w.a.config), repeat = heads / stored;
  w.become("talking_heads", {{"num_kv_heads", 0}});
  const auto repeated = [=](const Tensor& t) {
    return t.unflatten(0, {stored, -1}).repeat_interleave(repeat, 0).flatten(0, 1);
  };
  w.each_layer([&](const std::string& layer) {
    if (repeat > 1)
      for (const char* name : {"k_proj", "v_proj"}) w.change(layer + name, repeated);
    for (const char* name : {"logits_mix", "weights_mix"}) w.add(layer + name, at::eye(heads));
  });
}

// (a - a/2) * 2 = a: lambda is sigmoid(0), and both heads of a pair are the old one.
void to_differential_v2(Work& w) {
  const int64_t heads = w.heads();
  const std::string bias = w.options().at("position_bias");
  if (bias != "none")
    fail("retrofit differential_v2: the model has model.attention.position_bias = ", bias,
         ", which the two heads of a pair would not share, want none");
  w.become("differential", {{"version", "v2"}});
  const auto twice = [=](const Tensor& t) { return t.unflatten(0, {heads, -1}).repeat_interleave(2, 0).flatten(0, 1); };
  w.each_layer([&](const std::string& layer) {
    w.change(layer + "q_proj", twice);
    Load& out = w.a.tensors.at(layer + "o_proj.weight");
    out = [old = out] { return old() * 2; };
    w.add(layer + "lambda_proj.weight", at::zeros({heads, w.width()}));
  });
}

// New key rows are 0, new query rows random: the score stays and the keys learn. The rotary part stays where it is, and
// sqrt(2) in the queries makes up for the scale of wider heads.
void to_key_size(Work& w) {
  const int64_t heads = w.heads(), stored = kv_heads(w.a.config), old = head_width(w.a.config), wide = 2 * old;
  if (w.options().at("qk_norm").get<bool>()) fail("retrofit key_size: a QK norm would see the new width, want none");
  const double fraction = w.options().at("rope_fraction").get<double>() / 2;
  w.become("key_size", {{"key_dim", wide}, {"value_dim", old}, {"rope_fraction", fraction}});
  const double range = w.a.config.options.initializer_range;
  w.each_layer([&](const std::string& layer) {
    // One set of random rows for the weight; a bias gets zeros.
    const Tensor fresh = w.normal({heads, old, w.width()}, range);
    w.change(layer + "q_proj", [=](const Tensor& t) {
      const Tensor by_head = t.unflatten(0, {heads, old}) * std::sqrt(2.0);
      return at::cat({by_head, t.dim() == 2 ? fresh.to(t.scalar_type()) : at::zeros_like(by_head)}, 1).flatten(0, 1);
    });
    w.change(layer + "k_proj", [=](const Tensor& t) {
      const Tensor by_head = t.unflatten(0, {stored, old});
      return at::cat({by_head, at::zeros_like(by_head)}, 1).flatten(0, 1);
    });
  });
}

// The first step of the authors' recipe: a fresh map to keys, which are then tied to the queries. Not equal.
void to_coca(Work& w) {
  const int64_t rows = kv_heads(w.a.config) * head_width(w.a.config);
  const bool bias = w.options().at("bias");
  const double range = w.a.config.options.initializer_range;
  w.become("coca", {{"form", "slack"}});
  w.each_layer([&](const std::string& layer) {
    w.a.tensors.erase(layer + "k_proj.weight");
    w.a.tensors.erase(layer + "k_proj.bias");
    w.add(layer + "t_proj.weight", w.normal({rows, w.width()}, range));
    if (bias) w.add(layer + "t_proj.bias", at::zeros({rows}));
  });
}

struct Retrofit {
  const char* name;
  void (*apply)(Work&);
  bool equal = true;
};

constexpr Retrofit kRetrofits[] = {{"coca", to_coca, false},
                                   {"dcmha", to_dcmha},
                                   {"differential_v2", to_differential_v2},
                                   {"key_size", to_key_size},
                                   {"talking_heads", to_talking_heads}};

const Retrofit& find_retrofit(const std::string& name) {
  for (const Retrofit& one : kRetrofits)
    if (one.name == name) return one;
  fail_usage(unknown_name("retrofit", name, retrofit_names()));
}

}  // namespace

std::vector<std::string> retrofit_names() {
  std::vector<std::string> names;
  for (const Retrofit& one : kRetrofits) names.push_back(one.name);
  return names;
}

bool starts_equal(const std::string& retrofit) { return find_retrofit(retrofit).equal; }

Adaptation retrofitted(const Checkpoint& c, const std::string& name, uint64_t seed) {
  const Retrofit& retrofit = find_retrofit(name);
  const std::string mechanism = c.config.attention.at("mechanism");
  if (mechanism != "softmax") fail("retrofit ", name, ": the model has the mechanism ", mechanism, ", want softmax");
  if (c.config.attention.at("layers") != "all")
    fail("retrofit ", name,
         ": the model has model.attention.layers = ", c.config.attention.at("layers").get<std::string>(), ", want all");
  const std::string norm = c.config.attention.at("head_norm");
  if (norm != "none")
    fail("retrofit ", name, ": the model has model.attention.head_norm = ", norm, ", which ", name,
         " has no place for, want none");
  Adaptation a{.config = c.config, .tensors = {}};
  for (const auto& [own, tensor] : our_tensors(c)) a.tensors[own] = [tensor] { return tensor.load(); };
  Work work{a, at::detail::createCPUGenerator(seed)};
  retrofit.apply(work);
  return a;
}

Checkpoint as_checkpoint(const Adaptation& a, const Checkpoint& source) {
  Checkpoint made{.format = source.format, .layout = &layouts().front(), .config = a.config};
  made.folder = source.folder;
  made.published = source.published;
  made.tensors = {.where = source.tensors.where, .all = {}, .files = source.tensors.files};
  for (const auto& [name, load] : a.tensors) {
    const Tensor first = load();  // for its shape and type; released at once
    made.tensors.all[name] = {first.sizes().vec(), first.scalar_type(), load, stored_dtype_of(first.scalar_type())};
    made.rows.push_back({name, {name}});
  }
  return made;
}

}  // namespace motet
