#include "motet/generate/cache.h"

#include <gtest/gtest.h>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/generate/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

// Hidden states step by step, in pieces of the given sizes over and over.
Tensor stepped(Cache& cache, Model& model, const Tensor& ids, const std::vector<int64_t>& pieces, int64_t length) {
  std::vector<Tensor> parts;
  for (int64_t at = 0, i = 0; at < ids.size(1); ++i) {
    const int64_t count = std::min(pieces[i % pieces.size()], ids.size(1) - at);
    parts.push_back(cache.step(*model, ids.narrow(1, at, count), length));
    at += count;
  }
  return at::cat(parts, 1);
}

// A model that computes under autocast does so through a cache too, or its steps would be those of another model.
TEST(Cache, StepsComputeInTheModelsPrecision) {
  at::NoGradGuard no_grad;
  for (const char* mechanism : {"softmax", "dcmha", "differential"}) {
    Model model = fresh(tiny({{"initializer_range", 0.3}}, {{"mechanism", mechanism}}));
    const Tensor ids = random_ids(model, 2, 12), exact = model->hidden(ids);
    model->set_autocast(at::kBFloat16);
    Cache cache(model->config(), 12, {0, 0});
    const double whole = difference(model->hidden(ids), exact),
                 steps = difference(stepped(cache, model, ids, {5, 1}, 12), exact);
    EXPECT_GT(steps, whole / 3) << mechanism;
    EXPECT_LT(steps, whole * 3) << mechanism;
    EXPECT_GT(whole, 1e-3) << mechanism;
  }
}

// On a CPU without AMX the operator says so; on another a prompt is computed in it.
TEST(Cache, StepsAskForThePrecisionOfTheMechanism) {
  at::NoGradGuard no_grad;
  Model model = fresh(tiny({}, {}, 11, 64));
  const Tensor ids = random_ids(model, 1, 40);
  const auto step = [&] {
    Cache cache(model->config(), 40, {0});
    return cache.step(*model, ids, 40);
  };
  const Tensor highest = step();
  model->blocks().back()->self_attn->precision = Precision::high;
  std::string refused;
  try {
    EXPECT_FALSE(at::equal(step(), highest));
  } catch (const c10::ValueError& error) {
    refused = error.what_without_backtrace();
  }
  const std::string reason = why_not_high(at::kCPU, at::kFloat);
  EXPECT_EQ(refused, reason.empty() ? "" : "composed_attention: precision is high, want highest: " + reason);
}

TEST(Cache, CachedDecodingEqualsFullForward) {
  at::NoGradGuard no_grad;
  at::manual_seed(1);
  for (const json& attention : all_attentions())
    for (const char* block : {"sequential", "parallel"}) {
      Model model = wide(attention, {{"block", block}});
      const Tensor ids = random_ids(model, 2, kTokens), expected = model->hidden(ids);
      for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{1}, {17, 1, 1, 1}, {3, 5}, {kTokens}}) {
        Cache cache(model->config(), kTokens, {0, 0});
        const double error = difference(stepped(cache, model, ids, pieces, kTokens), expected);
        EXPECT_LE(error, 1e-10) << attention << " " << block << " pieces of " << pieces[0];
      }
    }
}

std::vector<json> all_forms() {
  const json learned{{"positions", "learned"}, {"token_types", 2}};
  json post = learned, shared = learned;
  post.update({{"norm_place", "post"}, {"embedding_norm", true}, {"block", "sequential_layer_norm"}});
  shared.update({{"shared_layers", true}, {"num_layers", 3}, {"first_position", 2}, {"head", "masked"}});
  return {learned, post, shared, {{"norm_place", "post"}}};
}

