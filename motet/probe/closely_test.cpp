#include "motet/probe/closely.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "motet/mechanisms/contender.h"
#include "motet/models/testing.h"
#include "motet/probe/parts.h"

namespace motet {
namespace {

Model made(const std::string& contender, int64_t context = 32, bool causal = true) {
  Model model(testing::tiny({{"num_layers", 2}, {"causal", causal}}, parse_contender(contender, "test"), 11, context));
  model->to(at::kDouble);
  at::NoGradGuard no_grad;
  at::manual_seed(3);
  for (Tensor p : model->parameters()) p.normal_(0, 0.5);
  return model;
}

Tensor ids_of(int64_t rows, int64_t columns) {
  return at::arange(rows * columns).mul(7).remainder(11).view({rows, columns});
}

std::vector<double> of(const std::vector<HeadNumbers>& numbers, const std::string& name) {
  for (const HeadNumbers& n : numbers)
    if (n.name == name) return n.by_head;
  return {};
}
Tensor of(const std::vector<Diagnostic>& numbers, const std::string& name) {
  for (const Diagnostic& n : numbers)
    if (n.name == name) return n.values_H;
  return {};
}

// The operator's arguments of a layer over normed input that is drawn.
struct Drawn {
  explicit Drawn(const std::string& contender, int64_t rows = 2, int64_t tokens = 21, bool causal = true)
      : model(made(contender, 32, causal)), at(ModelImpl::positions(ids_of(rows, tokens))) {
    at::NoGradGuard no_grad;
    normed = at::randn({rows, tokens, 16}, at::kDouble);
    mechanism = model->blocks()[1]->self_attn.get();
    call = {mechanism->queries(normed, at), mechanism->keys(normed, at), mechanism->attention(at, at, Pass::whole)};
  }
  Model model;
  Positions at;
  Tensor normed;
  Mechanism* mechanism;
  Call call;
};

// Each W[t,s] is read off the mix by the scores of one head at a time.
TEST(Closely, SquaresOfACompositionSumToItsDistanceFromPassingHeadsThrough) {
  at::NoGradGuard no_grad;
  for (const char* contender : {"dcmha", "dcmha:static=true", "talking_heads", "talking_heads:dynamic=both",
                                "dcmha_query_wise", "dcmha:low_rank=false"}) {
    const Drawn drawn(contender);
    const std::vector<Diagnostic> numbers = composition(drawn.call);
    for (const bool post : {false, true}) {
      const int64_t heads = 4, T = 21;
      Tensor distance;
      for (int64_t n = 0; n < heads; ++n) {
        const Tensor one = at::zeros({2, heads, T, T}, at::kDouble);
        one.select(1, n).fill_(1);
        const Call& c = drawn.call;
        const Tensor w_BMTS = post ? apply_head_mix(one, c.attention.post, c.q.post, c.k.post)
                                   : apply_head_mix(one, c.attention.pre, c.q.pre, c.k.pre);
        const Tensor own = (w_BMTS - one).square().mean({0, 2, 3});
        distance = distance.defined() ? distance + own : own;
      }
      const std::string name = post ? "post" : "pre";
      Tensor sum = of(numbers, name + "_fixed");
      for (const char* side : {"_by_query", "_by_key"})
        if (const Tensor part = of(numbers, name + side); part.defined()) sum = sum + part;
      EXPECT_TRUE(of(numbers, name + "_dynamic").allclose(1 - of(numbers, name + "_fixed") / sum));
      EXPECT_TRUE(sum.allclose(distance, 1e-9, 1e-9)) << contender << " " << name << "\n" << sum << distance;
    }
    const bool by_key =
        std::string(contender).find("query_wise") == std::string::npos && std::string(contender) != "talking_heads";
    EXPECT_EQ(of(numbers, "pre_by_key").defined(), by_key) << contender;
  }
  EXPECT_TRUE(composition(Drawn("mha").call).empty());
  const std::vector<Diagnostic> fixed = composition(Drawn("talking_heads").call);
  EXPECT_FALSE(of(fixed, "pre_by_query").defined());
}

// Angles from the projections themselves, before they turned; pair by pair.
TEST(Closely, RotaryPairsRiseWhereTheAngleIsAbovePi) {
  at::NoGradGuard no_grad;
  for (const auto& [contender, causal] : {std::pair("mha", true),
                                          {"mha:rope_pairing=interleaved", true},
                                          {"mha:num_kv_heads=2", true},
                                          {"mha:rope_fraction=0.5", true},
                                          {"mha:window=5", true},
                                          {"mha:rope_scaling=linear:rope_factor=4", true},
                                          {"mha", false}}) {
    const Drawn drawn(contender, 2, 21, causal);
    const std::vector<Diagnostic> found = rotary_rises(drawn.call, *drawn.mechanism->rotary(), drawn.at);
    const auto parameters = drawn.mechanism->named_parameters();
    const RotaryOptions& o = drawn.mechanism->rotary()->options();
    const auto heads = [&](const char* name) {
      return drawn.normed.matmul(parameters[name].t()).unflatten(-1, {-1, 4});
    };
    const Tensor q = heads("q_proj.weight"), k = heads("k_proj.weight");
    const int64_t window = std::string(contender).find("window") != std::string::npos ? 5 : 100;
    const bool interleaved = o.pairing == RotaryOptions::Pairing::interleaved;
    const int64_t pairs = o.dims / 2;
    for (int64_t h = 0; h < 4; ++h) {
      double rises = 0, near = 0, size = 0, weighted = 0, rise = 0, tokens = 0, count = 0, near_count = 0;
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t t = 0; t < 21; ++t)
          for (int64_t s = std::max<int64_t>(0, t - window + 1); s <= (causal ? t : 20); ++s)
            for (int64_t j = 0; j < pairs; ++j) {
              const int64_t x = interleaved ? 2 * j : j, y = interleaved ? 2 * j + 1 : j + pairs;
              const auto at = [&](const Tensor& v, int64_t place, int64_t head, int64_t i) {
                return v[b][place][head][i].item<double>();
              };
              const int64_t g = h * k.size(2) / 4;
              const double qx = at(q, t, h, x), qy = at(q, t, h, y), kx = at(k, s, g, x), ky = at(k, s, g, y);
              double angle = (s > t ? -1 : 1) * (std::atan2(qy, qx) - std::atan2(ky, kx));
              angle = std::fmod(angle + 4 * std::numbers::pi, 2 * std::numbers::pi);
              const double length = std::hypot(qx, qy) * std::hypot(kx, ky);
              const bool close = std::abs(t - s) < 16;
              ++count, near_count += close, size += length;
              if (angle <= std::numbers::pi) continue;
              ++rises, near += close, weighted += length, rise += length * (1 - std::cos(angle));
              const double theta = std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(pairs)) /
                                   (o.scaling == RotaryOptions::Scaling::linear ? o.factor : 1);
              tokens += std::min((2 * std::numbers::pi - angle) / theta, 21.0);
            }
      const auto got = [&](const char* name) { return of(found, name)[h].item<double>(); };
      EXPECT_NEAR(got("rotary_rises"), rises / count, 1e-3) << contender;
      EXPECT_NEAR(got("rotary_rises_near"), near / near_count, 1e-3) << contender;
      EXPECT_NEAR(got("rotary_rises_weighted"), weighted / size, 1e-3) << contender;
      EXPECT_NEAR(got("rotary_rise"), rise / count * static_cast<double>(pairs) / 2, 1e-3) << contender;
      EXPECT_NEAR(got("rotary_rise_tokens"), tokens / rises, 1e-2) << contender;
    }
  }
}

