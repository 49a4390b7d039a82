#include "motet/bench/train_bench.h"

#include <random>

#include "motet/bench/rival.h"
#include "motet/core/error.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

// The rival's defaults of betas, epsilon and clipping are those of train_options; these two are told to both.
constexpr double kLearningRate = 1e-3, kWeightDecay = 0.1;

RunConfig run_config(const nlohmann::json& shape) {
  const std::pair<const char*, const char*> keys[] = {{"model.hidden_size", "hidden"},
                                                      {"model.num_layers", "layers"},
                                                      {"model.intermediate_size", "intermediate"},
                                                      {"model.attention.num_heads", "heads"},
                                                      {"model.attention.num_kv_heads", "kv_heads"},
                                                      {"train.context", "T"},
                                                      {"train.batch_size", "B"}};
  nlohmann::json set = nlohmann::json::array();
  for (const auto& [key, size] : keys) set.push_back({key, shape.at(size)});
  set.push_back({"train.steps", 1000000});  // far beyond what is measured
  set.push_back({"train.learning_rate", kLearningRate});
  set.push_back({"train.weight_decay", kWeightDecay});
  return read_run_config({{"set", set}});
}

nlohmann::json rival_request(const TrainBench& bench, const RunConfig& run, const ModelConfig& model) {
  const auto size = [&](const char* key) { return bench.shape.at(key); };
  return {{"hidden_size", size("hidden")},
          {"num_layers", size("layers")},
          {"num_heads", size("heads")},
          {"num_kv_heads", size("kv_heads") == 0 ? size("heads") : size("kv_heads")},
          {"intermediate_size", model.intermediate_size()},
          {"vocab_size", size("vocab")},
          {"context", size("T")},
          {"batch_size", size("B")},
          {"threads", bench.threads},
          {"learning_rate", run.train.at("learning_rate")},
          {"weight_decay", run.train.at("weight_decay")},
          {"eps", model.options.at("norm_eps")},
          {"rope_base", model.attention.at("rope_base")},
          {"seed", 1}};
}

TextData random_tokens(int64_t vocab, int64_t context) {
  std::mt19937_64 random(1);
  TextData data{.name = "random tokens"};
  data.train.resize(static_cast<size_t>(64 * (context + 1)));
  for (int32_t& token : data.train) token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  data.validation = data.train;
  return data;
}

}  // namespace

const OptionTable& train_shape_options() {
  using enum OptionType;
  static const OptionTable table{
      {"hidden", integer, 384, 1, 65536, {}, "width of the residual stream"},
      {"layers", integer, 5, 1, 1024, {}, "number of layers"},
      {"heads", integer, 6, 1, 1024, {}, "attention heads"},
      {"kv_heads", integer, 0, 0, 1024, {}, "key and value heads; 0 = heads"},
      {"intermediate", integer, 0, 0, 1e6, {}, "width of the feed-forward; 0 = 8/3 hidden"},
      {"vocab", integer, 2048, 2, 1e6, {}, "tokens of the vocabulary"},
      {"T", integer, 512, 1, 1e6, {}, "tokens of a row"},
      {"B", integer, 4, 1, 1e5, {}, "rows of a step"},
  };
  return table;
}

TrainTimes measure_training(const TrainBench& bench) {
  const RivalProgram program = find_rival("rival_llama.py", bench.python);
  const RunConfig run = run_config(bench.shape);
  const int64_t vocab = bench.shape.at("vocab").get<int64_t>(), context = bench.shape.at("T").get<int64_t>();
  Model model(run.model_config(vocab));
  model->initialize(1);
  const TextData data = random_tokens(vocab, context);
  Trainer trainer(model, data, run.train);
  RivalProcess rival(program, rival_request(bench, run, model->config()));

  TrainTimes result{.parameters = model->num_parameters(), .tokens_per_step = trainer.tokens_per_step()};
  result.rival_torch = rival.facts().value("torch", "unknown");
  if (const int64_t theirs = rival.facts().value("parameters", int64_t{0}); theirs != result.parameters)
    fail("bench train: our model has ", result.parameters, " parameters and the rival's ", theirs,
         ", want the same model");

  std::vector<Time> ours, theirs;
  for (int64_t turn = 0; turn < bench.turns.warmups + bench.turns.repeats; ++turn) {
    const Time mine = timed([&] { trainer.step(); }), its = rival.step();
    if (turn < bench.turns.warmups) continue;
    ours.push_back(mine);
    theirs.push_back(its);
  }
  result.ours = median(ours);
  result.rival = median(theirs);
  return result;
}

}  // namespace motet
