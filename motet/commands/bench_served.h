#pragma once
#include "motet/bench/serve_bench.h"
#include "motet/commands/model_server.h"

namespace motet {

/// A model's folder behind HTTP in this process.
struct ServedFolder {
  /// Without `keeps_prompts` each prompt is computed anew. Throws as load_for_inference and ModelServer; UsageError
  /// when requests of `tokens` do not fit the context.
  ServedFolder(const std::filesystem::path&, const SamplingRequest&, int64_t threads, int64_t tokens,
               bool keeps_prompts = false);

  ModelServer server;
  std::shared_ptr<const Tokenizer> tokenizer;
  Model model{nullptr};
  WeightType weights;  // as they are kept
};

/// The device and the weights that are asked for. Throws UsageError for other weights than there are.
SamplingRequest sampling_of(const BenchRequest&);

/// Prompts of drawn tokens: none begins as another does.
std::vector<std::vector<int32_t>> drawn_prompts(int64_t count, int64_t tokens, int64_t vocabulary);

/// The answers to the prompts. Throws Error when one of them differs among 16 at once: before any time counts.
std::vector<std::string> checked_texts(int port, const std::vector<std::vector<int32_t>>& prompts, int64_t tokens);

}  // namespace motet
