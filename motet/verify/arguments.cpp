#include "motet/verify/arguments.h"

#include "motet/core/error.h"
#include "motet/verify/layouts.h"

namespace motet {
namespace {

// A number or nested lists of integers.
Tensor integers(const Spec& spec) {
  if (!spec.value().is_array()) return at::scalar_tensor(spec.integer(), at::kLong);
  std::vector<Tensor> rows;
  for (const Spec& item : spec.items()) rows.push_back(integers(item));
  return rows.empty() ? at::empty({0}, at::kLong) : at::stack(rows);
}

// A table over B, or over B and S: null, a tensor's name, or the numbers.
Tensor table(const GoldenFile& file, const Spec& spec, const std::string& layout, int64_t B) {
  if (spec.null()) return {};
  Tensor t = spec.value().is_string() ? file.input(spec, layout).to(at::kLong) : integers(spec).to(file.device());
  while (t.dim() < static_cast<int64_t>(layout.size())) t = t.unsqueeze(0);
  if (t.size(0) != 1) return t;
  std::vector<int64_t> shape(t.dim(), -1);
  shape[0] = B;
  return t.expand(shape).contiguous();
}

Tensor bias(const GoldenFile& file, const Spec& spec) {
  if (spec.null()) return {};
  if (!spec.value().is_object()) return file.input(spec, "BHTS");
  const std::string name = spec["tensor"].word();
  return arranged(file.input(name), spec["layout"].word(), "BHTS", name);
}

// The key side of one mix as matrices [B,S,N,M]: what it makes of each input head alone, as if that were a query.
Tensor key_matrix(const KeyMix& mix) {
  const Tensor& any = mix.down_BSRH.defined() ? mix.down_BSRH : mix.gate_BSH.defined() ? mix.gate_BSH : mix.full_BSHH;
  if (!any.defined()) return {};
  const int64_t N = any.size(mix.down_BSRH.defined() ? 3 : 2);
  const Tensor one_head_BHTS = at::eye(N, any.options()).view({1, N, N, 1}).expand({any.size(0), N, N, any.size(1)});
  return apply_head_mix(one_head_BHTS, {}, {}, mix).permute({0, 3, 2, 1});
}

// Both mixes, [B,S,2,N,M]; undefined when nothing depends on the key.
Tensor key_matrices(const Keys& keys) {
  Tensor pre = key_matrix(keys.pre), post = key_matrix(keys.post);
  if (!pre.defined() && !post.defined()) return {};
  if (!pre.defined()) pre = at::zeros_like(post);
  if (!post.defined()) post = at::zeros_like(pre);
  return at::stack({pre, post}, 2);
}

}  // namespace

Heads read_heads(const Spec& spec) {
  const Spec heads = spec["heads"];
  for (const char* stage : {"scores", "softmax", "outputs"})
    if (heads[stage].integer() < 1) heads[stage].refuse("at least 1");
  return {heads["scores"].integer(), heads["softmax"].integer(), heads["outputs"].integer(), spec["key_of"].integers(),
          spec["value_of"].integers()};
}

std::optional<double> read_scale(const Spec& spec) {
  const Spec scale = spec["scale"];
  if (scale.value().is_number()) return scale.number();
  if (scale.value() != "1/sqrt(d)") scale.refuse("a number or 1/sqrt(d)");
  return std::nullopt;
}

void read_window(const Spec& spec, Visibility& seen) {
  const std::string mask = spec["window_mask"].word();
  if (mask != "exact" && mask != "released") spec["window_mask"].refuse("exact or released");
  seen.causal = spec["causal"].flag();
  seen.window = spec["window"].integer();
  if (seen.window > 0 && mask == "released") ++seen.window;
}

void read_tables(const GoldenFile& file, const Spec& spec, const CallSizes& n, Visibility& seen) {
  const Tensor bias_BHTS = bias(file, spec["bias"]);
  if (!spec["mask"].null()) {
    const Tensor visible = file.input(spec["mask"], "BHTS").to(at::kBool);
    const Tensor hiding = at::zeros(visible.sizes(), visible.options().dtype(file.type()))
                              .masked_fill(~visible, -std::numeric_limits<double>::infinity());
    seen = {.bias_BHTS = bias_BHTS.defined() ? bias_BHTS + hiding : hiding};
    return;
  }
  seen.bias_BHTS = bias_BHTS;
  seen.query_start_B = table(file, spec["query_start"], "B", n.B);
  seen.key_begin_B = table(file, spec["key_begin"], "B", n.B);
  seen.key_end_B = table(file, spec["key_end"], "B", n.B);
  seen.documents_BS = table(file, spec["documents"], "BS", n.B);
}

HeadMix read_mix(const GoldenFile& file, const Spec& parts, bool identity) {
  HeadMix mix{identity, {}};
  std::vector<std::string> known;
  for (int i = 0; i < kNumMixParts; ++i) {
    known.emplace_back(kMixParts[i].name);
    if (parts.has(known.back())) mix.part[i] = file.input(parts[known.back()], std::string(kMixParts[i].shape));
  }
  for (const std::string& name : parts.keys())
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(unknown_name(parts.place() + " part", name, known));
  return mix;
}

QueryMix query_side(const HeadMix& m) {
  return {m.part[kQueryDown], m.part[kQueryUp], m.part[kQueryGate], m.part[kQueryFull]};
}
KeyMix key_side(const HeadMix& m) { return {m.part[kKeyDown], m.part[kKeyUp], m.part[kKeyGate], m.part[kKeyFull]}; }

void add_quantities(const GoldenFile& file, const Spec& spec, const VerifiedCall& call, const Quantities& wanted,
                    Evaluation& out) {
  at::AutoGradMode off(false);
  const auto& [queries, keys, attention] = call;
  auto& all = out.quantities;
  all["q"] = {queries.q_BTHD, "BTHD"};
  all["k"] = {keys.k_BSGD, "BSGD"};
  all["v"] = {keys.v_BSGE, "BSGE"};
  if (queries.lambda.defined())
    all["lambda"] = {queries.lambda, queries.lambda.dim() == 3 ? "BTH" : queries.lambda.dim() == 1 ? "H" : ""};

  const HeadMix mixes[] = {head_mix(attention.pre, queries.pre, keys.pre),
                           head_mix(attention.post, queries.post, keys.post)};
  for (int post : {0, 1})
    for (int i = 0; i < kNumMixParts; ++i)
      all[(post ? "post." : "pre.") + std::string(kMixParts[i].name)] = {mixes[post].part[i],
                                                                         std::string(kMixParts[i].shape)};
  if (wanted.contains("key_matrices")) all["key_matrices"] = {key_matrices(keys), "BSPNM"};

  const auto any = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return wanted.contains(name); });
  };
  if (any({"probs", "mixed", "lse", "visible"})) {
    const AttentionMaps maps = attention_maps(queries, keys, attention);
    all["probs"] = {maps.weights_BHTS, "BHTS"};
    all["mixed"] = {maps.mixed_BHTS, "BHTS"};
    all["lse"] = {maps.lse_BHT, "BHT"};
    all["visible"] = {~maps.hidden_BHTS, "BHTS"};
  }
  if (any({"scores",
           "logits"})) {  // recorded before anything is hidden: a mask is a bias to us, and padded keys are cleared
    Attention bare = attention;
    bare.visibility = {.bias_BHTS = bias(file, spec["bias"])};
    const AttentionMaps maps = attention_maps(queries, keys, bare);
    all["scores"] = {maps.scores_BHTS, "BHTS"};
    all["logits"] = {maps.logits_BHTS, "BHTS"};
  }
}

}  // namespace motet