// In pieces, behind padding and after a truncation.
TEST(Cache, EveryFormOfAModelDecodesAsItComputesWhole) {
  at::NoGradGuard no_grad;
  at::manual_seed(10);
  for (const json& form : all_forms())
    for (const char* mechanism : {"softmax", "dcmha", "differential"}) {
      Model model = wide({{"mechanism", mechanism}}, form);
      const Tensor ids = random_ids(model, 2, kTokens);
      for (const std::vector<int64_t>& pieces : {std::vector<int64_t>{1}, {17, 1, 1, 1}, {3, 5}, {kTokens}}) {
        const std::vector<int64_t> padding{0, pieces[0] > 5 ? 5 : 0};  // a first step holds a token of each row
        Cache cache(model->config(), kTokens, padding);
        Tensor got = stepped(cache, model, ids, pieces, kTokens);
        ASSERT_TRUE(cache.truncate(20));
        got = at::cat({got.slice(1, 0, 20), stepped(cache, model, ids.slice(1, 20), {7, 1}, kTokens)}, 1);
        for (int64_t b = 0; b < 2; ++b)
          EXPECT_LE(difference(got.narrow(0, b, 1).slice(1, padding[b]),
                               model->hidden(ids.narrow(0, b, 1).slice(1, padding[b]))),
                    1e-10)
              << form << " " << mechanism << " pieces of " << pieces[0] << ", row " << b;
      }
      EXPECT_EQ(
          cache_bytes(*model, 7, {}),
          model->config().num_layers() * cache_bytes(*wide({{"mechanism", mechanism}}, {{"num_layers", 1}}), 7, {}));
    }
}

// float32 goes through the small kernels (motet/kernels), the rest of these tests does not.
TEST(Cache, Float32DecodingIsNearTheFullForwardInFloat64) {
  at::NoGradGuard no_grad;
  at::manual_seed(7);
  for (const json& attention : all_attentions())
    for (const char* block : {"sequential", "parallel"}) {
      Model model = wide(attention, {{"block", block}});
      const Tensor ids = random_ids(model, 2, kTokens), expected = model->hidden(ids);
      model->to(at::kFloat);
      Cache cache(model->config(), kTokens, {0, 0});
      const Tensor got = stepped(cache, model, ids, {17, 1, 1, 1}, kTokens);
      const double error = difference(got.to(at::kDouble), expected);
      EXPECT_LE(error, 1e-4 * expected.abs().max().item<double>()) << attention << " " << block;
    }
}

TEST(Cache, CompactFormIsExactAndSmaller) {
  at::NoGradGuard no_grad;
  at::manual_seed(8);
  for (const char* form : {"slack", "strict", "exact"}) {
    Model model = wide({{"mechanism", "coca"}, {"form", form}, {"num_heads", 2}});
    const Tensor ids = random_ids(model, 2, kTokens);
    Cache whole(model->config(), kTokens, {0, 3}), compact(model->config(), kTokens, {0, 3}, {.compact = true});
    const Tensor expected = stepped(whole, model, ids, {9, 1, 1}, kTokens);
    EXPECT_LE(difference(stepped(compact, model, ids, {9, 1, 1}, kTokens), expected), 1e-12) << form;
    EXPECT_EQ(4 * compact.bytes(), 3 * whole.bytes());
    EXPECT_EQ(4 * cache_bytes(*model, 7, {.compact = true}), 3 * cache_bytes(*model, 7, {}));
  }
}

TEST(Cache, UnequalLengthsDoNotSeeTheirPadding) {
  at::NoGradGuard no_grad;
  at::manual_seed(2);
  for (const json& attention : all_attentions()) {
    Model model = wide(attention);
    const Tensor ids = random_ids(model, 3, 24);
    const std::vector<int64_t> padding{0, 5, 20};
    Cache cache(model->config(), kTokens, padding);
    const Tensor got = stepped(cache, model, ids, {21, 1, 1}, kTokens);
    for (int64_t b = 0; b < 3; ++b) {
      const Tensor expected = model->hidden(ids.narrow(0, b, 1).slice(1, padding[b]), kTokens);
      EXPECT_LE(difference(got.narrow(0, b, 1).slice(1, padding[b]), expected), 1e-10) << attention << " " << b;
    }
  }
}