TEST(Closely, CollinearPairsNeverRiseAndOthersDoHalfOfTheTime) {
  at::NoGradGuard no_grad;
  const auto rises = [](const std::string& contender) {
    Model model = made(contender);
    CloseProbe probe(*model);
    probe.add(ids_of(8, 32));
    return of(probe.together().numbers, "rotary_rises");
  };
  for (const char* form : {"coca", "coca:form=strict"})
    for (const double share : rises(form)) EXPECT_EQ(share, 0) << form;
  for (const double share : rises("mha")) EXPECT_NEAR(share, 0.5, 0.15);
  EXPECT_TRUE(rises("mha:rope_fraction=0").empty());
}

TEST(Closely, RankIsThatOfTheScoresOfAHead) {
  at::NoGradGuard no_grad;
  const Tensor rank = logit_rank(Drawn("mha").call).values_H;
  const Drawn wide("key_size:key_dim=16"), drawn("mha");
  const AttentionMaps maps = attention_maps(drawn.call.q, drawn.call.k, drawn.call.attention);
  for (int64_t h = 0; h < 4; ++h) {
    const Tensor s = at::linalg_svdvals(maps.scores_BHTS[0][h]);
    const Tensor p = s / s.sum();
    EXPECT_NEAR(rank[h].item<double>(), std::exp(-(p * p.clamp_min(1e-300).log()).sum().item<double>()), 1e-9);
    EXPECT_LE(rank[h].item<double>(), 4.0 + 1e-9);  // heads are 4 wide
    EXPECT_GT(logit_rank(wide.call).values_H[h].item<double>(), 4.0);
  }
}

