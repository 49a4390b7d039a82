#include "motet/bench/train_bench.h"

#include <deque>
#include <functional>
#include <memory>
#include <random>

#include "motet/bench/rival.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/progress.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

// The rival's defaults of betas, epsilon and clipping are those of train_options; these two are told to both.
constexpr double kLearningRate = 1e-3, kWeightDecay = 0.1;

nlohmann::json rival_request(const TrainBench& bench, const TrainRival& rival) {
  const TrainShape& s = bench.shape;
  const RunConfig run = bench_run(bench);
  const ModelConfig model = run.model_config(s.vocab);
  nlohmann::json request{{"hidden_size", s.hidden},
                         {"num_layers", s.layers},
                         {"num_heads", s.heads},
                         {"num_kv_heads", s.kv_heads == 0 ? s.heads : s.kv_heads},
                         {"intermediate_size", model.intermediate_size()},
                         {"vocab_size", s.vocab},
                         {"context", s.T},
                         {"batch_size", s.B},
                         {"threads", bench.threads},
                         {"device", bench.device.str()},
                         {"dtype", word_of(train_dtypes(), bench.dtype)},
                         {"tie_embeddings", s.tied},
                         {"learning_rate", run.train.learning_rate},
                         {"weight_decay", run.train.weight_decay},
                         {"eps", model.options.norm_eps},
                         {"rope_base", model.attention.at("rope_base")},
                         {"seed", 1}};
  request.update(rival.request);
  return request;
}

// The rival's process; what it says of its model goes into `time`.
std::unique_ptr<RivalProcess> started(const TrainBench& bench, const TrainRival& asked, TrainTimes& times,
                                      TrainTime& time) {
  const nlohmann::json request = rival_request(bench, asked);
  auto process = std::make_unique<RivalProcess>(find_rival("rival_llama.py", bench.python), request);
  times.rival_torch = process->facts().value("torch", "unknown");
  time.parameters = process->facts().value("parameters", int64_t{0});
  time.tokens = request["context"].get<int64_t>() * request["batch_size"].get<int64_t>();
  for (const TrainTime& our : times.ours)
    if (our.name == asked.same_as && our.parameters != time.parameters)
      fail("bench train: our model ", our.name, " has ", our.parameters, " parameters and the rival's ",
           time.parameters, ", want the same model");
  return process;
}

// An error of a rival ends the benchmark, or is why it has no time.
void attempt(const TrainBench& bench, TrainTime& rival, const std::function<void()>& call) {
  try {
    call();
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& error) {
    if (!bench.without_missing) throw;
    rival.why_not = error.what();
  }
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
      {"tied", &T::tied, "the output matrix is that of the embedding"},
  };
  return table;
}

RunConfig bench_run(const TrainBench& bench) {
  const TrainShape& s = bench.shape;
  RunConfig run;
  run.model = {
      .hidden_size = s.hidden, .num_layers = s.layers, .intermediate_size = s.intermediate, .tie_embeddings = s.tied};
  run.attention_given = {{"num_heads", s.heads}, {"num_kv_heads", s.kv_heads}};
  run.train = {.steps = 1000000,  // far beyond what is measured
               .context = s.T,
               .batch_size = s.B,
               .learning_rate = kLearningRate,
               .weight_decay = kWeightDecay,
               .dtype = bench.dtype,
               .device = bench.device.str()};
  return run;
}

TextData random_tokens(int64_t vocab, int64_t context) {
  std::mt19937_64 random(1);
  std::vector<int32_t> tokens(static_cast<size_t>(64 * (context + 1)));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  const auto sequence = std::make_shared<MemoryTokens>(std::move(tokens));
  return {.name = "random tokens", .tokenizer = nullptr, .train = sequence, .validation = sequence};
}

TrainTimes measure_training(const TrainBench& bench) {
  const int64_t vocab = bench.shape.vocab;
  const TextData data = random_tokens(vocab, bench.shape.T);
  TrainTimes result;
  std::deque<Trainer> trainers;
  for (const Contender& contender : bench.contenders) {
    RunConfig run = bench_run(bench);
    run.attention_given = contender.attention;
    run.train.recompute = contender.recompute;
    Model model(run.model_config(vocab), bench.device);
    model->initialize(1);
    trainers.emplace_back(model, data, run.train);
    result.ours.push_back({contender.name, model->num_parameters(), trainers.back().tokens_per_step()});
  }
  std::vector<std::unique_ptr<RivalProcess>> rivals(bench.rivals.size());
  for (size_t i = 0; i < rivals.size(); ++i) {
    const TrainRival& asked = bench.rivals[i];
    result.rivals.push_back({asked.name});
    attempt(bench, result.rivals[i], [&] { rivals[i] = started(bench, asked, result, result.rivals[i]); });
  }

  std::vector<std::vector<Time>> ours(trainers.size()), theirs(rivals.size());
  std::vector<std::vector<double>> data_parts(trainers.size());
  Progress progress("bench train", bench.turns.warmups + bench.turns.repeats);
  for (int64_t turn = 0; turn < bench.turns.warmups + bench.turns.repeats; ++turn) {
    progress.update(turn, "");
    const bool counts = turn >= bench.turns.warmups;
    for (size_t place = 0; place < trainers.size(); ++place) {
      const size_t i = turn % 2 == 0 ? place : trainers.size() - 1 - place;  // none is always behind the same one
      StepRecord record;
      const Time mine = timed([&] { record = trainers[i].step(); }, bench.device);
      if (!counts) continue;
      ours[i].push_back(mine);
      data_parts[i].push_back(record.data_seconds / record.seconds);
    }
    for (size_t i = 0; i < rivals.size(); ++i) {
      if (!result.rivals[i].why_not.empty()) continue;
      attempt(bench, result.rivals[i], [&] {
        const Time its = rivals[i]->step();
        if (counts) theirs[i].push_back(its);
      });
    }
  }
  progress.finish();
  for (size_t i = 0; i < ours.size(); ++i) {
    result.ours[i].step = median(ours[i]);
    std::ranges::nth_element(data_parts[i],
                             data_parts[i].begin() + static_cast<std::ptrdiff_t>(data_parts[i].size() / 2));
    result.ours[i].data = data_parts[i][data_parts[i].size() / 2];
  }
  for (size_t i = 0; i < theirs.size(); ++i)
    if (result.rivals[i].why_not.empty()) result.rivals[i].step = median(theirs[i]);
  return result;
}

}  // namespace motet
