#include "motet/probe/probe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motet/mechanisms/contender.h"
#include "motet/models/testing.h"
#include "motet/ops/device.h"
#include "motet/probe/pictures.h"

namespace motet {
namespace {

using namespace testing;

// Contenders, and what else makes weights of its own: windows, biases, mixes of other head counts.
std::vector<std::string> probed_variants() {
  std::vector<std::string> all = contender_names();
  for (const char* more :
       {"mha:window=5", "mha:position_bias=relative", "mha:position_bias=alibi:output_gate=true", "mha:num_kv_heads=2",
        "talking_heads:score_heads=2:softmax_heads=6:value_heads=3:dynamic=both", "talking_heads:mixes=pre",
        "dcmha:static=true:groups=2", "dcmha:where=pre", "dcmha:where=post", "dcmha:window=4",
        "differential_v2:num_kv_heads=2", "coca:form=slack"})
    all.push_back(more);
  return all;
}

// In float64, all of it drawn large enough that weights differ.
Model made(const std::string& contender, int64_t context = 16, bool causal = true) {
  Model model(tiny({{"num_layers", 2}, {"causal", causal}}, parse_contender(contender, "test"), 11, context));
  model->to(at::kDouble);
  at::NoGradGuard no_grad;
  at::manual_seed(3);
  for (Tensor p : model->parameters()) p.normal_(0, 0.5);
  return model;
}

Tensor ids_of(int64_t rows, int64_t columns) {
  return at::arange(rows * columns).mul(7).remainder(11).view({rows, columns});
}

struct Sum {
  double sum = 0;
  int64_t count = 0;
  double mean() const { return sum / static_cast<double>(count); }
};

struct Reference {
  std::vector<double> entropy, first_token;
};

// Of weights [B,H,T,S] and what is hidden, number by number; sizes instead of weights when they are mixed.
Reference naive(const Tensor& weights_BHTS, const Tensor& hidden_BHTS, bool mixed) {
  const auto w = weights_BHTS.accessor<double, 4>();
  const Tensor all_hidden = hidden_BHTS.contiguous();
  const auto hidden = all_hidden.accessor<bool, 4>();
  Reference result;
  for (int64_t h = 0; h < w.size(1); ++h) {
    Sum entropy, first;
    for (int64_t b = 0; b < w.size(0); ++b)
      for (int64_t t = 0; t < w.size(2); ++t) {
        const auto seen = [&](int64_t s) {
          for (int64_t a = 0; mixed && a < hidden.size(1); ++a)
            if (!hidden[b][a][t][s]) return true;
          return !mixed && !hidden[b][h][t][s];
        };
        double total = 0, own = 0;
        bool any = false;
        for (int64_t s = 0; s < w.size(3); ++s) total += std::abs(w[b][h][t][s]), any = any || seen(s);
        if (!any) continue;
        for (int64_t s = 0; s < w.size(3); ++s) {
          const double p = std::abs(w[b][h][t][s]) / total;
          if (p > 0) own -= p * std::log(p);
        }
        entropy.sum += own, ++entropy.count;
        if (t > 0 && seen(0)) first.sum += std::abs(w[b][h][t][0]) / total, ++first.count;
      }
    result.entropy.push_back(entropy.mean()), result.first_token.push_back(first.mean());
  }
  return result;
}

const std::vector<double>& numbers(const LayerProbe& probe, const std::string& name) {
  static const std::vector<double> none;
  for (const HeadNumbers& n : probe.numbers)
    if (n.name == name) return n.by_head;
  return none;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-10) << what << ", head " << i;
}

// The weights of the whole plane, of the queries and keys that the model's own forward pass makes.
void expect_as_the_definition(ModelImpl& model, const Tensor& ids, const Tensor& documents, const std::string& what) {
  const Positions at = ModelImpl::positions(ids, documents);
  std::vector<Tensor> inputs;
  model.walk(model.embedded(ids, at), [&](int64_t, BlockImpl& block, const Tensor& normed) {
    inputs.push_back(normed);
    return block.self_attn->forward(normed, at);
  });
  for (const int64_t at_once : {0, 1, 3}) {
    const std::vector<LayerProbe> probes = probe(model, ids, documents, at_once);
    ASSERT_EQ(probes.size(), model.blocks().size());
    for (size_t layer = 0; layer < probes.size(); ++layer) {
      Mechanism& m = *model.blocks()[layer]->self_attn;
      const Queries q = m.queries(inputs[layer], at);
      const AttentionMaps maps = attention_maps(q, m.keys(inputs[layer], at), m.attention(at, at, Pass::whole));
      const std::string where = text(what, ", layer ", layer, ", ", at_once, " at once");
      const Reference weights = naive(maps.weights_BHTS, maps.hidden_BHTS, false);
      expect_near(numbers(probes[layer], "entropy"), weights.entropy, where);
      expect_near(numbers(probes[layer], "first_token"), weights.first_token, where);
      const bool mixes = !maps.mixed_BHTS.is_same(maps.weights_BHTS);
      const Reference mixed = mixes ? naive(maps.mixed_BHTS, maps.hidden_BHTS, true) : Reference();
      expect_near(numbers(probes[layer], "mixed_entropy"), mixed.entropy, where);
      expect_near(numbers(probes[layer], "mixed_first_token"), mixed.first_token, where);
      const double top = maps.logits_BHTS.masked_select(~maps.hidden_BHTS).max().item<double>();
      EXPECT_NEAR(probes[layer].largest_logit, top, 1e-10) << where;
    }
  }
}

// Of the last query, number by number.
std::vector<double> naive_shares(const Tensor& mixed_BHTS, const Tensor& kinds_BT, int64_t count) {
  const auto w = mixed_BHTS.accessor<double, 4>();
  const auto kinds = kinds_BT.accessor<int64_t, 2>();
  std::vector<double> shares(static_cast<size_t>(count));
  const int64_t last = w.size(2) - 1;
  for (int64_t b = 0; b < w.size(0); ++b)
    for (int64_t h = 0; h < w.size(1); ++h) {
      double total = 0;
      for (int64_t s = 0; s < w.size(3); ++s) total += std::abs(w[b][h][last][s]);
      for (int64_t s = 0; s < w.size(3); ++s)
        shares[static_cast<size_t>(kinds[b][s])] +=
            std::abs(w[b][h][last][s]) / total / static_cast<double>(w.size(0) * w.size(1));
    }
  return shares;
}

TEST(Probe, SharesOfTheLastQueryAreThoseOfItsWeights) {
  at::NoGradGuard no_grad;
  const Tensor ids = ids_of(2, 13), kinds = ids.remainder(4);
  for (const std::string& variant : probed_variants()) {
    Model model = made(variant);
    const auto shares = attention_shares(*model, ids, kinds, 4);
    const Positions at = ModelImpl::positions(ids);
    const std::vector<Tensor> inputs = model->attention_inputs(ids);
    ASSERT_EQ(shares.size(), 2u);
    for (size_t layer = 0; layer < shares.size(); ++layer) {
      Mechanism& m = *model->blocks()[layer]->self_attn;
      const AttentionMaps maps =
          attention_maps(m.queries(inputs[layer], at), m.keys(inputs[layer], at), m.attention(at, at, Pass::whole));
      expect_near(shares[layer], naive_shares(maps.mixed_BHTS, kinds, 4), variant);
    }
  }
}

TEST(Probe, NumbersAreThoseOfTheWeightsThatTheMechanismUses) {
  at::NoGradGuard no_grad;
  const Tensor ids = ids_of(2, 13);
  for (const std::string& variant : probed_variants()) expect_as_the_definition(*made(variant), ids, {}, variant);
}

TEST(Probe, DocumentsAndModelsThatLookAheadAreProbedAsTheyAttend) {
  at::NoGradGuard no_grad;
  const Tensor ids = ids_of(2, 13),
               documents = at::cat({at::zeros({2, 4}), at::ones({2, 6}), at::full({2, 3}, 2)}, 1).to(at::kLong);
  for (const char* variant : {"mha", "dcmha", "differential_v1"}) {
    expect_as_the_definition(*made(variant), ids, documents, text(variant, " apart"));
    expect_as_the_definition(*made(variant, 16, false), ids, {}, text(variant, " not causal"));
  }
}

// A norm makes queries float32, and autocast leaves the parts of the mixes in 16 bits.
TEST(Probe, NormedQueriesMeetMixesInSixteenBits) {
  at::NoGradGuard no_grad;
  const Tensor ids = ids_of(2, 13);
  for (const char* variant :
       {"dcmha:qk_norm=true", "dcmha:low_rank=false:qk_norm=true", "talking_heads:dynamic=query:qk_norm=true",
        "differential_v1:compose=true:qk_norm=true", "differential_v2:qk_norm=true:output_gate=true"}) {
    Model model = made(variant);
    model->to(at::kFloat);
    const std::vector<LayerProbe> wanted = probe(*model, ids);
    model->set_autocast(at::kBFloat16);
    const std::vector<LayerProbe> got = probe(*model, ids);
    for (size_t layer = 0; layer < got.size(); ++layer)
      for (size_t head = 0; head < numbers(got[layer], "entropy").size(); ++head)
        EXPECT_NEAR(numbers(got[layer], "entropy")[head], numbers(wanted[layer], "entropy")[head], 0.2) << variant;
  }
}

TEST(Pictures, AreThoseOfTheModelWithoutAutocast) {
  at::NoGradGuard no_grad;
  const std::vector<int64_t> tokens{3, 1, 4, 1, 5, 9, 2, 6};
  Model model(tiny({{"norm_place", "post"}, {"embedding_size", 4}}, parse_contender("dcmha", "test"), 11, 16));
  model->initialize(1);
  ReportData plain, under;
  add_pictures(plain, "dcmha", *model, tokens);
  model->set_autocast(at::kBFloat16);
  add_pictures(under, "dcmha", *model, tokens);
  EXPECT_EQ(model->config().autocast, at::kBFloat16);
  ASSERT_EQ(plain.pictures.size(), under.pictures.size());
  for (size_t i = 0; i < plain.pictures.size(); ++i) EXPECT_EQ(plain.pictures[i].values, under.pictures[i].values);
}

// Queries of zeros weigh all keys alike: -sum 1/n log 1/n = log n over the n keys of query n - 1.
TEST(Probe, EqualWeightsHaveTheLogarithmOfTheirNumberAsEntropy) {
  at::NoGradGuard no_grad;
  Model model = made("mha");
  model->named_parameters()["model.layers.0.self_attn.q_proj.weight"].zero_();
  const LayerProbe first = probe(*model, ids_of(3, 16))[0];
  double entropy = 0, mass = 0;
  for (int n = 1; n <= 16; ++n) entropy += std::log(n) / 16, mass += n > 1 ? 1.0 / n / 15 : 0;
  for (const double got : numbers(first, "entropy")) EXPECT_NEAR(got, entropy, 1e-12);
  for (const double got : numbers(first, "first_token")) EXPECT_NEAR(got, mass, 1e-12);
  EXPECT_EQ(first.largest_logit, 0);
  EXPECT_NEAR((HeadNumbers{"x", {1, 2, 6}}.mean()), 3, 1e-12);
}

TEST(Probe, MechanismsTellTheirLambdaAndGates) {
  at::NoGradGuard no_grad;
  const auto told = [](const std::string& contender, const std::string& zero, const std::string& name) {
    Model model = made(contender);
    for (const auto& item : model->named_parameters())
      if (item.key().find(zero) != std::string::npos) Tensor(item.value()).zero_();
    return numbers(probe(*model, ids_of(2, 8))[1], name);
  };
  expect_near(told("differential_v1", "lambda_", "lambda"), {0.8 - 0.6 * std::exp(-0.3)}, "V1");
  expect_near(told("differential_v2", "lambda_proj", "lambda"), {0.5, 0.5, 0.5, 0.5}, "V2");
  expect_near(told("mha:output_gate=true", "gate_proj", "output_gate"), {0.5, 0.5, 0.5, 0.5}, "output gate");
  for (const char* gate : {"pre_query_gate", "pre_key_gate", "post_query_gate", "post_key_gate"}) {
    expect_near(told("dcmha", "compose_gate", gate), {0, 0, 0, 0}, gate);
    for (const double size : told("dcmha", "nothing", gate)) EXPECT_GT(size, 0.01) << gate;
  }
  EXPECT_TRUE(told("dcmha:gates=false", "nothing", "pre_query_gate").empty());
}

// The weights of one layer would take 4 bytes x 2 heads x 4096 x 4096: 134 MB.
TEST(Probe, MemoryIsThatOfABlockOfQueries) {
  at::NoGradGuard no_grad;
  constexpr int64_t kContext = 4096;
  Model model(tiny({{"num_layers", 1}}, {{"num_heads", 2}}, 11, kContext));
  model->initialize(1);
  probe(*model, ids_of(1, 64));  // libraries and pools
  ASSERT_TRUE(reset_peak_memory(at::kCPU));
  const int64_t before = used_memory(at::kCPU);
  probe(*model, ids_of(1, kContext));
  EXPECT_LT(peak_memory(at::kCPU) - before, 120 << 20);
}

}  // namespace
}  // namespace motet
