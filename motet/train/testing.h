#pragma once
#include "motet/models/testing.h"
#include "motet/text/token_bytes.h"
#include "motet/train/trainer.h"

namespace motet::testing {

using Overrides = std::vector<std::pair<std::string, std::string>>;

inline nlohmann::json request_of(const Overrides& set) {
  nlohmann::json request{{"set", nlohmann::json::array()}};
  for (const auto& [key, value] : set) request["set"].push_back({key, value});
  return request;
}

/// A small run: context 16, 4 rows, 40 steps, width 16.
inline RunConfig small_run(const Overrides& set = {}) {
  return read_run_config(request_of(set),
                         {{"train", {{"context", 16}, {"batch_size", 4}, {"steps", 40}, {"final_eval_windows", 64}}},
                          {"model", {{"hidden_size", 16}}}});
}

/// Two different texts of the same words: 20 sentences to train on, 10 others to validate with.
inline TextData two_texts() {
  const std::string train = "the quick brown fox jumps over the lazy dog and runs away. ",
                    held = "a lazy fox runs over the dog and the quick brown cow jumps away. ";
  TextData data{.name = "two texts", .tokenizer = make_tokenizer("chars", train + held)};
  data.token_bytes = token_byte_counts(*data.tokenizer);
  const auto repeated = [&](const std::string& sentence, int times) {
    std::vector<int32_t> tokens;
    std::vector<uint64_t> starts;
    for (int i = 0; i < times; ++i) {
      starts.push_back(tokens.size());
      for (const int32_t id : data.tokenizer->encode(sentence)) tokens.push_back(id);
    }
    return std::make_shared<MemoryTokens>(tokens, starts);
  };
  data.train = repeated(train, 20), data.validation = repeated(held, 10);
  return data;
}

inline Trainer trainer(const RunConfig& run, const TextData& data, const std::string& mechanism = "softmax") {
  RunConfig own = run;
  own.attention_given["mechanism"] = mechanism;
  Model model(own.model_config(vocabulary_for(*data.tokenizer, run.train)));
  model->initialize(1);
  return Trainer(model, data, run.train);
}

}  // namespace motet::testing
