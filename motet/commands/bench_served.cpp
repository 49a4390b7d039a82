#include "motet/commands/bench_served.h"

#include <random>

#include "motet/core/error.h"

namespace motet {

ServedFolder::ServedFolder(const std::filesystem::path& folder, const SamplingRequest& sampling, int64_t threads,
                           int64_t tokens, bool keeps_prompts)
    : server({.port = 0, .no_prefix_cache = !keeps_prompts, .no_request_log = true}, {}, ApiKeys({})) {
  LoadedModel loaded = load_for_inference(folder, sampling);
  tokenizer = load_tokenizer(folder, loaded.model->config());
  model = loaded.model;
  weights = loaded.weights;
  if (tokens > model->config().context)
    fail_usage(folder.string(), ": requests of ", tokens, " tokens are more than the context of ",
               model->config().context);
  server.open(folder, std::move(loaded), {}, threads);
}

SamplingRequest sampling_of(const BenchRequest& asked) {
  SamplingRequest sampling{.device = asked.device};
  if (!asked.weights.empty()) sampling.weights = parse_weight_type(asked.weights);
  return sampling;
}

std::vector<std::vector<int32_t>> drawn_prompts(int64_t count, int64_t tokens, int64_t vocabulary) {
  std::mt19937_64 random(1);
  std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(count));
  for (auto& prompt : prompts)
    for (int64_t i = 0; i < tokens; ++i)
      prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary)));
  return prompts;
}

std::vector<std::string> checked_texts(int port, const std::vector<std::vector<int32_t>>& prompts, int64_t tokens) {
  const auto alone = measure_serving({.port = port, .clients = 1, .prompts = prompts, .max_tokens = tokens});
  const auto together = measure_serving({.port = port, .clients = 16, .prompts = prompts, .max_tokens = tokens});
  if (alone.texts != together.texts) fail("bench serve: a request got another text among others than alone");
  return alone.texts;
}

}  // namespace motet