TEST(Cache, TruncationAndRepetitionContinueExactly) {
  at::NoGradGuard no_grad;
  at::manual_seed(3);
  for (const json& attention : all_attentions()) {
    Model model = wide(attention);
    const Tensor ids = random_ids(model, 1, kTokens), other = ids.clone();
    other.slice(1, 10) = random_ids(model, 1, kTokens - 10);
    Cache cache(model->config(), kTokens, {0});
    stepped(cache, model, ids.slice(1, 0, 14), {5}, kTokens);
    if (cache.truncate(10)) {
      EXPECT_EQ(cache.size(), 10);
      EXPECT_LE(difference(stepped(cache, model, other.slice(1, 10), {7, 1}, kTokens),
                           model->hidden(other, kTokens).slice(1, 10)),
                1e-10)
          << attention;
    } else {
      EXPECT_TRUE(attention.contains("window")) << attention;
      EXPECT_EQ(cache.size(), 14);
    }
    Cache prompt(model->config(), kTokens, {0});
    stepped(prompt, model, ids.slice(1, 0, 8), {8}, kTokens);
    prompt.repeat(2);
    const Tensor both = at::cat({ids.slice(1, 8), other.slice(1, 8)}, 0),
                 whole = at::cat({ids, at::cat({ids.slice(1, 0, 8), other.slice(1, 8)}, 1)}, 0);
    EXPECT_LE(difference(stepped(prompt, model, both, {1}, kTokens), model->hidden(whole, kTokens).slice(1, 8)), 1e-10)
        << attention;
  }
}

TEST(Cache, AWindowHoldsFewerThanTwiceItsKeys) {
  at::NoGradGuard no_grad;
  Model all = wide({{"mechanism", "softmax"}}), local = wide({{"mechanism", "softmax"}, {"window", 4}});
  const auto bytes = [&](Model& model) {
    Cache cache(model->config(), kTokens, {0});
    stepped(cache, model, random_ids(model, 1, kTokens), {kTokens - 1, 1}, kTokens);
    return cache.bytes();
  };
  EXPECT_EQ(bytes(all) / kTokens * 8, bytes(local));
}

// As in the released DCFormer: a prompt sees one key more than the tokens behind it. With one layer the keys are those
// of either model.
TEST(Cache, AReleasedWindowIsWiderInTheFirstPassAlone) {
  at::NoGradGuard no_grad;
  const json window{{"mechanism", "dcmha"}, {"window", 3}};
  json wider = window;
  wider["window_mask"] = "released";
  Model exact = wide(window, {{"num_layers", 1}}), released = wide(wider, {{"num_layers", 1}});
  const Tensor ids = random_ids(exact, 2, 20);
  Cache cache(released->config(), 20, {0, 0});
  const Tensor got = stepped(cache, released, ids, {12, 1, 3}, 20);
  EXPECT_LE(difference(got.slice(1, 0, 12), released->hidden(ids).slice(1, 0, 12)), 1e-10);
  EXPECT_LE(difference(got.slice(1, 12), exact->hidden(ids).slice(1, 12)), 1e-10);
  EXPECT_GT(difference(exact->hidden(ids), released->hidden(ids)), 1e-3);
}

TEST(Cache, NarrowTypesStoreLessAndComeNear) {
  at::NoGradGuard no_grad;
  at::manual_seed(4);
  Model model = wide({{"mechanism", "dcmha"}}, {{"hidden_size", 128}});
  const Tensor ids = random_ids(model, 1, kTokens), expected = model->hidden(ids);
  int64_t before = INT64_MAX;
  for (const auto& [type, bound] :
       {std::pair{CacheType::model, 1e-10}, {CacheType::bfloat16, 5e-2}, {CacheType::int8, 1e-1}}) {
    Cache cache(model->config(), kTokens, {0}, {.type = type});
    const double error = difference(stepped(cache, model, ids, {20, 1}, kTokens), expected);
    EXPECT_LE(error, bound * expected.abs().max().item<double>()) << name(type);
    EXPECT_LT(cache.bytes(), before) << name(type);
    before = cache.bytes();
  }
}

