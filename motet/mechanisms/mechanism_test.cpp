// What every mechanism owes: gradients of all parameters, cached decoding equal to the whole sequence, cross attention.
#include "motet/mechanisms/mechanism.h"

#include <gtest/gtest.h>

#include <set>

#include "motet/core/error.h"
#include "motet/mechanisms/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

// Every variant as layer 0, local under each pattern of windows, and as layer 1, global under each but "local".
std::vector<Made> variants() {
  std::vector<Made> all;
  const auto add = [&](const char* mechanism, std::vector<json> options) {
    for (json o : options) {
      o["mechanism"] = mechanism;
      for (int64_t layer : {0, 1}) all.push_back({.options = o, .layer = layer});
    }
  };
  add("softmax", {{},
                  {{"num_kv_heads", 1}},
                  {{"num_kv_heads", 2}, {"qk_norm", true}, {"bias", true}},
                  {{"window", 2}},
                  {{"output_gate", true}, {"num_kv_heads", 2}},
                  {{"position_bias", "alibi"}, {"rope_fraction", 0.0}},
                  {{"position_bias", "relative"}},
                  {{"rope_pairing", "interleaved"}, {"rope_fraction", 0.5}},
                  {{"rope_scaling", "llama3"}, {"rope_factor", 8.0}},
                  {{"head_norm", "affine"}},
                  {{"head_norm", "plain"}, {"num_kv_heads", 2}, {"output_gate", true}}});
  add("key_size", {{}, {{"key_dim", 6}, {"value_dim", 3}, {"num_kv_heads", 2}, {"bias", true}}});
  add("talking_heads",
      {{},
       {{"score_heads", 2}, {"softmax_heads", 6}, {"value_heads", 4}, {"dynamic", "both"}},
       {{"mixes", "pre"}, {"dynamic", "query"}, {"residual", true}},
       {{"mixes", "post"}, {"dynamic", "key"}, {"start", "random"}, {"qk_scale", "none"}},
       {{"static", false}, {"dynamic_logits", "query"}, {"dynamic_weights", "key"}},
       {{"score_heads", 2}, {"softmax_heads", 6}, {"position_bias", "alibi"}, {"output_gate", true}},
       {{"score_heads", 2}, {"softmax_heads", 6}, {"position_bias", "relative"}},
       {{"collinear", "exact"}},
       {{"collinear", "slack"}, {"score_heads", 2}, {"dynamic", "both"}},
       {{"collinear", "strict"}, {"mixes", "post"}, {"rope_scaling", "dynamic"}, {"rope_factor", 2.0}}});
  // The rows of the ablation (D4) and of the local share (D5).
  add("dcmha", {{},
                {{"static", true}, {"low_rank", false}, {"gates", false}},
                {{"low_rank", false}},
                {{"gates", false}},
                {{"static", true}},
                {{"sides", "query"}},
                {{"sides", "key"}},
                {{"where", "pre"}},
                {{"where", "post"}},
                {{"rank", 1}},
                {{"rank", 4}},
                {{"groups", 2}, {"static", true}},
                {{"output_gate", true}},
                {{"qk_norm", true}, {"gelu", "tanh"}, {"num_kv_heads", 2}},
                {{"window", 3}},
                {{"window", 3}, {"window_pattern", "LG"}},
                {{"window", 3}, {"window_pattern", "LGLL"}},
                {{"window", 3}, {"window_pattern", "LGL6"}, {"sides", "query"}},
                {{"window", 3}, {"sides", "query"}},
                {{"window", 3}, {"window_mask", "released"}}});
  add("differential", {{},
                       {{"num_kv_heads", 2}, {"rope_pairing", "interleaved"}},
                       {{"head_norm", "plain"}, {"lambda_start", "constant"}, {"lambda_init", 0.5}},
                       {{"head_norm", "none"}},
                       {{"output_gate", true}},
                       {{"version", "v2"}},
                       {{"position_bias", "relative"}},
                       {{"version", "v2"}, {"position_bias", "alibi"}},
                       {{"version", "v2"}, {"position_bias", "relative"}},
                       {{"version", "v2"}, {"num_kv_heads", 2}},
                       {{"compose", true}},
                       {{"compose", true}, {"compose_rank", 3}, {"num_kv_heads", 2}, {"output_gate", true}},
                       {{"version", "v2"}, {"lambda_form", "none"}},
                       {{"version", "v2"}, {"lambda_form", "raw"}, {"num_kv_heads", 2}},
                       {{"version", "v2"}, {"pairs", "across"}},
                       {{"version", "v2"}, {"pairs", "across"}, {"num_kv_heads", 2}, {"position_bias", "alibi"}},
                       {{"version", "v2"}, {"pairs", "across"}, {"lambda_form", "none"}, {"output_gate", true}}});
  for (const char* form : {"exact", "slack", "strict"})
    for (const char* scaling : {"none", "linear", "ntk", "dynamic", "llama3"})
      add("coca", {{{"form", form},
                    {"rope_scaling", scaling},
                    {"rope_factor", std::string(scaling) == "none" ? 1.0 : 2.0},
                    {"head_dim", 6}}});
  add("coca", {{{"form", "slack"}, {"rope_fraction", 0.5}, {"head_dim", 8}, {"num_kv_heads", 2}}});
  return all;
}

