#include "motet/bench/train_bench.h"

#include <deque>
#include <random>

#include "motet/bench/rival.h"
#include "motet/core/error.h"
#include "motet/core/progress.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

// The rival's defaults of betas, epsilon and clipping are those of train_options; these two are told to both.
constexpr double kLearningRate = 1e-3, kWeightDecay = 0.1;

RunConfig run_config(const TrainShape& s, at::Device device) {
  RunConfig run;
  run.model = {.hidden_size = s.hidden, .num_layers = s.layers, .intermediate_size = s.intermediate};
  run.attention_given = {{"num_heads", s.heads}, {"num_kv_heads", s.kv_heads}};
  run.train = {.steps = 1000000,  // far beyond what is measured
               .context = s.T,
               .batch_size = s.B,
               .learning_rate = kLearningRate,
               .weight_decay = kWeightDecay,
               .device = device.str()};
  return run;
}

nlohmann::json rival_request(const TrainBench& bench, const RunConfig& run, const ModelConfig& model) {
  const TrainShape& s = bench.shape;
  return {{"hidden_size", s.hidden},
          {"num_layers", s.layers},
          {"num_heads", s.heads},
          {"num_kv_heads", s.kv_heads == 0 ? s.heads : s.kv_heads},
          {"intermediate_size", model.intermediate_size()},
          {"vocab_size", s.vocab},
          {"context", s.T},
          {"batch_size", s.B},
          {"threads", bench.threads},
          {"device", bench.device.str()},
          {"learning_rate", run.train.learning_rate},
          {"weight_decay", run.train.weight_decay},
          {"eps", model.options.norm_eps},
          {"rope_base", model.attention.at("rope_base")},
          {"seed", 1}};
}

TextData random_tokens(int64_t vocab, int64_t context) {
  std::mt19937_64 random(1);
  std::vector<int32_t> tokens(static_cast<size_t>(64 * (context + 1)));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  const auto sequence = std::make_shared<MemoryTokens>(std::move(tokens));
  return {.name = "random tokens", .tokenizer = nullptr, .train = sequence, .validation = sequence};
}

}  // namespace

const Fields<TrainShape>& train_shape_options() {
  using T = TrainShape;
  static const Fields<T> table{
      {"hidden", &T::hidden, {1, 65536}, "width of the residual stream"},
      {"layers", &T::layers, {1, 1024}, "number of layers"},
      {"heads", &T::heads, {1, 1024}, "attention heads"},
      {"kv_heads", &T::kv_heads, {0, 1024}, "key and value heads; 0 = heads"},
      {"intermediate", &T::intermediate, {0, 1e6}, "width of the feed-forward; 0 = 8/3 hidden"},
      {"vocab", &T::vocab, {2, 1e6}, "tokens of the vocabulary"},
      {"T", &T::T, {1, 1e6}, "tokens of a row"},
      {"B", &T::B, {1, 1e5}, "rows of a step"},
  };
  return table;
}

TrainTimes measure_training(const TrainBench& bench) {
  const RivalProgram program = find_rival("rival_llama.py", bench.python);
  const int64_t vocab = bench.shape.vocab;
  const TextData data = random_tokens(vocab, bench.shape.T);
  TrainTimes result;
  std::deque<Trainer> trainers;
  for (const Contender& contender : bench.contenders) {
    RunConfig run = run_config(bench.shape, bench.device);
    run.attention_given = contender.attention;
    Model model(run.model_config(vocab), bench.device);
    model->initialize(1);
    trainers.emplace_back(model, data, run.train);
    result.ours.push_back({contender.name, model->num_parameters(), {}});
  }
  result.tokens_per_step = trainers.front().tokens_per_step();

  const RunConfig plain = run_config(bench.shape, bench.device);
  RivalProcess rival(program, rival_request(bench, plain, plain.model_config(vocab)));
  result.rival_torch = rival.facts().value("torch", "unknown");
  result.rival = {"eager PyTorch", rival.facts().value("parameters", int64_t{0}), {}};
  for (const TrainTime& our : result.ours)
    if (our.name == "mha" && our.parameters != result.rival.parameters)
      fail("bench train: our model has ", our.parameters, " parameters and the rival's ", result.rival.parameters,
           ", want the same model");

  std::vector<std::vector<Time>> ours(trainers.size());
  std::vector<Time> theirs;
  Progress progress("bench train", bench.turns.warmups + bench.turns.repeats);
  for (int64_t turn = 0; turn < bench.turns.warmups + bench.turns.repeats; ++turn) {
    progress.update(turn, "");
    const bool counts = turn >= bench.turns.warmups;
    for (size_t i = 0; i < trainers.size(); ++i) {
      const Time mine = timed([&] { trainers[i].step(); });
      if (counts) ours[i].push_back(mine);
    }
    const Time its = rival.step();
    if (counts) theirs.push_back(its);
  }
  progress.finish();
  for (size_t i = 0; i < ours.size(); ++i) result.ours[i].step = median(ours[i]);
  result.rival.step = median(theirs);
  return result;
}

}  // namespace motet
