#include <algorithm>
#include <cmath>

#include "motet/core/error.h"
#include "motet/mechanisms/dcmha/dcmha.h"
#include "motet/verify/layer.h"
#include "motet/verify/rope.h"

namespace motet {
namespace {

using nlohmann::json;

constexpr int64_t kMostHeads = 4096;  // and the widest head: what the options of the mechanisms allow

bool has_option(const std::string& mechanism, const std::string& name) {
  const OptionTable all = attention_options(find_mechanism(mechanism));
  return std::any_of(all.begin(), all.end(), [&](const Option& option) { return option.name == name; });
}

// What our code fixes must be what the spec says.
void want(const Spec& spec, const json& value) {
  if (spec.value() != value) spec.refuse(value.dump() + ": our mechanism has no other");
}

void add_sizes(const Spec& spec, json& o) {
  const Spec heads = spec["heads"];
  const int64_t scores = heads["scores"].integer(), keys = heads["keys"].integer(), values = heads["values"].integer();
  for (const Spec& size : {heads["scores"], heads["softmax"], heads["outputs"], heads["keys"], heads["values"],
                           spec["head_dim"], spec["value_dim"]})
    if (size.integer() < 1 || size.integer() > kMostHeads) size.refuse(text("1 to ", kMostHeads));
  const bool v1 = o.value("version", "") == "v1", v2 = o.value("version", "") == "v2";
  o["num_heads"] = v2 ? heads["outputs"].integer() : scores;
  o["head_dim"] = spec["head_dim"].integer();
  const std::string mechanism = o["mechanism"];
  if (has_option(mechanism, "score_heads")) {
    for (const auto& [option, stage] : {std::pair("score_heads", "scores"), std::pair("softmax_heads", "softmax"),
                                        std::pair("value_heads", "outputs")})
      o[option] = heads[stage].integer();
  } else if (keys > 0 && o["num_heads"].get<int64_t>() % keys == 0 && keys == (v1 ? 2 * values : values)) {
    o["num_kv_heads"] = keys;  // other groupings are written out, one stored head for each score head
  }
  if (!has_option(mechanism, "key_dim")) return;
  o["key_dim"] = spec["head_dim"].integer();
  o["value_dim"] = spec["value_dim"].integer();
}

void add_lambda(const Spec& spec, json& o) {
  const Spec lambda = spec["lambda"], norm = spec["head_norm"];
  if (lambda.null()) {
    if (!norm.null()) norm.refuse("null without lambda");
    return;
  }
  const std::string type = lambda["type"].word();
  if (type != "exp" && type != "sigmoid") lambda["type"].refuse("exp or sigmoid");
  o["version"] = type == "exp" ? "v1" : "v2";
  if (type == "sigmoid") {
    want(lambda["input"], spec["query_from"].value());
    if (!norm.null()) norm.refuse("null with a sigmoid lambda");
    return;
  }
  const double start = spec["lambda_init"].number();
  o["lambda_start"] = "constant";
  o["lambda_init"] = start;
  o["head_norm"] = norm.null() ? "none" : norm["weight"].null() ? "plain" : "affine";
  if (norm.null()) return;
  o["head_norm_eps"] = norm["eps"].number();
  if (std::abs(norm["factor"].number() - (1 - start)) > 1e-14)
    norm["factor"].refuse(text(1 - start, " (1 - lambda_init)"));
}

void add_generated_mixes(const GoldenFile& file, const Spec& spec, const Spec& dynamic, json& o) {
  const std::vector<std::string> active = dynamic["active"].words();
  const auto on = [&](const char* branch) { return std::find(active.begin(), active.end(), branch) != active.end(); };
  for (const std::string& name : active)
    if (std::find(std::begin(kDcmhaBranches), std::end(kDcmhaBranches), name) == std::end(kDcmhaBranches))
      fail(unknown_name(dynamic.place() + ".active", name, {std::begin(kDcmhaBranches), std::end(kDcmhaBranches)}));
  o["low_rank"] = dynamic.has("hidden");
  o["gates"] = dynamic.has("gate");
  if (dynamic.has("hidden")) {
    o["rank"] = dynamic["rank"].integer();
    o["gelu"] = dynamic["gelu"].word();
    want(dynamic["down_norm"]["eps"], 1e-6);
    want(dynamic["down_norm"]["over"], "heads");
    const std::string hidden = dynamic["hidden"].word();
    if (file.layout(hidden, "C1PK").find('G') != std::string::npos) o["groups"] = file.input(hidden, "CGPK").size(1);
  }
  if (dynamic.has("gate")) want(dynamic["gate_activation"], "tanh");
  // Branches that are off are zeros where sides and places do not say it.
  const bool query = on("pre_query") || on("post_query"), key = on("pre_key") || on("post_key");
  if (query != key) o["sides"] = query ? "query" : "key";
  const Spec fixed = spec["static"];
  const bool pre = on("pre_query") || on("pre_key") || fixed.has("pre"),
             post = on("post_query") || on("post_key") || fixed.has("post");
  if (pre != post) o["where"] = pre ? "pre" : "post";
}

void add_mixes(const GoldenFile& file, const Spec& spec, json& o) {
  const Spec fixed = spec["static"], dynamic = spec["dynamic"];
  const std::string mechanism = o["mechanism"];
  if (mechanism == "dcmha") {
    o["static"] = fixed.has("pre") || fixed.has("post");
    o["low_rank"] = o["gates"] = false;
  }
  if (!dynamic.null()) {
    const std::string type = dynamic["type"].word();
    if (type == "dcmha") return add_generated_mixes(file, spec, dynamic, o);
    if (type != "full") dynamic["type"].refuse("dcmha or full");
    for (const auto& [option, place] : {std::pair("dynamic_logits", "pre"), std::pair("dynamic_weights", "post")}) {
      bool query = false, key = false;
      for (const Spec& part : dynamic["parts"].items())
        if (part["mix"].word() == place) (part["side"].word() == "query" ? query : key) = true;
      o[option] = query && key ? "both" : query ? "query" : key ? "key" : "none";
    }
  }
  if (!has_option(mechanism, "mixes")) return;
  const bool pre = has_parts(spec, "pre"), post = has_parts(spec, "post");
  if (pre != post) o["mixes"] = pre ? "pre" : "post";
  o["static"] = fixed.has("pre") || fixed.has("post");
  o["residual"] = pre && spec["identity"]["pre"].flag();
}

void add_visibility(const Spec& spec, json& o, bool& causal) {
  causal = spec["causal"].flag() && spec["mask"].null();
  o["window"] = spec["mask"].null() ? spec["window"].integer() : 0;
  o["window_mask"] = spec["window_mask"].word();
}

}  // namespace

bool has_parts(const Spec& spec, const std::string& place) {
  if (spec["static"].has(place)) return true;
  const Spec dynamic = spec["dynamic"];
  if (dynamic.null()) return false;
  if (dynamic["type"].value() == "full") {
    const std::vector<Spec> parts = dynamic["parts"].items();
    return std::any_of(parts.begin(), parts.end(), [&](const Spec& part) { return part["mix"].value() == place; });
  }
  const std::vector<std::string> active = dynamic["active"].words();
  return std::any_of(active.begin(), active.end(), [&](const std::string& name) { return name.starts_with(place); });
}

Setting layer_setting(const GoldenFile& file, const Spec& spec) {
  json o = {{"mechanism", spec["mechanism"].word()}};
  if (spec.has("residual")) want(spec["residual"], false);
  if (!spec["form"].null() || o["mechanism"] == "coca") o["form"] = spec["form"].word();
  add_lambda(spec, o);
  add_sizes(spec, o);
  add_mixes(file, spec, o);
  add_rope_options(spec["rope"], spec["head_dim"].integer(), o);
  const Spec projections = spec["projections"];
  bool bias = false;
  for (const char* name : {"q", "k", "v", "out"}) bias = bias || projections[name].has("bias");
  o["bias"] = bias;
  if (const Spec norm = spec["qk_norm"]; !norm.null()) {
    o["qk_norm"] = true;
    o["qk_norm_eps"] = norm["eps"].number();
    if (norm.has("when")) want(norm["when"], "before_rope");
  }
  Setting setting{.device = file.device()};
  add_visibility(spec, o, setting.causal);
  setting.hidden_size = file.input(spec["query_from"], "BTC").size(2);
  if (spec["key_from"].value() != spec["query_from"].value())
    setting.memory_size = file.input(spec["key_from"], "BSC").size(2);
  for (const auto& [name, value] : o.items())
    if (!has_option(o["mechanism"], name))
      fail("mechanism ", quote(o["mechanism"].get<std::string>()), " has no option '", name, "', which the spec needs");
  setting.options = resolve_attention(o, "model.attention");
  return setting;
}

}  // namespace motet