TEST(Mechanisms, GradientsOfAllParametersMatchDifferences) {
  for (const Made& made : variants()) {
    const auto m = make(made);
    const Tensor x = at::randn({2, 5, 16}, at::kDouble).requires_grad_(), weight = at::randn({2, 5, 16}, at::kDouble);
    const auto loss = [&] { return (m->forward(x, span_of(0, 5)) * weight).sum(); };
    loss().backward();
    at::NoGradGuard no_grad;
    auto checked = m->named_parameters();
    checked.insert("x", x);
    for (const auto& item : checked) {
      Tensor p = item.value().view(-1);
      const Tensor direction = at::randn_like(p);
      const double h = 1e-4;  // four points: the error is of order h^4, for the softmax bends strongly
      const auto at = [&](double step) {
        p.add_(direction, step);
        const double value = loss().item<double>();
        p.add_(direction, -step);
        return value;
      };
      const double want = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
      const Tensor gradient = item.value().grad();
      const double got = gradient.defined() ? gradient.view(-1).dot(direction).item<double>() : 0;
      EXPECT_NEAR(got, want, 1e-6 * std::max(1.0, std::abs(want))) << made << " " << item.key();
    }
  }
}

TEST(Mechanisms, PatternsOfWindowsAreTestedLocalAndGlobal) {
  std::map<std::string, std::set<bool>> local;
  for (const Made& made : variants())
    if (made.options.contains("window_pattern"))
      local[made.options["window_pattern"]].insert(
          make(made)->attention(span_of(0, 1), span_of(0, 1), Pass::whole).visibility.window > 0);
  EXPECT_EQ(local.size(), 3u);
  for (const auto& [pattern, both] : local) EXPECT_EQ(both.size(), 2u) << pattern;
}

// Every tensor of Keys appended along dimension 1.
Keys appended(Keys a, const Keys& b) {
  std::vector<Tensor> added;
  for_each_tensor(b, [&](const Tensor& t) { added.push_back(t); });
  size_t i = 0;
  for_each_tensor(a, [&](Tensor& t) {
    const Tensor& more = added[i++];
    if (t.defined()) t = at::cat({t, more}, 1);
  });
  return a;
}

TEST(Mechanisms, CachedDecodingEqualsFullForward) {
  at::NoGradGuard no_grad;
  for (const Made& made : variants()) {
    const auto m = make(made);
    const int64_t T = 9;  // past the trained length of 8
    const Tensor x = at::randn({2, T, 16}, at::kDouble);
    const Tensor whole = m->forward(x, span_of(0, T));
    Keys cache;
    for (int64_t t = 0; t < T; ++t) {
      const Positions at = Positions::range(t, t + 1, T), seen = Positions::range(0, t + 1, T);
      const Tensor step = x.slice(1, t, t + 1);
      const Keys keys = m->keys(step, at);
      cache = t == 0 ? keys : appended(cache, keys);
      const Tensor out = m->finish(
          composed_attention(m->queries(step, at), cache, m->attention(at, seen, Pass::whole)).out_BTHE, step);
      EXPECT_LE((out - whole.slice(1, t, t + 1)).abs().max().item<double>(), 1e-10) << made << " step " << t;
    }
  }
}

