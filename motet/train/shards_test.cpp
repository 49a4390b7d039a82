#include "motet/train/shards.h"

#include <numeric>

#include "motet/core/testing.h"
#include "motet/models/testing.h"
#include "motet/processes/testing.h"
#include "motet/train/optimizer.h"
#include "motet/train/testing.h"

namespace motet {
namespace {

using testing::with_processes;

Shards parameters(const std::vector<std::vector<int64_t>>& shapes) {
  Shards all;
  for (const auto& shape : shapes) {
    const Tensor p = at::randn(shape);
    all.push_back({text("p", all.size()), p, 0, p.numel()});
  }
  return all;
}

int64_t numbers(const Shards& shards) {
  return std::accumulate(shards.begin(), shards.end(), int64_t{0},
                         [](int64_t sum, const Shard& s) { return sum + s.end - s.begin; });
}

TEST(Shards, FlatOnesCoverEveryNumberOnceInEqualParts) {
  const Shards all = parameters({{3, 5}, {7}, {2, 2}, {1}});
  std::vector<Tensor> seen;
  for (const Shard& p : all) seen.push_back(at::zeros({p.end}));
  const std::vector<Shards> parts = flat_shards(all, 4);
  for (const Shards& part : parts) {
    EXPECT_NEAR(static_cast<double>(numbers(part)), 27 / 4.0, 1);
    for (const Shard& s : part) seen[static_cast<size_t>(s.name[1] - '0')].slice(0, s.begin, s.end) += 1;
  }
  for (const Tensor& each : seen) EXPECT_TRUE(each.equal(at::ones_like(each)));
}

TEST(Shards, AViewOfAPartIsThePart) {
  const Shard part{"p", at::arange(6, at::kFloat).view({2, 3}), 2, 5};
  EXPECT_TRUE(part.values().equal(at::tensor({2.f, 3.f, 4.f})));
  part.values().zero_();
  EXPECT_TRUE(part.parameter.equal(at::tensor({0.f, 1.f, 0.f, 0.f, 0.f, 5.f}).view({2, 3})));
}

TEST(Shards, WholeOnesGoToWhoHasTheFewest) {
  const std::vector<Shards> parts = whole_shards(parameters({{2}, {10}, {4}, {5}}), 2);
  ASSERT_EQ(parts[0].size(), 1u);
  EXPECT_EQ(parts[0][0].name, "p1");
  ASSERT_EQ(parts[1].size(), 3u);
  EXPECT_EQ(numbers(parts[1]), 11);
}

// Stretches are longer than what goes round at once, and of unlike length.
TEST(Shards, EveryoneGetsWhatOthersHave) {
  with_processes(3, [](Processes& p) {
    Shards all;
    for (const int64_t size : {1'500'000, 700'001, 3})
      all.push_back({text("p", all.size()), at::arange(size, at::kFloat) + 1, 0, size});
    const std::vector<Shards> parts = whole_shards(all, 3);
    std::vector<Tensor> own;
    std::vector<std::vector<Tensor>> everyones(3);
    for (size_t r = 0; r < 3; ++r)
      for (const Shard& s : parts[r]) {
        if (static_cast<int64_t>(r) != p.rank()) s.parameter.zero_();
        everyones[r].push_back(s.values());
      }
    for (const Shard& s : parts[static_cast<size_t>(p.rank())]) own.push_back(s.values());
    share(p, parts, own, everyones);
    for (const Shard& s : all) EXPECT_TRUE(s.parameter.equal(at::arange(s.end, at::kFloat) + 1)) << s.name;
  });
}

// ZeRO-1's promise, and that a state that was put together and taken again is what it was.
TEST(Shards, StateIsANthAndComesBack) {
  const TextData data = testing::two_texts();
  const auto trained = [&](OptimizerKind kind, int64_t size, const std::function<void(Trainer&, int64_t bytes)>& then) {
    with_processes(size, [&](Processes& p) {
      RunConfig run = testing::small_run({{"train.dtype", "float64"}});
      run.train.optimizer = kind, run.train.shard_optimizer = true;
      Model model(run.model_config(data.vocabulary()));
      model->initialize(1);
      Trainer trainer(model, data, run.train, std::shared_ptr<Processes>(&p, [](Processes*) {}));
      trainer.step();
      then(trainer, trainer.optimizer().state_bytes());
    });
  };
  for (const OptimizerKind kind : {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::muon}) {
    double whole = 0;
    std::vector<std::pair<std::string, Tensor>> state;
    trained(kind, 1, [&](Trainer& t, int64_t bytes) { whole = static_cast<double>(bytes), state = t.tensors(); });
    trained(kind, 4, [&](Trainer& t, int64_t bytes) {
      EXPECT_NEAR(static_cast<double>(bytes) / whole, 0.25, kind == OptimizerKind::muon ? 0.1 : 0.0125);
      auto own = t.tensors();
      if (t.processes().first()) {
        std::map<std::string, Tensor> by_name(own.begin(), own.end());
        ASSERT_EQ(by_name.size(), state.size());
        for (const auto& [name, tensor] : state)
          EXPECT_TRUE(at::allclose(by_name.at(name), tensor, 1e-9, 1e-12)) << name;
      }
      for (auto& [name, tensor] : own) tensor.fill_(7);
      t.restore(t.state(), own);
      for (const auto& [name, tensor] : t.tensors())
        EXPECT_TRUE(!t.processes().first() || (tensor == 7).all().item<bool>()) << name;
    });
  }
}

}  // namespace
}  // namespace motet
