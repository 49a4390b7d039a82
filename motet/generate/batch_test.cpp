#include "motet/generate/batch.h"

#include <gtest/gtest.h>

#include <list>
#include <random>

#include "motet/core/error.h"
#include "motet/core/testing.h"
#include "motet/generate/testing.h"

namespace motet {
namespace {

using namespace testing;
using nlohmann::json;

std::vector<int32_t> random_tokens(std::mt19937& random, size_t count) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % 11);
  return ids;
}

// A sequence on its way: a prompt in pieces, then one token after the other.
struct Running {
  std::vector<int32_t> ids;
  int64_t prompt, piece, length;
  Cache cache;
  std::vector<Tensor> hidden;

  Running(const Model& model, std::vector<int32_t> tokens, int64_t prompt, int64_t piece, int64_t length,
          CacheOptions options = {})
      : ids(std::move(tokens)),
        prompt(prompt),
        piece(piece),
        length(length),
        cache(model->config(), length, {0}, options) {}
  bool done() const { return cache.size() == static_cast<int64_t>(ids.size()); }
  Piece next() {
    const int64_t first = cache.size(), count = first < prompt ? std::min(piece, prompt - first) : 1;
    return {&cache, std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(count)), length,
            first < prompt};
  }
};

void step(Model& model, const std::vector<Running*>& all) {
  std::vector<Piece> pieces;
  for (Running* one : all) pieces.push_back(one->next());
  const std::vector<Tensor> hidden = ragged_step(*model, pieces);
  for (size_t i = 0; i < all.size(); ++i) all[i]->hidden.push_back(hidden[i]);
}

Tensor alone(Model& model, Running one) {
  while (!one.done()) step(model, {&one});
  return at::cat(one.hidden, 0);
}

// Sequences of random lengths begin and end at random steps; some go on as two after their prompt.
TEST(Batch, EachSequenceGetsWhatItGetsAlone) {
  std::mt19937 random(1);
  for (const json& attention : all_attentions())
    for (const CacheOptions& options : {CacheOptions{}, CacheOptions{.compact = true}}) {
      Model model = wide(attention);
      std::list<Running> all;
      const auto arrive = [&] {
        const int64_t tokens = 1 + static_cast<int64_t>(random() % 24), prompt = 1 + random() % tokens,
                      length = tokens + static_cast<int64_t>(random() % 16);
        all.emplace_back(model, random_tokens(random, static_cast<size_t>(tokens)), prompt, 1 + random() % 7, length,
                         options);
      };
      for (int i = 0; i < 60; ++i) {
        if (i < 40 && random() % 2) arrive();
        std::vector<Running*> rows;
        for (Running& one : all)
          if (!one.done() && random() % 4) rows.push_back(&one);
        if (rows.empty()) continue;
        step(model, rows);
        Running& one = *rows[random() % rows.size()];
        if (one.cache.size() >= one.prompt && !one.done() && all.size() < 30) {
          Running fork = one;  // shares no memory with it from here on
          fork.cache = one.cache.beginning(one.cache.size(), one.length);
          int32_t& next = fork.ids[static_cast<size_t>(one.cache.size())];
          next = (next + 1) % 11;
          all.push_back(std::move(fork));
        }
      }
      at::NoGradGuard no_grad;
      for (Running& one : all) {
        while (!one.done()) step(model, {&one});
        const Tensor ids = at::tensor(std::vector<int64_t>(one.ids.begin(), one.ids.end())).unsqueeze(0);
        EXPECT_LE(difference(at::cat(one.hidden, 0), model->hidden(ids, one.length)[0]), 1e-10) << attention;
      }
    }
}

// A released window is one token wider in a whole pass: of a prompt in pieces too, and of its copied beginning.
TEST(Batch, APromptInPiecesSeesWhatAWholePassSees) {
  std::mt19937 random(3);
  Model model = wide({{"mechanism", "dcmha"}, {"window", 5}, {"window_pattern", "LG"}, {"window_mask", "released"}});
  at::NoGradGuard no_grad;
  for (const int64_t piece : {1, 2, 3, 7}) {
    const std::vector<int32_t> tokens = random_tokens(random, 36);
    const Tensor ids = at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end())).unsqueeze(0);
    Running one(model, tokens, 36, piece, 36);
    const Tensor whole = model->hidden(ids, 36)[0], pieces = alone(model, one);
    EXPECT_LE(difference(pieces, whole), 1e-10) << piece;
    for (int i = 0; i < 3; ++i) step(model, {&one});
    for (const int64_t end : {one.cache.size(), one.cache.size() - 1}) {
      if (!one.cache.can_end_at(end)) continue;
      Running rest(model, tokens, 36, piece, 36);
      rest.cache = one.cache.beginning(end, 36);
      EXPECT_LE(difference(alone(model, rest), whole.slice(0, end)), 1e-10) << piece << " from " << end;
    }
    Running answer(model, tokens, 20, piece, 36);  // tokens that are drawn see one fewer
    EXPECT_GT(difference(alone(model, answer).slice(0, 20), whole.slice(0, 20)), 1e-6) << piece;
  }
}