// Each number is within half a step of its row's scale, which is its largest number over 127.
TEST(Cache, EightBitsAreRoundedToTheNearestStep) {
  at::NoGradGuard no_grad;
  at::manual_seed(9);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Tensor given = at::randn({2, 30, 3, 16}, type) * at::logspace(-3, 3, 30, 10.0, type).view({30, 1, 1});
    KeyRows rows(given.slice(1, 0, 1), CacheType::int8, 4);
    rows.write(0, given.slice(1, 0, 3));
    rows.write(3, given.slice(1, 3));  // grows
    const Tensor half_step = given.abs().amax(-1, true) / 254;
    EXPECT_TRUE(((rows.read(30)[0] - given).abs() <= half_step * (1 + 1e-5)).all().item<bool>());
    rows.keep(10, 5, 8);
    EXPECT_TRUE(((rows.read(5)[0] - given.slice(1, 10, 15)).abs() <= half_step.slice(1, 10, 15) * (1 + 1e-5))
                    .all()
                    .item<bool>());
    EXPECT_EQ(rows.bytes(), 2 * 8 * 3 * (16 + 4));
  }
  KeyRows zeros(at::zeros({1, 1, 1, 4}), CacheType::int8, 1);
  zeros.write(0, at::zeros({1, 1, 1, 4}));
  EXPECT_TRUE(zeros.read(1)[0].equal(at::zeros({1, 1, 1, 4})));
}

// The rows of a head lie behind each other whatever becomes of them, and are those that lie side by side.
TEST(Cache, RowsByHeadAreTheRowsSideBySide) {
  c10::InferenceMode inference;
  at::manual_seed(13);
  const Tensor given = at::randn({1, 9, 3, 4});
  for (const CacheType type : {CacheType::model, CacheType::bfloat16, CacheType::int8}) {
    KeyRows side(given.slice(1, 0, 1), type, 2), heads(given.slice(1, 0, 1), type, 2, RowOrder::by_head);
    const auto expect_equal = [&](int64_t count) {
      for (const bool narrow : {false, true}) {
        const Tensor one = side.read(count, narrow)[0], other = heads.read(count, narrow)[0];
        EXPECT_TRUE(one.equal(other)) << name(type) << " " << count;
        EXPECT_TRUE(!narrow || other.stride(1) == 4) << name(type);
      }
      EXPECT_EQ(side.bytes(), heads.bytes());
      EXPECT_EQ(side.capacity(), heads.capacity());
    };
    const auto each = [&](const auto& change) { change(side), change(heads); };
    each([&](KeyRows& rows) { rows.write(0, given.slice(1, 0, 2)); });
    each([&](KeyRows& rows) { rows.write(2, given.slice(1, 2, 7)); });  // grows
    expect_equal(7);
    each([&](KeyRows& rows) { rows.write_at(at::tensor({int64_t{5}}), given.slice(1, 8, 9)); });
    expect_equal(7);
    each([&](KeyRows& rows) { rows = rows.beginning(6, 8); });
    each([&](KeyRows& rows) { rows.move_to_front(3, 3); });
    expect_equal(3);
    each([&](KeyRows& rows) { rows.repeat(2); });
    expect_equal(3);
    each([&](KeyRows& rows) { rows.write(3, given.slice(1, 4, 5).repeat({2, 1, 1, 1})); });
    each([&](KeyRows& rows) { rows.keep(1, 3, 4); });
    expect_equal(3);
  }
}

