#include <algorithm>

#include "motet/core/error.h"
#include "motet/mechanisms/dcmha/dcmha.h"
#include "motet/verify/layer.h"
#include "motet/verify/layouts.h"

namespace motet {
namespace {

void add_norms(const GoldenFile& file, const Spec& spec, Expressions& out) {
  if (const Spec norm = spec["qk_norm"]; !norm.null()) {
    out["q_norm.weight"] = vector_of(file, norm["q"]);
    out["k_norm.weight"] = vector_of(file, norm["k"]);
  }
  if (const Spec norm = spec["head_norm"]; norm.has("weight")) out["subln.weight"] = vector_of(file, norm["weight"]);
  const Spec lambda = spec["lambda"];
  if (lambda.null()) return;
  if (lambda["type"].value() == "sigmoid") out["lambda_proj.weight"] = file.input(lambda["weight"], "OI");
  if (lambda["type"].value() != "exp") return;
  for (const char* vector : {"q1", "k1", "q2", "k2"})
    out[std::string("lambda_") + vector] = vector_of(file, lambda[vector]);
}

// The branches that our mechanism has, in its order; those that only the spec leaves off become zeros.
Tensor branches(const Tensor& t, int64_t axis, const Spec& dynamic, const std::vector<int>& wanted) {
  const std::vector<std::string> stored = dynamic["branches"].words(), active = dynamic["active"].words();
  std::vector<Tensor> ours;
  for (int branch : wanted) {
    const std::string name = kDcmhaBranches[branch];
    const auto place = std::find(stored.begin(), stored.end(), name);
    const bool on = std::find(active.begin(), active.end(), name) != active.end();
    if (on && place == stored.end()) fail(dynamic.place(), ".active: ", name, " is not one of the branches");
    ours.push_back(on ? t.select(axis, place - stored.begin()) : at::zeros_like(t.select(axis, 0)));
  }
  return at::stack(ours, axis);
}

void add_generated_mixes(const GoldenFile& file, const Spec& dynamic, const std::vector<int>& wanted,
                         Expressions& out) {
  if (dynamic.has("hidden")) {
    out["compose_hidden"] = branches(file.input(dynamic["hidden"], "CGPK"), 2, dynamic, wanted);
    out["compose_up"] = branches(file.input(dynamic["up"], "GPKRH"), 1, dynamic, wanted);
  }
  if (!dynamic.has("gate")) return;
  const int64_t stored = static_cast<int64_t>(dynamic["branches"].items().size());
  const Tensor gate_CGPH = file.input(dynamic["gate"], "CGO").unflatten(-1, {stored, -1});
  out["compose_gate"] = branches(gate_CGPH.permute({0, 2, 1, 3}).flatten(2), 1, dynamic, wanted);
}

// A static map as the spec says it. dcmha keeps the identity beside it: where the spec drops that, the map makes up.
Tensor static_map(const GoldenFile& file, const Spec& spec, const char* place, bool dcmha) {
  const Spec fixed = spec["static"][place];
  if (fixed.null()) return {};
  const std::string name = fixed["tensor"].word();
  const Tensor map = arranged(file.input(name), fixed["layout"].word(), dcmha ? "GNM" : "NM", name);
  if (!dcmha || spec["identity"][place].flag()) return map;
  return map - at::eye(map.size(-1), map.options().requires_grad(false));
}

void add_mixes(const GoldenFile& file, const Spec& spec, const Setting& setting, Expressions& out) {
  const bool dcmha = setting.options.all.at("mechanism") == "dcmha";
  for (const char* place : {"pre", "post"}) {
    const std::string own = dcmha                         ? std::string("compose_static_") + place
                            : std::string(place) == "pre" ? "logits_mix"
                                                          : "weights_mix";
    out[own] = static_map(file, spec, place, dcmha);
  }
  const Spec dynamic = spec["dynamic"];
  if (!dynamic.null() && dynamic["type"].value() == "dcmha")
    return add_generated_mixes(file, dynamic, active_branches(dcmha_options().read(setting.options.all)), out);
  for (const char* name : {"query_logits_mix", "key_logits_mix", "query_weights_mix", "key_weights_mix"})
    out[name] = Tensor();
  if (dynamic.null()) return;
  for (const Spec& part : dynamic["parts"].items()) {
    const std::string side = part["side"].word(), mix = part["mix"].word(),
                      from = side == "query" ? "query_from" : "key_from";
    if (side != "query" && side != "key") part["side"].refuse("query or key");
    if (mix != "pre" && mix != "post") part["mix"].refuse("pre or post");
    if (part["input"].value() != spec[from].value()) part["input"].refuse("the tensor of " + from);
    Tensor& sum = out[side + (mix == "pre" ? "_logits_mix" : "_weights_mix")];
    const Tensor map = arranged(file.input(part["tensor"].word()), part["layout"].word(), "CNM", part["tensor"].word());
    sum = sum.defined() ? sum + map : map;
  }
}

void fill(Layer& layer, Expressions expressions) {
  at::NoGradGuard guard;
  const std::string name = layer.setting.options.all.at("mechanism").get<std::string>();
  for (auto& item : layer.mechanism->named_parameters()) {
    const auto found = expressions.extract(item.key());
    if (found.empty()) fail("the spec says nothing of ", item.key(), ", which mechanism ", quote(name), " needs");
    Tensor parameter = item.value();
    const Tensor& expression = found.mapped();
    if (!expression.defined()) {
      parameter.zero_();
      continue;
    }
    if (parameter.sizes() != expression.sizes())
      fail("the spec gives ", item.key(), " the shape ", expression.sizes(), ", mechanism ", quote(name), " wants ",
           parameter.sizes());
    parameter.copy_(expression);
    layer.parameters.push_back(parameter);
    layer.expressions.push_back(expression);
  }
  for (const auto& [key, expression] : expressions)
    if (expression.defined()) fail("mechanism ", quote(name), " has no ", key, ", which the spec describes");
}

}  // namespace

Layer make_layer(const GoldenFile& file, const Spec& spec) {
  Layer layer{.setting = layer_setting(file, spec)};
  layer.mechanism = make_mechanism(layer.setting);
  layer.mechanism->to(file.type());
  Expressions expressions;
  add_projections(file, spec, layer, expressions);
  add_norms(file, spec, expressions);
  add_mixes(file, spec, layer.setting, expressions);
  fill(layer, std::move(expressions));
  return layer;
}

}  // namespace motet
