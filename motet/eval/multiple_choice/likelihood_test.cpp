#include "motet/eval/multiple_choice/likelihood.h"

#include <gtest/gtest.h>

#include "motet/models/testing.h"

namespace motet {
namespace {

using nlohmann::json;

Model model_of(const json& attention, int64_t context = 40, const json& form = json::object()) {
  Model model = testing::fresh(testing::tiny(form, attention, 50, context), 7);
  model->to(at::kDouble);
  at::NoGradGuard no_grad;
  at::manual_seed(3);
  for (Tensor& p : model->parameters()) p.add_(at::randn_like(p), 0.1);
  return model;
}

// `shared` tokens, then endings of these lengths; the first token of all is not scored.
ScoredItem item_of(int64_t shared, const std::vector<int64_t>& endings) {
  const Tensor start = at::randint(50, {shared}, at::kLong);
  ScoredItem item;
  for (const int64_t length : endings) {
    const Tensor all = at::cat({start, at::randint(50, {length}, at::kLong)});
    const auto* data = all.const_data_ptr<int64_t>();
    item.choices.push_back({{data, data + all.numel()}, std::min(length, all.numel() - 1)});
  }
  return item;
}

// One sequence on its own, in the plain way.
double log_likelihood(ModelImpl& model, const ScoredSequence& s) {
  const Tensor ids = at::tensor(s.tokens, at::kLong);
  const Tensor logits = model.forward(ids.slice(0, 0, s.inputs()).unsqueeze(0))[0].log_softmax(-1);
  return logits.gather(1, ids.slice(0, 1).unsqueeze(1)).slice(0, s.inputs() - s.scored).sum().item<double>();
}

void expect_each_alone(Model model, const std::string& what) {
  const std::vector<ScoredItem> items{item_of(13, {4, 1, 7}), item_of(13, {2, 2}), item_of(0, {5, 9}), item_of(20, {6}),
                                      item_of(1, {3, 3, 3, 3})};
  size_t seen = 0;
  for (const auto& batch : item_batches(items, 3)) {
    std::vector<const ScoredItem*> own;
    for (const size_t index : batch) own.push_back(&items[index]);
    const auto scores = score_items(*model, own);
    for (size_t i = 0; i < own.size(); ++i, ++seen)
      for (size_t c = 0; c < own[i]->choices.size(); ++c)
        EXPECT_NEAR(scores[i].log_likelihood[c], log_likelihood(*model, own[i]->choices[c]), 1e-10) << what;
  }
  EXPECT_EQ(seen, items.size());
}

TEST(Likelihood, OfABatchIsThatOfEachSequenceAlone) {
  at::NoGradGuard no_grad;
  at::manual_seed(1);
  for (const json& attention : std::vector<json>{
           {{"mechanism", "softmax"}, {"num_heads", 4}, {"num_kv_heads", 2}},
           {{"mechanism", "softmax"}, {"num_heads", 2}, {"position_bias", "alibi"}, {"rope_fraction", 0.0}},
           {{"mechanism", "softmax"},
            {"num_heads", 2},
            {"rope_scaling", "dynamic"},
            {"rope_factor", 4.0},
            {"rope_trained_length", 8}},
           {{"mechanism", "dcmha"}, {"num_heads", 4}, {"window", 5}, {"window_pattern", "LG"}},
           {{"mechanism", "differential"}, {"num_heads", 4}},
           {{"mechanism", "talking_heads"}, {"num_heads", 4}, {"dynamic", "both"}},
           {{"mechanism", "coca"}, {"num_heads", 2}, {"form", "slack"}}}) {
    expect_each_alone(model_of(attention), attention.dump());
  }
}

TEST(Likelihood, EveryFormOfAModelScoresAsItComputesWhole) {
  at::NoGradGuard no_grad;
  at::manual_seed(4);
  for (const json& form : std::vector<json>{{{"norm_place", "post"}},
                                            {{"positions", "learned"}, {"first_position", 2}},
                                            {{"shared_layers", true}, {"head", "masked"}, {"token_types", 2}}})
    expect_each_alone(model_of({{"num_heads", 2}}, 40, form), form.dump());
}

TEST(Likelihood, TheLikeliestTokensAreGreedy) {
  at::NoGradGuard no_grad;
  Model model = model_of({{"mechanism", "softmax"}, {"num_heads", 2}});
  ScoredItem item = item_of(5, {1});
  Tensor ids = at::tensor(item.choices[0].tokens, at::kLong).slice(0, 0, 5);
  for (int i = 0; i < 3; ++i) ids = at::cat({ids, model->forward(ids.unsqueeze(0))[0][-1].argmax(-1, true)});
  Tensor begins_otherwise = at::cat({ids.slice(0, 0, 5), (ids.slice(0, 5, 6) + 1).remainder(50)});
  for (int i = 0; i < 2; ++i)
    begins_otherwise =
        at::cat({begins_otherwise, model->forward(begins_otherwise.unsqueeze(0))[0][-1].argmax(-1, true)});
  const auto* data = ids.const_data_ptr<int64_t>();
  const auto* other = begins_otherwise.const_data_ptr<int64_t>();
  item.choices = {{{data, data + 8}, 3}, {{data, data + 8}, 3}, {{other, other + 8}, 3}};
  item.choices[1].tokens[6] = (item.choices[1].tokens[6] + 1) % 50;
  const ScoredItem* batch[] = {&item};
  EXPECT_EQ(score_items(*model, batch)[0].greedy, (std::vector<bool>{true, false, false}));
}

TEST(Likelihood, BatchesHaveItemsThatShareAsMuchLongOnesFirst) {
  at::manual_seed(2);
  const std::vector<ScoredItem> items{item_of(3, {2, 2}), item_of(9, {2, 2}), item_of(3, {5, 5}), item_of(3, {4, 4}),
                                      item_of(9, {1, 8})};
  const std::vector<std::vector<size_t>> want{{4, 1}, {2, 3}, {0}};
  EXPECT_EQ(item_batches(items, 2), want);
}

}  // namespace
}  // namespace motet