// What shares a row of a token has scales of its own, and comes back in its own shape.
TEST(Cache, SideBySideInFewerBits) {
  at::NoGradGuard no_grad;
  at::manual_seed(11);
  const std::vector<Tensor> given{at::randn({1, 7, 2, 5}), at::randn({1, 7, 3}) * 1e3, at::randn({1, 7, 1, 4}) * 1e-3};
  for (const CacheType type : {CacheType::model, CacheType::bfloat16, CacheType::int8}) {
    KeyRows rows(given, type, 2);
    std::vector<Tensor> first, rest;
    for (const Tensor& t : given) first.push_back(t.slice(1, 0, 2)), rest.push_back(t.slice(1, 2));
    rows.write(0, first);
    rows.write(2, rest);
    const std::vector<Tensor> held = rows.read(7);
    for (size_t i = 0; i < given.size(); ++i) {
      const double step = type == CacheType::model ? 0 : type == CacheType::bfloat16 ? 1. / 256 : 1. / 254;
      ASSERT_EQ(held[i].sizes(), given[i].sizes());
      EXPECT_TRUE(((held[i] - given[i]).abs() <= given[i].abs().amax(-1, true) * step * (1 + 1e-5)).all().item<bool>())
          << name(type) << " " << i;
    }
    const std::vector<Tensor> stored = rows.read(7, true), scales = rows.read_scales(7);
    ASSERT_EQ(scales.size(), type == CacheType::int8 ? given.size() : 0);
    for (size_t i = 0; i < given.size(); ++i) {
      const Tensor wide = stored[i].to(at::kFloat);
      EXPECT_TRUE(held[i].equal(scales.empty() ? wide : wide * scales[i].unsqueeze(-1))) << name(type) << " " << i;
    }
  }
}

TEST(Cache, ItsBytesAreKnownBefore) {
  at::NoGradGuard no_grad;
  for (const json& attention : all_attentions())
    for (const CacheType type : {CacheType::model, CacheType::bfloat16, CacheType::int8}) {
      Model model = wide(attention);
      Cache cache(model->config(), kTokens, {0}, {.type = type});
      stepped(cache, model, random_ids(model, 1, kTokens), {kTokens - 1, 1}, kTokens);
      EXPECT_EQ(cache.bytes(), cache_bytes(*model, kTokens, {.type = type})) << attention << " " << name(type);
    }
}

// In float32 the operator reads keys of 16 and 8 bits as they lie.
TEST(Cache, FewerBitsComeNearInFloat32) {
  at::NoGradGuard no_grad;
  at::manual_seed(5);
  for (const char* mechanism : {"softmax", "dcmha", "differential", "coca"}) {
    // At 0.3 the squares of coca's queries make logits so large that a last bit of a key moves the softmax.
    Model model = wide({{"mechanism", mechanism}}, {{"hidden_size", 128}, {"initializer_range", 0.1}});
    model->to(at::kFloat);
    const Tensor ids = random_ids(model, 1, kTokens), expected = model->hidden(ids);
    for (const bool compact : {false, true})
      for (const auto& [type, bound] :
           {std::pair{CacheType::bfloat16, 5e-2}, {CacheType::float16, 1e-2}, {CacheType::int8, 1e-1}}) {
        Cache cache(model->config(), kTokens, {0}, {.type = type, .compact = compact});
        const double error = difference(stepped(cache, model, ids, {20, 1}, kTokens), expected);
        EXPECT_LE(error, bound * expected.abs().max().item<double>()) << mechanism << " " << name(type);
      }
  }
}

TEST(Cache, RefusesWhatDoesNotFit) {
  at::NoGradGuard no_grad;
  Model model = wide({{"mechanism", "softmax"}});
  Cache cache(model->config(), 8, {0});
  cache.step(*model, random_ids(model, 1, 6), 8);
  EXPECT_EQ(message_of<Error>([&] { cache.step(*model, random_ids(model, 1, 3), 8); }),
            "cache: 9 tokens, want at most its capacity of 8");
  EXPECT_EQ(message_of<Error>([&] { cache.step(*model, random_ids(model, 2, 1), 8); }),
            "cache: 2 sequences, want the 1 of the cache");
  EXPECT_FALSE(cache.truncate(7));
  EXPECT_THROW(parse_cache_type("int4"), UsageError);
  const auto of_form = [](const json& form) { return wide({}, form)->config(); };
  EXPECT_EQ(message_of<Error>([&] { Cache(of_form({{"positions", "learned"}}), kTokens + 6, {5, 9}); }),
            "cache: the model has learned positions for 40 tokens, want no 41");
  EXPECT_EQ(message_of<Error>([&] { Cache(of_form({{"causal", false}}), 8, {0}); }),
            "cache: the model is not causal, want one whose tokens see only those before them");
}

}  // namespace
}  // namespace motet