TEST(Closely, AHeadWhoseScoresAreAllZeroHasRankZero) {
  at::NoGradGuard no_grad;
  Drawn drawn("mha");
  drawn.call.k.k_BSGD = drawn.call.k.k_BSGD.clone();
  drawn.call.k.k_BSGD.select(2, 1).zero_();
  const Tensor rank = logit_rank(drawn.call).values_H;
  EXPECT_EQ(rank[1].item<double>(), 0);
  EXPECT_GE(rank[0].item<double>(), 1);
}

TEST(Closely, PartsByDistanceSumToOneAndDoNotDependOnBatches) {
  at::NoGradGuard no_grad;
  for (const char* contender : {"mha", "dcmha", "differential_v1", "coca", "talking_heads"}) {
    Model model = made(contender);
    const Tensor ids = ids_of(3, 32);
    CloseProbe whole(*model), parts(*model);
    whole.add(ids);
    parts.add(ids.slice(0, 0, 1)), parts.add(ids.slice(0, 1));
    const CloseLook a = whole.together(), b = parts.together();
    for (size_t i = 0; i < a.logits.largest.size(); ++i)
      EXPECT_NEAR(a.logits.largest[i], b.logits.largest[i], 1e-12) << contender;
    EXPECT_NEAR(a.states.kurtosis, b.states.kurtosis, 1e-9) << contender;
    ASSERT_EQ(whole.layers().size(), 2u);
    for (const CloseLook& layer : whole.layers()) {
      const auto self = of(layer.numbers, "self"), near = of(layer.numbers, "near"),
                 middle = of(layer.numbers, "middle"), far = of(layer.numbers, "far");
      for (size_t h = 0; h < self.size(); ++h) {
        EXPECT_NEAR(self[h] + near[h] + middle[h] + far[h], 1, 1e-9) << contender;
        EXPECT_GT(middle[h], 0);
        EXPECT_EQ(far[h], 0);
      }
    }
    EXPECT_NEAR(of(a.numbers, "near")[0], of(b.numbers, "near")[0], 1e-12) << contender;
    // Logits are those that are seen, states those behind layers.
    const std::vector<LayerProbe> probes = probe(*model, ids);
    EXPECT_GE(whole.layers()[0].logits.largest[0], std::abs(probes[0].largest_logit) - 1e-9) << contender;
    const Tensor last = model->states(ids, ModelImpl::positions(ids))[2];
    EXPECT_NEAR(whole.layers()[1].states.largest[0], last.abs().max().item<double>(), 1e-9) << contender;
  }
}

// 1,024 tokens of four heads are several blocks of queries; keys that are all alike get equal weights.
TEST(Closely, PartsByDistanceDoNotDependOnBlocks) {
  at::NoGradGuard no_grad;
  constexpr int64_t kTokens = 1024;
  Model model = made("mha", kTokens);
  model->named_parameters()["model.layers.0.self_attn.q_proj.weight"].zero_();
  CloseProbe probe(*model);
  probe.add(ids_of(1, kTokens));
  double far = 0;
  for (int64_t n = 1; n <= kTokens; ++n)
    far += static_cast<double>(std::max<int64_t>(n - 128, 0)) / static_cast<double>(n * kTokens);
  for (const double got : of(probe.layers()[0].numbers, "far")) EXPECT_NEAR(got, far, 1e-9);
}

// A query of zeros gives every key it sees the same weight.
TEST(Closely, EqualWeightsSpreadOverTheKeysThereAre) {
  at::NoGradGuard no_grad;
  Model model = made("mha");
  model->named_parameters()["model.layers.0.self_attn.q_proj.weight"].zero_();
  CloseProbe probe(*model);
  probe.add(ids_of(2, 32));
  double self = 0, near = 0;
  for (int n = 1; n <= 32; ++n) self += 1.0 / n / 32, near += std::min(n - 1, 15) / static_cast<double>(n) / 32;
  for (const double got : of(probe.layers()[0].numbers, "self")) EXPECT_NEAR(got, self, 1e-12);
  for (const double got : of(probe.layers()[0].numbers, "near")) EXPECT_NEAR(got, near, 1e-12);
}

}  // namespace
}  // namespace motet