Tensor company(Model& model, const Running& one, std::mt19937& random, int others) {
  std::list<Running> all;
  for (int i = 0; i < others; ++i)
    all.emplace_back(model, random_tokens(random, 36), 1 + random() % 12, 1 + random() % 12, 36, one.cache.options());
  const auto place = std::next(all.begin(), random() % (others + 1));
  Running& mine = *all.insert(place, one);
  while (!mine.done()) {
    std::vector<Running*> rows;
    for (Running& other : all)
      if (&other == &mine || (!other.done() && random() % 4)) rows.push_back(&other);
    step(model, rows);
  }
  return at::cat(mine.hidden, 0);
}

TEST(Batch, InFloat32ItsBitsAreThoseAloneOnAnyNumberOfThreads) {
  const int used = at::get_num_threads();
  std::mt19937 random(2);
  std::vector<std::pair<json, json>> models;  // widths that no vector divides
  for (const json& attention : all_attentions()) models.emplace_back(attention, json{{"hidden_size", 40}});
  for (const char* block : {"parallel", "sequential_layer_norm"})
    for (const char* activation : {"silu", "gelu", "gelu_tanh"})
      for (const int64_t width : {70, 1030})
        models.emplace_back(
            json{{"mechanism", "dcmha"}, {"output_gate", true}},
            json{{"hidden_size", 24}, {"block", block}, {"activation", activation}, {"intermediate_size", width}});
  size_t at = 0;  // half of the pairs of weights and cache for each model, the other half for the next one
  for (const auto& [attention, form] : models) {
    const bool crossed = at++ % 2;
    for (const WeightType weights : {WeightType::float32, WeightType::int8}) {
      const CacheType type = (weights == WeightType::int8) != crossed ? CacheType::int8 : CacheType::model;
      Model model = wide(attention, form);
      model->to(at::kFloat);
      model->prepare(weights);
      const Running one(model, random_tokens(random, 30), 20, 8, 33, {.type = type});
      at::set_num_threads(1);
      const Tensor expected = alone(model, one);
      for (const int threads : {1, 2, 3}) {
        at::set_num_threads(threads);
        EXPECT_TRUE(expected.equal(company(model, one, random, 40)))
            << attention << " " << form << " " << name(type) << " " << threads
            << " threads; what torch computes of several tokens goes through token_by_token (motet/layers)";
      }
      at::set_num_threads(used);
    }
  }
}

TEST(Batch, AnEmptyPieceAndOneBeyondItsCapacityAreRefused) {
  Model model = wide({{"mechanism", "softmax"}});
  Cache cache(model->config(), 2, {0});
  const std::vector<int32_t> three{1, 2, 3};
  EXPECT_EQ(message_of<Error>([&] { ragged_step(*model, std::vector<Piece>{{&cache, {}, 2}}); }),
            "ragged_step: piece 0 has no tokens, want at least one");
  EXPECT_EQ(message_of<Error>([&] { ragged_step(*model, std::vector<Piece>{{&cache, three, 2}}); }),
            "cache: 3 tokens, want at most its capacity of 2");
  EXPECT_EQ(cache.size(), 0);
}

// A prompt that begins as another one takes over whole pieces of it: no bit differs.
TEST(Batch, ACopiedBeginningContinuesBitByBit) {
  std::mt19937 random(3);
  for (const json& attention : all_attentions()) {
    Model model = wide(attention, {{"hidden_size", 48}});
    model->to(at::kFloat);
    model->prepare();
    const std::vector<int32_t> ids = random_tokens(random, 30);
    Running first(model, ids, 30, 8, 40), second(model, ids, 30, 8, 35);
    if (attention.value("rope_scaling", "") == "dynamic") second.length = 40;
    second.ids[26] = (second.ids[26] + 1) % 11;
    const Tensor expected = alone(model, second);
    for (int i = 0; i < 3; ++i) step(model, {&first});
    const Cache& held = first.cache;
    const int64_t end = attention.contains("window") ? 24 : 16;  // a window has dropped what an earlier end needs
    second.cache = held.beginning(end, second.length);
    step(model, {&first});
    EXPECT_LE(second.cache.bytes(), cache_bytes(*model, second.length, {}));
    EXPECT_TRUE(expected.slice(0, end).equal(alone(model, second))) << attention;
  }
}

}  // namespace
}  // namespace motet