TEST(Mechanisms, CompactKeysAreRestoredToTheKeys) {
  at::NoGradGuard no_grad;
  std::set<std::string> smaller;
  for (const Made& made : variants()) {
    const auto m = make(made);
    const Tensor x = at::randn({2, 5, 16}, at::kDouble);
    const Keys keys = m->keys(x, span_of(0, 5)), compact = m->compact_keys(x, span_of(0, 5)),
               again = m->restore(compact, span_of(0, 5));
    std::vector<Tensor> want, got;
    for_each_tensor(keys, [&](const Tensor& t) { want.push_back(t); });
    for_each_tensor(again, [&](const Tensor& t) { got.push_back(t); });
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(want[i].defined(), got[i].defined()) << made;
      EXPECT_TRUE(!want[i].defined() || want[i].equal(got[i])) << made;
    }
    if (compact.k_BSGD.numel() * 2 == keys.k_BSGD.numel()) smaller.insert(made.options["mechanism"]);
  }
  EXPECT_EQ(smaller, (std::set<std::string>{"coca", "talking_heads"}));
}

// y = o_proj(sigmoid(gate_proj x) * out), a gate for each head: at weights of zero half of the ungated output; a gate
// of one head that is shut takes that head away.
TEST(Mechanisms, AnOutputGateScalesEachHeadByTheInput) {
  at::NoGradGuard no_grad;
  for (const std::string& mechanism : mechanism_names()) {
    const auto gated = make({.options = {{"mechanism", mechanism}, {"output_gate", true}}}),
               plain = make({.options = {{"mechanism", mechanism}}});
    auto parameters = gated->named_parameters();
    for (const auto& item : plain->named_parameters()) parameters[item.key()].copy_(item.value());
    Tensor gate = parameters["gate_proj.weight"];
    const Tensor x = at::rand({2, 5, 16}, at::kDouble) + 0.5;  // positive: a sum over it has a sign
    const auto outputs = [&](Mechanism& m) { return m.forward(x, span_of(0, 5)); };
    gate.zero_();
    EXPECT_LE((2 * outputs(*gated) - outputs(*plain)).abs().max().item<double>(), 1e-12) << mechanism;
    const int64_t heads = gate.size(0), last = heads - 1;
    gate.fill_(1000).select(0, last).fill_(-1000);
    Tensor columns = plain->named_parameters()["o_proj.weight"].unflatten(1, {heads, -1});
    columns.select(1, last).zero_();
    EXPECT_LE((outputs(*gated) - outputs(*plain)).abs().max().item<double>(), 1e-12) << mechanism;
    EXPECT_FALSE(gated->decays("gate_proj.weight")) << mechanism;
  }
}

TEST(Mechanisms, TheReleasedWindowIsOneWiderInAWholePassAlone) {
  const auto widths = [](json options) {
    const auto m = make({.options = options, .layer = 0});
    for (const Pass pass : {Pass::whole, Pass::cached})
      EXPECT_EQ(m->attention(span_of(0, 1), span_of(0, 1), pass).visibility.window, m->window(pass));
    return std::pair(m->window(Pass::whole), m->window(Pass::cached));
  };
  for (const char* mechanism : {"softmax", "dcmha", "talking_heads", "differential"}) {
    const json local{{"mechanism", mechanism}, {"window", 3}};
    json released = local;
    released["window_mask"] = "released";
    EXPECT_EQ(widths(local), std::pair(int64_t{3}, int64_t{3})) << mechanism;
    EXPECT_EQ(widths(released), std::pair(int64_t{4}, int64_t{3})) << mechanism;
    EXPECT_EQ(widths({{"mechanism", mechanism}}), std::pair(int64_t{0}, int64_t{0})) << mechanism;
  }
}

TEST(Mechanisms, AllAttendToAnotherMemoryInBothDirections) {
  at::NoGradGuard no_grad;
  for (Made made : variants()) {
    if (made.options.contains("window")) continue;
    made.causal = false;
    const auto m = make(made);
    const Tensor x = at::randn({2, 3, 16}, at::kDouble), memory = at::randn({2, 7, 16}, at::kDouble);
    const Tensor out = m->forward(x, span_of(0, 3), memory, span_of(0, 7));
    EXPECT_EQ(out.sizes(), (std::vector<int64_t>{2, 3, 16})) << made;
    // Every key counts: a change of the last one reaches the first query.
    Tensor other = memory.clone();
    other.select(1, 6).add_(1);
    EXPECT_GT((m->forward(x, span_of(0, 3), other, span_of(0, 7)) - out).select(1, 0).abs().max().item<double>(), 1e-9)
        << made;
  }
}

