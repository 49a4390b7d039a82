#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/mechanisms/projected.h"
#include "motet/verify/arguments.h"
#include "motet/verify/layer.h"
#include "motet/verify/rope.h"

namespace motet {
namespace {

// What the layer reads and where its tokens stand.
struct Inputs {
  Tensor x_BTC, memory_BSC;
  Positions at, memory_at;
  bool self;
  CallSizes sizes;
};

Inputs read_inputs(const GoldenFile& file, const Spec& spec) {
  Inputs in{.x_BTC = file.input(spec["query_from"], "BTC"), .memory_BSC = file.input(spec["key_from"], "BSC")};
  in.self = spec["query_from"].value() == spec["key_from"].value();
  in.sizes = {in.x_BTC.size(0), in.x_BTC.size(1), in.memory_BSC.size(1)};
  in.at = rope_positions(file, spec["rope"], in.sizes.T);
  in.memory_at = in.self ? in.at : rope_positions(file, spec["rope"], in.sizes.S);
  return in;
}

// Whether a mix passes its input on beside its parts is the mechanism's own, and must be what the spec says. A mix
// without parts always passes it, pairs never do, and a static map of dcmha makes up for the difference.
void check_identity(const Spec& spec, const std::string& place, bool own) {
  const Spec stated = spec["identity"][place];
  if (place == "post" && !spec["lambda"].null()) {
    if (stated.flag()) stated.refuse("false beside lambda");
    return;
  }
  const bool made_up = spec["mechanism"].value() == "dcmha" && spec["static"].has(place);
  if (has_parts(spec, place) && (stated.flag() || made_up) != own)
    stated.refuse(text(own ? "true" : "false", ": our mechanism has no other"));
}

// The mechanism's own arguments, with what the spec states beside them.
Attention stated_attention(const GoldenFile& file, const Spec& spec, const Layer& layer, const Inputs& in) {
  Attention a = layer.mechanism->attention(in.at, in.memory_at, Pass::whole);
  const Heads stated = read_heads(spec);
  a.heads.scores = stated.scores, a.heads.softmax = stated.softmax, a.heads.outputs = stated.outputs;
  if (!layer.key_of.empty()) a.heads.key_of = layer.key_of;
  if (!layer.value_of.empty()) a.heads.value_of = layer.value_of;
  check_identity(spec, "pre", a.pre.identity);
  check_identity(spec, "post", a.post.identity);
  if (spec["static"]["pre"].null()) a.pre.weight_HH.reset();
  if (spec["static"]["post"].null()) a.post.weight_HH.reset();
  if (const auto scale = read_scale(spec)) a.scale = scale;
  read_tables(file, spec, in.sizes, a.visibility);
  return a;
}

void append(Keys& cache, const Keys& more) {
  std::vector<Tensor> added;
  for_each_tensor(more, [&](const Tensor& t) { added.push_back(t); });
  size_t i = 0;
  for_each_tensor(cache, [&](Tensor& stored) {
    const Tensor& t = added[i++];
    if (t.defined()) stored = stored.defined() ? at::cat({stored, t}, 1) : t;
  });
}

// What query t sees of the first `keys` keys.
Visibility of_one_query(const Visibility& all, const CallSizes& n, int64_t t, int64_t keys, at::Device device) {
  Visibility seen = all;
  seen.query_start_B =
      (all.query_start_B.defined() ? all.query_start_B
                                   : at::full({n.B}, n.S - n.T, at::TensorOptions(at::kLong).device(device))) +
      t;
  if (all.key_end_B.defined()) seen.key_end_B = all.key_end_B.clamp_max(keys);
  if (all.key_begin_B.defined()) seen.key_begin_B = all.key_begin_B.clamp_max(keys);
  if (all.documents_BS.defined()) seen.documents_BS = all.documents_BS.slice(1, 0, keys);
  if (all.bias_BHTS.defined()) seen.bias_BHTS = all.bias_BHTS.narrow(2, t, 1).slice(3, 0, keys);
  return seen;
}

// One query at a time; the key side grows with it (or, of another sequence, is there from the start).
Tensor decoded(Mechanism& mechanism, const Attention& whole, const Inputs& in) {
  Keys cache;
  if (!in.self) append(cache, mechanism.keys(in.memory_BSC, in.memory_at));
  std::vector<Tensor> rows;
  for (int64_t t = 0; t < in.sizes.T; ++t) {
    check_interrupt();
    const Positions at{in.at.at.narrow(-1, t, 1), in.self ? t + 1 : in.at.length};
    const Tensor x_B1C = in.x_BTC.narrow(1, t, 1);
    if (in.self) append(cache, mechanism.keys(x_B1C, at));
    Attention one = whole;
    one.visibility = of_one_query(whole.visibility, in.sizes, t, cache.k_BSGD.size(1), in.x_BTC.device());
    rows.push_back(mechanism.finish(composed_attention(mechanism.queries(x_B1C, at), cache, one).out_BTHE, x_B1C));
  }
  return at::cat(rows, 1);
}

}  // namespace

Evaluation run_layer(const GoldenFile& file, const Spec& spec, const Quantities& wanted) {
  Layer layer = make_layer(file, spec);
  const Inputs in = read_inputs(file, spec);
  const Attention attention = stated_attention(file, spec, layer, in);
  Evaluation done{.parameters = layer.parameters, .expressions = layer.expressions};
  const std::string path = spec["path"].word();
  if (path == "token_by_token") {
    done.quantities["out"] = {decoded(*layer.mechanism, attention, in), "BTC"};
    return done;
  }
  if (path != "whole_sequence") spec["path"].refuse("whole_sequence or token_by_token");
  const Queries queries = layer.mechanism->queries(in.x_BTC, in.at);
  const Keys keys = layer.mechanism->keys(in.memory_BSC, in.memory_at);
  add_quantities(file, spec, {queries, keys, attention}, wanted, done);
  add_rope_quantities(rotary_of(layer.setting, spec["head_dim"].integer()), in.at, done);
  const Attended attended = composed_attention(queries, keys, attention);
  done.quantities["out"] = {layer.mechanism->finish(attended.out_BTHE, in.x_BTC), "BTC"};
  done.quantities["lse"] = {attended.lse_BHT, "BHT"};
  return done;
}

}  // namespace motet
