#include <cmath>
#include <iostream>

#include "motet/checkpoints/checkpoint.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/commands/run_companions.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/log.h"
#include "motet/core/progress.h"
#include "motet/formats/toml.h"
#include "motet/generate/end_tokens.h"
#include "motet/models/cost.h"
#include "motet/report/metrics.h"
#include "motet/train/freeze.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

const nlohmann::json kDefaults = {{"train", {{"steps", 500}}}};

const OptionTable& request_options() {
  static const OptionTable table{
      {"prompt", OptionType::string, "", {}, {}, {}, "what the model continues at the end"},
      {"n_predict", OptionType::integer, 200, 1, 1e9, {}, "tokens of the continuation"},
  };
  return table;
}

void print_plan(const RunConfig& run, ModelImpl& model) {
  const ModelCost cost = model_cost(model);
  std::cout << toml_text(run.resolved()) << "\n# parameters " << cost.parameters << ", weights "
            << fixed(static_cast<double>(cost.parameters) * 4e-6, 2) << " MB, with gradients and optimiser "
            << fixed(static_cast<double>(cost.parameters) * 16e-6, 2) << " MB\n# FLOPs per token forward "
            << short_count(cost.flops_per_token) << ", training " << short_count(3 * cost.flops_per_token) << "\n";
}

class TrainRun {
 public:
  TrainRun(const RunConfig& run, const TextData& data, Model model, Companions companions, std::filesystem::path folder)
      : run_(run),
        companions_(std::move(companions)),
        folder_(std::move(folder)),
        metrics_(folder_ / "metrics.jsonl"),
        trainer_(std::move(model), data, run.train),
        progress_("training", trainer_.planned_steps() > 1 ? trainer_.planned_steps() : 0) {}

  TrainResult run() {
    const int64_t every = run_.train.at("checkpoint_every").get<int64_t>();
    TrainEvents events;
    events.step = [&](const StepRecord& r) {
      metrics_.write({{"step", r.step},
                      {"loss", r.loss},
                      {"learning_rate", r.learning_rate},
                      {"gradient_norm", r.gradient_norm},
                      {"seconds", r.seconds}});
      progress_.update(r.step, text("loss ", fixed(r.loss, 3)));
      if (every > 0 && r.step % every == 0 && !trainer_.done()) save(r.step);
    };
    events.evaluated = [&](const EvalRecord& r) {
      metrics_.write({{"step", r.step}, {"validation_loss", r.loss}});
      log_info(text("step ", r.step, "  validation loss ", fixed(r.loss, 4)));
    };
    TrainResult result = train_model(trainer_, events);
    progress_.finish();
    save(trainer_.steps_done());
    return result;
  }

  ModelImpl& model() { return trainer_.model(); }
  std::filesystem::path last_checkpoint() const { return last_; }

 private:
  void save(int64_t step) {
    char name[32];
    std::snprintf(name, sizeof name, "step_%08lld", static_cast<long long>(step));
    last_ = folder_ / "checkpoints" / name;
    save_model_folder(last_, trainer_.model(), companions_.files, companions_.token_ids);
  }

  const RunConfig& run_;
  Companions companions_;
  std::filesystem::path folder_, last_;
  MetricsWriter metrics_;
  Trainer trainer_;
  Progress progress_;
};

// What the training starts from: a fresh model, or that of --init with its tokenizer.
struct Start {
  std::optional<Checkpoint> checkpoint;  // of --init
  Model model{nullptr};
  std::shared_ptr<const Tokenizer> tokenizer;
};

// The checkpoint's own sizes replace [model]; flags and --set must not say others.
Start start_from(const nlohmann::json& request, RunConfig& run) {
  for (const auto& pair : request.value("set", nlohmann::json::array()))
    if (const std::string key = pair[0]; key.starts_with("model.") || key == "data.tokenizer")
      fail_usage("--init: ", key, " comes from the checkpoint, want it left out");
  const std::filesystem::path folder = model_folder(request, "init");
  Start start{.checkpoint = open_checkpoint(folder)};
  start.model = load_model(*start.checkpoint);
  const ModelConfig& config = start.model->config();
  run.model = config.options;
  run.attention_given = config.attention;
  if (run.train["context"].get<int64_t>() > config.context)
    fail_usage("train.context: ", run.train["context"].dump(), ", want at most the ", config.context, " of --init");
  start.tokenizer = load_tokenizer(folder, config);
  return start;
}

}  // namespace

int run_train(const nlohmann::json& request) {
  if (request.value("options", false)) {
    std::cout << describe_options();
    return 0;
  }
  const nlohmann::json values = request_values(request_options(), request);
  const TableFormat format = output_format(request);
  RunConfig run = read_run_config(request, kDefaults);
  request_threads(request);
  Start start;
  if (request.contains("init")) start = start_from(request, run);
  const TextData data = load_text_data(run, start.tokenizer);
  const std::string prompt = values["prompt"];  // what cannot be continued is refused before the training
  if (!prompt.empty()) prompt_tokens(*data.tokenizer, prompt, run.train["context"].get<int64_t>());
  Model model = start.model;
  if (!model) {
    model = Model(run.model_config(data.tokenizer->vocabulary_size()));
    model->initialize(run.train["seed"].get<uint64_t>());
  }
  freeze(*model, request.value("freeze", std::vector<std::string>()));
  if (request.value("dry_run", false)) {
    print_plan(run, *model);
    return 0;
  }
  const Companions companions = run_companions(run, *data.tokenizer, start.checkpoint ? &*start.checkpoint : nullptr);
  const RunFolder folder(request, "train");
  write_file_atomic(folder.path() / "config.toml", toml_text(run.resolved()));
  TrainRun training(run, data, model, companions, folder.path());
  const TrainResult result = training.run();
  const double loss = result.evals.back().loss;
  const double bits = loss / std::log(2.0) / data.bytes_per_token;
  const double tokens = static_cast<double>(result.steps.size()) * run.train["batch_size"].get<double>() *
                        run.train["context"].get<double>();
  const Table table{.columns = {{"mechanism", Align::left},
                                {"steps"},
                                {"validation loss", Align::right, "nats/token", "loss"},
                                {"bits/byte", Align::right, "", "bits_per_byte"},
                                {"tokens/s", Align::right, "", "tokens_per_second"},
                                {"checkpoint", Align::left}},
                    .rows = {{run.resolved()["model"]["attention"]["mechanism"].get<std::string>(),
                              {std::to_string(result.steps.size()), result.steps.size()},
                              {fixed(loss, 4), loss},
                              {fixed(bits, 4), bits},
                              {short_count(tokens / result.seconds), tokens / result.seconds},
                              training.last_checkpoint().string()}}};
  print_table(table, request);
  if (!prompt.empty() && format == TableFormat::table) {
    const GenerateOptions options{.max_tokens = values["n_predict"].get<int64_t>(),
                                  .stop = {},
                                  .end_tokens = end_tokens(companions, *data.tokenizer),
                                  .sampler = {.seed = 1}};
    std::cout << "\n" << prompt << generate(training.model(), *data.tokenizer, prompt, options)[0].text << std::endl;
  }
  return 0;
}

}  // namespace motet