TEST(Mechanisms, MemoryMayHaveAnotherWidth) {
  at::NoGradGuard no_grad;
  const auto m =
      make({.options = {{"mechanism", "talking_heads"}, {"dynamic", "both"}}, .causal = false, .memory_size = 10});
  EXPECT_EQ(
      m->forward(at::randn({1, 3, 16}, at::kDouble), span_of(0, 3), at::randn({1, 4, 10}, at::kDouble), span_of(0, 4))
          .size(2),
      16);
}

TEST(Mechanisms, CausalOnesDoNotLookAhead) {
  at::NoGradGuard no_grad;
  for (const Made& made : variants()) {
    const auto m = make(made);
    const Tensor x = at::randn({1, 6, 16}, at::kDouble);
    Tensor changed = x.clone();
    changed.select(1, 5).add_(1);
    const Tensor difference = m->forward(x, span_of(0, 6)) - m->forward(changed, span_of(0, 6));
    EXPECT_EQ(difference.slice(1, 0, 5).abs().max().item<double>(), 0) << made;
  }
}

std::string refusal(const Made& made) {
  try {
    make(made);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(Mechanisms, OptionsThatDoNotFitAreRefusedByName) {
  const auto says = [](json options, const std::string& message, bool causal = true) {
    EXPECT_NE(refusal({.options = options, .causal = causal}).find(message), std::string::npos)
        << refusal({.options = options, .causal = causal});
  };
  says({{"mechanism", "dcmah"}}, "unknown mechanism 'dcmah': nearest is 'dcmha'");
  says({{"num_heads", 3}}, "model.attention.num_heads: 3 heads do not divide hidden_size 16");
  says({{"num_kv_heads", 3}}, "model.attention.num_kv_heads: 3 does not divide num_heads 4");
  says({{"mechanism", "dcmha"}, {"rnak", 3}}, "rank");
  says({{"mechanism", "dcmha"}, {"groups", 3}}, "3 groups do not divide num_heads 4");
  says({{"mechanism", "differential"}, {"num_heads", 3}, {"head_dim", 4}}, "want an even number");
  says({{"mechanism", "differential"}, {"num_kv_heads", 1}}, "pairs key heads, want an even number, have 1");
  says({{"mechanism", "differential"}, {"lambda_init", 0.3}},
       "model.attention.lambda_init: 0.3 has no effect, want lambda_start = constant");
  says({{"rope_scaling", "ntk"}, {"head_dim", 2}}, "model.attention.rope_scaling: ntk and dynamic want more than 2");
  says({{"rope_scaling", "llama3"}, {"rope_high_freq_factor", 1}},
       "model.attention.rope_high_freq_factor: 1, want more than rope_low_freq_factor 1");
  says({{"mechanism", "differential"}, {"version", "v2"}, {"pairs", "across"}, {"num_kv_heads", 1}},
       "across wants an even number of stored heads, have 1");
  says({{"mechanism", "talking_heads"}, {"collinear", "exact"}, {"rope_fraction", 0.5}},
       "exact form is defined for a whole rotated head");
  says({{"mechanism", "talking_heads"}, {"collinear", "slack"}, {"rope_pairing", "interleaved"}}, "want half");
  says({{"mechanism", "talking_heads"}, {"collinear", "slack"}, {"key_dim", 3}, {"rope_fraction", 0.0}},
       "want an even width, have 3");
  says({{"mechanism", "coca"}, {"rope_fraction", 0.5}}, "exact form is defined for a whole rotated head");
  says({{"mechanism", "coca"}, {"rope_pairing", "interleaved"}}, "want half");
  says({{"mechanism", "talking_heads"}, {"mixes", "pre"}, {"value_heads", 2}}, "must equal softmax_heads");
  says({{"mechanism", "talking_heads"}, {"softmax_heads", 2}, {"residual", true}}, "needs score_heads = softmax_heads");
  says({{"mechanism", "talking_heads"}, {"mixes", "pre"}, {"dynamic_weights", "key"}},
       "model.attention.dynamic_weights: 'key' while mixes is 'pre', want none or mixes = both");
  says({{"mechanism", "talking_heads"}, {"static", false}, {"softmax_heads", 2}}, "must equal score_heads");
  says({{"window", 4}}, "windows need causal attention", false);
  says({{"head_dim", 5}}, "no whole rotary pairs");
}

}  // namespace
}  // namespace motet
