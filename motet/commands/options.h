// What each subcommand can be told beside the configuration of a run; torch-free: the front makes its flags of these.
#pragma once
#include <optional>
#include <string_view>

#include "motet/compare/options.h"
#include "motet/generate/options.h"
#include "motet/ops/options.h"
#include "motet/probe/options.h"
#include "motet/train/options.h"

namespace motet {

struct CompareRequest {
  std::string mechanisms;    // "": those of the default comparison
  std::string sweep, sizes;  // "": none
  int64_t seeds = 3;
  double margin = 0.01;
  Match match = Match::parameters;
  int64_t jobs = 0;
  std::string prompt;
  int64_t n_predict = 300;
};
const Fields<CompareRequest>& compare_options();

struct TrainRequest {
  std::string prompt;
  int64_t n_predict = 200;
  int64_t processes = 0;
};
const Fields<TrainRequest>& train_request_options();

/// The configuration that `compare` and `train` begin from: sections of RunConfig.
const nlohmann::json& compare_defaults();
const nlohmann::json& train_defaults();

struct EvalRequest {
  int64_t batch_size = 0, stride = 0, positions = 0;
  std::string ctx_size;  // "": the model's context; "128,512": one after the other
  double validation = 0;
  Documents documents = Documents::packed;
  int64_t limit = 0;
  std::string items;
  std::optional<TrainDtype> dtype;    // none: as it was trained
  std::optional<WeightType> weights;  // none: as stored
  Precision precision = Precision::highest;
  std::string device = "auto";
  int64_t logit_bits = 0;
  LogitRounding::Per logit_scale = LogitRounding::Per::tensor;
};
const Fields<EvalRequest>& eval_options();

/// How tokens are drawn and kept: generate and chat.
struct SamplingRequest {
  int64_t n_predict = 200;
  double temp = 0.8;
  int64_t top_k = 40;
  double top_p = 0.95, min_p = 0, typical_p = 1, repeat_penalty = 1, frequency_penalty = 0, presence_penalty = 0;
  CacheType cache_type = CacheType::model;
  bool compact_cache = false;
  std::optional<WeightType> weights;  // none: as stored
  Precision precision = Precision::highest;
  std::string device = "auto";
  bool stepwise_base = false, eager = false;
  int64_t seed = 0;
};
const Fields<SamplingRequest>& sampling_options();

struct GenerateRequest {
  int64_t samples = 1, logprobs = -1;  // -1: none
  bool no_special_tokens = false;
};
const Fields<GenerateRequest>& generate_request_options();

struct ConvertRequest {
  enum class Dtype { keep, float64, float32, bfloat16, float16 };
  std::string to = "motet", out;
  Dtype dtype = Dtype::keep;
  std::optional<WeightType> weights;  // int8; none: as dtype says
  std::string mechanism, retrofit;
  int64_t seed = 1;
};
const Fields<ConvertRequest>& convert_options();

struct VerifyRequest {
  enum class Dtype { float64, float32, bfloat16 };
  Dtype dtype = Dtype::float64;
  std::string device = "auto";
  double tolerance = -1;  // below 0: by dtype
};
const Fields<VerifyRequest>& verify_options();

struct PrepareRequest {
  std::string tokenizer, out;
  double validation = 0;
  std::string text_field = "text";
  std::string_view format = "auto";
  std::string document_token = "auto";
  int64_t shard_tokens = 100'000'000;
};
const Fields<PrepareRequest>& prepare_options();

struct ExperimentRequest {
  std::string folder = "experiments", data = "data";
  std::string scale;   // "": the first
  std::string arms;    // "": all
  int64_t seeds = 0;   // 0: those that the experiment declares
  std::string cells;   // "": all; "1/2": every second
  double minutes = 0;  // 0: until all have ended
  int64_t jobs = 0;    // 0: one a thread
  std::string device = "cpu";
};
const Fields<ExperimentRequest>& experiment_options();

struct BenchRequest {
  std::string shape;    // "": the shapes that a kind measures by itself
  int64_t repeats = 0;  // 0: the kind's own number
  bool goals = false, recompute = false;
  std::string dtype;                // "": float32
  std::string mechanisms, weights;  // "": mha; float32, and on the CPU int8
  std::string cache_types;          // "": model
  std::string rivals;               // "": torch; llama_cpp and transformers; of serve none
  std::string beside;               // a second model's folder
  std::string device = "auto", python;
  int64_t processes = 0, soak = 0, turn = 0;
};
const Fields<BenchRequest>& bench_options();

}  // namespace motet
