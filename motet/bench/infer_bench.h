// `motet bench infer`: prompts and single tokens of cached decoding, against llama.cpp, transformers and each other.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "motet/bench/timing.h"
#include "motet/core/fields.h"
#include "motet/generate/options.h"
#include "motet/models/model.h"

namespace motet {

/// Sizes of a model with drawn weights (SmolLM2-135M's by default), and of the cases.
struct InferShape {
  int64_t hidden = 576, layers = 30, heads = 9, kv_heads = 3, intermediate = 1536, vocab = 49152;
  int64_t prompt = 512, generate = 128, depth = 4096;
};
const Fields<InferShape>& infer_shape_options();

/// pp: a prompt and the logits after it; tg: single tokens, logits after each.
struct InferCase {
  bool prompt = true;
  int64_t tokens = 0, depth = 0;
  std::string name() const;  // pp512, tg128 @ 4096
};

/// A model of ours that takes part, on its device; `weights` are those of the CPU, elsewhere float32.
struct InferModel {
  std::string name;
  Model model;
  WeightType weights = WeightType::float32;
  CacheType cache = CacheType::model;
  std::optional<size_t> near = {};  // the model with these weights whose keys are kept as computed
};

/// A program of bench/ that takes part, and the one of ours that it is measured against.
struct InferRival {
  std::string name, script;
  WeightType weights = WeightType::float32;
  size_t against = 0;
};

struct InferBench {
  std::vector<InferModel> models;
  std::vector<InferRival> rivals;
  std::filesystem::path folder;  // what the rivals load: the first model in Hugging Face's llama layout
  std::vector<InferCase> cases;
  std::string python;  // empty: .venv/bin/python of the source tree
  int64_t threads = 2;
  Turns turns{.warmups = 1, .repeats = 5};
};

/// Tokens per second of one contestant in one case, turn by turn.
struct InferRates {
  std::vector<double> turns;
  double mean() const;
  double deviation() const;  // standard, of one turn
  /// The median over turns of these rates over those of the same turns, which met the same weather.
  double over(const InferRates&) const;
};

struct InferResult {
  std::string name, version;      // version: of a rival
  double logits_error = 0;        // largest difference, of the largest logit, to what the model or rival is held to
  std::vector<InferRates> rates;  // one a case
  int64_t model_bytes = 0, cache_bytes = 0;  // ours: matrices and vectors; keys and values at the largest depth
};

/// Ours first, then the rivals; all take turns case by case, repeat by repeat, every other time backwards. Before that
/// every rival computes the logits of one prompt, and so does every model whose keys are kept in fewer bits: throws
/// Error when those of a float32 rival differ from the first model's by more than 1e-3 of the largest, of fewer bits by
/// more than these allow.
std::vector<InferResult> measure_inference(const InferBench&);

}  // namespace motet
