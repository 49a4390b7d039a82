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
#include "motet/ops/device.h"
#include "motet/report/metrics.h"
#include "motet/train/freeze.h"
#include "motet/train/plan.h"
#include "motet/train/trainer.h"

namespace motet {
namespace {

void print_plan(const RunConfig& run, const TrainingPlan& plan) {
  const auto megabytes = [](int64_t bytes) { return fixed(static_cast<double>(bytes) * 1e-6, 2) + " MB"; };
  std::cout << toml_text(run.resolved()) << "\n# parameters " << plan.cost.parameters << ", weights "
            << megabytes(plan.checkpoint_bytes) << ", with gradients and optimiser " << megabytes(plan.training_bytes)
            << ", a step at least " << megabytes(plan.activation_bytes) << " more\n# FLOPs per token forward "
            << short_count(plan.cost.flops_per_token) << ", training " << short_count(3 * plan.cost.flops_per_token)
            << "\n";
}

// How many checkpoints of the model the run will keep.
int64_t checkpoints_of(const RunConfig& run) {
  const int64_t every = run.train.checkpoint_every;
  return 1 + (every > 0 ? (run.train.budget_steps() - 1) / every : 0);
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
    const int64_t every = run_.train.checkpoint_every;
    TrainEvents events;
    events.step = [&](const StepRecord& r) {
      metrics_.write(metrics_record(r));
      progress_.update(r.step, text("loss ", fixed(r.loss, 3)));
      if (every > 0 && r.step % every == 0 && !trainer_.done()) save(r.step);
    };
    events.evaluated = [&](const EvalRecord& r) {
      metrics_.write(metrics_record(r));
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

Table results_table(const RunConfig& run, const TrainResult& result, const std::filesystem::path& checkpoint,
                    int64_t threads) {
  const EvalRecord& last = result.evals.back();
  const double tokens = static_cast<double>(result.steps.size()) * static_cast<double>(run.train.tokens_per_step());
  return {
      .columns = {{"mechanism", Align::left},
                  {"steps"},
                  {"validation loss", Align::right, "nats/token", "loss"},
                  {"+-", Align::right, "", "standard_error"},
                  {"tokens scored", Align::right, "", "tokens_scored"},
                  {"bits/byte", Align::right, "", "bits_per_byte"},
                  {"tokens/s", Align::right, text(threads, threads == 1 ? " thread" : " threads"), "tokens_per_second"},
                  {"checkpoint", Align::left}},
      .rows = {{run.resolved()["model"]["attention"]["mechanism"].get<std::string>(),
                {std::to_string(result.steps.size()), result.steps.size()},
                {fixed(last.loss, 4), last.loss},
                {fixed(last.error, 4), last.error},
                {std::to_string(last.tokens), last.tokens},
                {fixed(last.bits_per_byte(), 4), last.bits_per_byte()},
                {short_count(tokens / result.seconds), tokens / result.seconds},
                checkpoint.string()}}};
}

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
  if (run.train.context > config.context)
    fail_usage("train.context: ", run.train.context, ", want at most the ", config.context, " of --init");
  start.tokenizer = load_tokenizer(folder, config);
  return start;
}

}  // namespace

int run_train(const nlohmann::json& request) {
  if (request.value("options", false)) {
    std::cout << describe_options(train_defaults());
    return 0;
  }
  const TrainRequest asked = read_request(train_request_options(), request);
  const TableFormat format = output_format(request);
  RunConfig run = read_run_config(request, train_defaults());
  const int64_t threads = request_threads(request);
  Start start;
  if (request.contains("init")) start = start_from(request, run);
  const TextData data = load_text_data(run, start.tokenizer);
  const std::string& prompt = asked.prompt;
  if (!prompt.empty())  // what cannot be continued is refused before the training
    prompt_tokens(*data.tokenizer, prompt, run.train.context);
  const bool dry_run = request.value("dry_run", false);
  const std::vector<std::string> frozen = request.value("freeze", std::vector<std::string>());
  const ModelConfig config = start.model ? start.model->config() : run.model_config(data.tokenizer->vocabulary_size());
  const TrainingPlan plan = training_plan(config, run.train);
  if (dry_run) {
    freeze(*Model(config, at::kMeta), frozen);  // refuses patterns that name nothing
    print_plan(run, plan);
    return 0;
  }
  check_memory(plan, free_memory(parse_device(run.train.device)));
  Model model = start.model;
  if (!model) {
    model = Model(config, parse_device(run.train.device));
    model->initialize(static_cast<uint64_t>(run.train.seed));
  }
  freeze(*model, frozen);
  const Companions companions = run_companions(run, *data.tokenizer, start.checkpoint ? &*start.checkpoint : nullptr);
  const RunFolder folder(request, "train");
  check_disk(folder.path(), plan.checkpoint_bytes * checkpoints_of(run));
  write_file_atomic(folder.path() / "config.toml", toml_text(run.resolved()));
  TrainRun training(run, data, model, companions, folder.path());
  const TrainResult result = training.run();
  print_table(results_table(run, result, training.last_checkpoint(), threads), request);
  if (!prompt.empty() && format == TableFormat::table) {
    training.model().set_autocast(false);  // as generate computes
    const GenerateOptions options{.max_tokens = asked.n_predict,
                                  .stop = {},
                                  .end_tokens = end_tokens(companions, *data.tokenizer),
                                  .sampler = {.seed = 1}};
    std::cout << "\n" << prompt << generate(training.model(), *data.tokenizer, prompt, options)[0].text << std::endl;
  }
  return 0;
}

}  // namespace motet
