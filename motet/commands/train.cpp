#include <iostream>

#include "motet/checkpoints/checkpoint.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/commands/run_companions.h"
#include "motet/commands/sample_text.h"
#include "motet/commands/together.h"
#include "motet/commands/train_report.h"
#include "motet/commands/train_run.h"
#include "motet/core/error.h"
#include "motet/core/file.h"
#include "motet/core/log.h"
#include "motet/core/version.h"
#include "motet/formats/toml.h"
#include "motet/generate/end_tokens.h"
#include "motet/models/lengthen.h"
#include "motet/ops/device.h"
#include "motet/train/freeze.h"
#include "motet/train/objective.h"
#include "motet/train/plan.h"
#include "motet/train/task_data.h"

namespace motet {
namespace {

// "data/a: 1.2M tokens, 0.4 passes": what the first `steps` steps read of each source of a mixture.
std::vector<std::string> mixture_lines(const TextData& data, const TrainOptions& train, int64_t steps) {
  std::vector<std::string> lines;
  if (data.parts.empty()) return lines;
  for (const PartUse& use : use_of_parts(data, train, steps))
    lines.push_back(text(data.parts[lines.size()].name, ": ", short_count(static_cast<double>(use.tokens)), " tokens, ",
                         fixed(use.passes, 2), " passes"));
  return lines;
}

nlohmann::json plan_record(const RunConfig& run, const TextData& data, const TrainingPlan& plan, int64_t processes) {
  nlohmann::json record{{"configuration", run.resolved()},
                        {"parameters", plan.cost.parameters},
                        {"weight_bytes", plan.checkpoint_bytes},
                        {"training_bytes", plan.training_bytes},
                        {"least_step_bytes", plan.activation_bytes},
                        {"flops_per_token", plan.cost.flops_per_token},
                        {"processes", processes},
                        {"exchanged_bytes", plan.exchanged_bytes}};
  if (data.parts.empty() || run.train.minutes > 0) return record;
  const std::vector<PartUse> uses = use_of_parts(data, run.train, run.train.budget_steps());
  for (size_t i = 0; i < uses.size(); ++i)
    record["mixture"].push_back({{"name", data.parts[i].name}, {"tokens", uses[i].tokens}, {"passes", uses[i].passes}});
  return record;
}

void print_plan(const RunConfig& run, const TextData& data, const TrainingPlan& plan, int64_t processes) {
  const auto megabytes = [](int64_t bytes) { return fixed(static_cast<double>(bytes) * 1e-6, 2) + " MB"; };
  std::cout << toml_text(run.resolved()) << "\n# parameters " << plan.cost.parameters << ", weights "
            << megabytes(plan.checkpoint_bytes) << ", with gradients and optimiser " << megabytes(plan.training_bytes)
            << ", a step at least " << megabytes(plan.activation_bytes) << " more\n# FLOPs per token forward "
            << short_count(plan.cost.flops_per_token) << ", training " << short_count(3 * plan.cost.flops_per_token)
            << "\n";
  if (processes > 1)
    std::cout << "# " << processes << " processes of " << run.train.batch_size / processes
              << " examples each, memory as above each; a step sends and receives " << megabytes(plan.exchanged_bytes)
              << " each\n";
  if (run.train.minutes > 0) return;  // nobody knows how many steps
  for (const std::string& line : mixture_lines(data, run.train, run.train.budget_steps()))
    std::cout << "# " << line << "\n";
}

// A row for the weights as they are, and one for their average where there is one.
Table results_table(const RunConfig& run, const TrainResult& result, TrainRun& training, int64_t threads) {
  const EvalRecord& last = result.evals.back();
  const int64_t steps = training.trainer().steps_done();
  const double tokens = static_cast<double>(steps * run.train.tokens_per_step());
  Table table{
      .columns = {{"mechanism", Align::left},
                  {"steps"},
                  {"validation loss", Align::right, "nats/token", "loss"},
                  {"+-", Align::right, "", "standard_error"},
                  {"tokens scored", Align::right, "", "tokens_scored"},
                  {"bits/byte", Align::right, "", "bits_per_byte"},
                  {"tokens/s", Align::right, text(threads, threads == 1 ? " thread" : " threads"), "tokens_per_second"},
                  {"checkpoint", Align::left}}};
  if (last.task || last.masked) table.columns[5] = {"accuracy"};  // of answers, or of hidden tokens, in place of bytes
  if (last.task) {
    table.columns.insert(table.columns.begin() + 6, {"+-", Align::right, "", "accuracy_stderr"});
  }
  const auto number = [](double value) { return Cell{fixed(value, 4), value}; };
  const auto add = [&](const WindowScore& score, const std::optional<TaskScore>& task,
                       const std::filesystem::path& folder) {
    std::vector<Cell> row{run.resolved()["model"]["attention"]["mechanism"].get<std::string>(),
                          {std::to_string(steps), steps},
                          number(score.loss),
                          number(score.error),
                          {std::to_string(score.tokens), score.tokens}};
    if (task)
      row.insert(row.end(), {number(task->all.accuracy()), number(task->all.error())});
    else
      row.push_back(number(score.masked ? score.accuracy() : score.bits_per_byte()));
    row.push_back({short_count(tokens / result.seconds), tokens / result.seconds});
    row.push_back(folder.string());
    table.rows.push_back(row);
  };
  const std::filesystem::path checkpoint = training.last_checkpoint().value();
  add(last, last.task, checkpoint);
  if (last.average) add(*last.average, last.average_task, checkpoint / kAverage);
  return table;
}

// Processes that compute different things would spoil each other's steps.
void check_alike(const Processes& processes, const RunConfig& run, const TextData& data, const ModelImpl& model) {
  if (processes.alone()) return;
  at::NoGradGuard no_grad;
  double sum = 0;
  for (const Tensor& p : model.parameters()) sum += p.to(at::kDouble).abs().sum().item<double>();
  nlohmann::json shared = run.resolved();
  shared["train"]["device"] = parse_device(run.train.device).is_cuda() ? "cuda" : "cpu";  // each has a GPU of its own
  const std::vector<nlohmann::json> all = processes.everyones(
      nlohmann::json{{"version of Motet", kVersion}, {"configuration", shared}, {"data", data.hashes}, {"model", sum}});
  for (size_t r = 0; r < all.size(); ++r)
    for (const auto& [what, own] : all[r].items())
      if (own != all[0][what]) fail("rank ", r, " has another ", what, " than rank 0, want the same in all processes");
}

// What the training starts from: a fresh model, or that of --init with its tokenizer.
struct Start {
  std::optional<Checkpoint> checkpoint;  // of --init
  Model model{nullptr};
  std::shared_ptr<const Tokenizer> tokenizer;
};

// A model that goes on with a task must have been trained on it, in whichever sizes.
void check_task(const std::filesystem::path& folder, const nlohmann::json& task, const ModelConfig& config) {
  const nlohmann::json own = task_of(folder);
  const std::string name = task.at("name");
  if (own.is_null()) fail_usage("--init: ", folder.string(), " is no model of the task ", name);
  if (own["name"] != name)
    fail_usage("--init: ", folder.string(), " is a model of the task ", own["name"].get<std::string>(), ", not ", name);
  const int64_t vocabulary = make_task(task, "data.task")->vocabulary();
  if (vocabulary != config.vocab_size)
    fail_usage("data.task: ", name, " has ", vocabulary, " tokens, want the ", config.vocab_size, " of ",
               folder.string());
}

// The checkpoint's own sizes replace [model]; flags and --set must not say others, but of where tokens stand.
Start start_from(const nlohmann::json& request, RunConfig& run) {
  const std::string attention = "model.attention.";
  nlohmann::json positions = nlohmann::json::object();
  for (const auto& pair : request.value("set", nlohmann::json::array())) {
    const std::string key = pair[0], option = key.starts_with(attention) ? key.substr(attention.size()) : "";
    if (std::ranges::find(position_options(), option) != position_options().end())
      positions[option] = pair[1];
    else if (key.starts_with("model.") || key == "data.tokenizer")
      fail_usage("--init: ", key, " comes from the checkpoint, want it left out");
  }
  const std::filesystem::path folder = model_folder(request, "init");
  Start start{.checkpoint = open_checkpoint(folder)};
  ModelConfig& own = start.checkpoint->config;
  if (!run.task.is_null()) check_task(folder, run.task, own);
  const int64_t before = own.context;
  own = lengthened(own, run.train.context > own.context ? run.train.context : 0, positions);
  start.model = load_model(*start.checkpoint);
  const ModelConfig& config = start.model->config();
  run.model = config.options;
  run.attention_given = config.attention;
  if (run.task.is_null()) start.tokenizer = load_tokenizer(folder, config);
  if (run.train.context > before)
    log_info(text("--init: its context of ", before, " tokens becomes ", run.train.context));
  return start;
}

Start start_at(const ResumePoint& from) {
  Start start{.checkpoint = open_checkpoint(from.checkpoint)};
  const bool wide = from.state.at("run").at("train").at("dtype") == "float64";
  start.model = load_model(*start.checkpoint, {.dtype = wide ? at::kDouble : at::kFloat});
  if (!from.state.at("run").at("data").contains("task"))
    start.tokenizer = load_tokenizer(from.checkpoint, start.model->config());
  return start;
}

// Whether --resume auto finds something to go on with in `out`; if not, the folder is as if nothing had begun there.
bool goes_on(const std::string& out) {
  const std::filesystem::path folder = out;
  if (!std::filesystem::exists(folder)) return false;
  const RunFolder mine(folder);  // who still trains there may be about to store its first checkpoint
  if (!stored_checkpoints(folder).empty()) return true;
  if (std::filesystem::exists(folder / "results.json"))
    fail_usage("--resume auto: ", out, " holds a comparison, want the folder of a training");
  remove_leftovers(folder / "checkpoints");
  std::filesystem::remove(folder / "metrics.jsonl");
  return false;
}

// The run that --resume names; none when there is no --resume, or when `auto` finds nothing to go on with.
std::optional<ResumePoint> resume_point(const nlohmann::json& request, const Processes& processes) {
  const std::string given = request.value("resume", ""), out = request.value("out", "");
  if (given.empty()) return std::nullopt;
  if (given != "auto") {
    for (const char* other : {"out", "init"})
      if (request.contains(other)) fail_usage("--resume and --", other, ": want one of them");
    return open_run(given);
  }
  if (out.empty()) fail_usage("--resume auto: want --out with the run that goes on or begins");
  const nlohmann::json found = processes.everyones(nlohmann::json(processes.first() && goes_on(out)))[0];
  return found.get<bool>() ? std::optional(open_run(out)) : std::nullopt;
}

// The configuration that a run has, where what is said of the mechanism says all of it.
nlohmann::json base_of(nlohmann::json base, const nlohmann::json& request) {
  for (const auto& pair : request.value("set", nlohmann::json::array()))
    if (pair[0] == "model.attention.mechanism") base["model"].erase("attention");
  return base;
}

// A run that goes on has the paths that it was given, which may have been of another working directory.
TextData data_of(const RunConfig& run, const Start& start, bool as_it_was) {
  try {
    return load_run_data(run, start.tokenizer, start.checkpoint ? &*start.checkpoint : nullptr);
  } catch (const Interrupted&) {
    throw;
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    const auto missing = [](const std::string& path) { return !std::filesystem::exists(path); };
    if (!as_it_was || std::ranges::none_of(run.texts, missing)) throw;
    fail(error.what(),
         "; the run names its texts as it was told, want them from the same folder, or named anew behind --resume");
  }
}

// What the trained model makes of a prompt, computing as generate does; "" of none.
std::string continuation(ModelImpl& model, const Tokenizer& tokenizer, const std::string& prompt,
                         const GenerateOptions& options) {
  model.set_autocast({});
  return prompt.empty() ? "" : generate(model, tokenizer, prompt, options)[0].text;
}

// A process that ended behind its last checkpoint has left none of it.
bool has_report(const std::filesystem::path& folder, const std::filesystem::path& checkpoint) {
  std::error_code error;
  const auto made = std::filesystem::last_write_time(folder / "report.html", error);
  return !error && made >= std::filesystem::last_write_time(checkpoint / "state.json");
}

int train(const nlohmann::json& request, const std::shared_ptr<Processes>& processes) {
  const TrainRequest asked = read_request(train_request_options(), request);
  const TableFormat format = output_format(request);
  const std::optional<ResumePoint> from = resume_point(request, *processes);
  RunConfig run = read_run_config(request, from ? base_of(from->config, request) : train_defaults());
  run.train.device = device_of(run.train.device, processes->place());
  const int64_t threads = request_threads(request);
  std::vector<std::string> frozen = request.value("freeze", std::vector<std::string>());
  Start start;
  if (from) {
    if (!request.contains("freeze")) frozen = from->state.at("freeze").get<std::vector<std::string>>();
    check_same_run(*from, run);
    start = start_at(*from);
  } else if (request.contains("init")) {
    start = start_from(request, run);
  }
  const TextData data = data_of(run, start, from && request.value("texts", nlohmann::json::array()).empty());
  if (from) check_same_data(from->state.at("data"), data);
  const std::string& prompt = asked.prompt;
  if (data.task) {
    if (!prompt.empty()) fail_usage("--prompt: a task has no text");
    refuse_flags(request, "a task", {"n_predict"});
    if (run.train.objective == Objective::masked)
      fail_usage("train.objective: masked: of a task the answers are learned, want next");
    if (!start.model) fit_to_task(run.model, *data.task);
    for (const std::string& name : fixed_parameters(*data.task))
      if (std::ranges::find(frozen, name) == frozen.end()) frozen.push_back(name);
  }
  if (from) check_same_frozen(*from, frozen);
  if (!prompt.empty())  // what cannot be continued is refused before the training
    prompt_tokens(*data.tokenizer, prompt, run.train.context);
  const ModelConfig config =
      start.model ? start.model->config()
                  : run.model_config(data.task ? data.vocabulary() : vocabulary_for(*data.tokenizer, run.train));
  const int64_t planned = asked.processes > 0 ? asked.processes : processes->size();
  Model shape(config, at::kMeta);
  check_training(*shape, data, run.train, planned);
  freeze(*shape, frozen);  // refuses patterns that name nothing
  if (!prompt.empty() && !config.causal()) fail_usage("--prompt: a model that is not causal continues no text");
  const TrainingPlan plan = training_plan(config, run.train, planned);
  if (!config.causal()) refuse_flags(request, "a model that is not causal", {"n_predict"});
  if (request.value("dry_run", false)) {
    if (format == TableFormat::csv || format == TableFormat::markdown)
      fail_usage("--dry-run: shows a configuration, want -o table, json or jsonl");
    if (!processes->first()) return 0;
    if (format == TableFormat::table)
      print_plan(run, data, plan, planned);
    else
      std::cout << plan_record(run, data, plan, planned)
                       .dump(format == TableFormat::json ? 2 : -1, ' ', false, nlohmann::json::error_handler_t::replace)
                << "\n";
    return 0;
  }
  const at::Device device = parse_device(run.train.device);
  const std::optional<int64_t> available = free_memory(device);
  processes->everyones(nlohmann::json());  // all have looked before one of them takes its part
  check_memory(plan, available, device.is_cpu() ? processes->place().local_size : 1);
  if (const std::string remark = remark_on_best(run.train); processes->first() && !remark.empty()) log_warn(remark);
  Model model = start.model;
  if (!model) {
    model = Model(config, parse_device(run.train.device));
    model->initialize(static_cast<uint64_t>(run.train.seed));
    if (data.task) fix_embedding(*model, *data.task, run.train.seed);
  }
  freeze(*model, frozen);
  const Companions companions =
      run_companions(run, data.tokenizer.get(), start.checkpoint ? &*start.checkpoint : nullptr);
  check_alike(*processes, run, data, *model);
  std::unique_ptr<RunFolder> own;  // the first process's
  if (processes->first()) {
    own = from ? std::make_unique<RunFolder>(from->run) : std::make_unique<RunFolder>(request, "train");
    check_disk(own->path(), plan.run_checkpoint_bytes * checkpoints_at_once(run.train), {"checkpoints"});
  }
  const std::filesystem::path folder =
      processes->everyones(nlohmann::json(own ? own->path().string() : ""))[0].get<std::string>();
  TrainRun training(run, data, model, companions, frozen, folder, processes);
  if (from) training.go_on(*from);
  const bool done = from && training.trainer().done() && !training.trainer().evaluation_due();
  if (done) {
    log_info(text(from->run.string(), ": has all of its ", training.trainer().steps_done(),
                  " steps; a larger budget goes on"));
    const nlohmann::json reported(!processes->first() || has_report(folder, from->checkpoint));
    if (processes->everyones(reported)[0].get<bool>()) return 0;
  }
  const auto made = [&](const TrainRun::Stopped& stopped) {
    if (done) return training.scored_again();
    RunMachine machine = measured_machine(run.train, threads, processes->size(), plan.cost);
    machine.command = request.value("command", "");
    return training.run(machine, stopped);
  };
  if (!processes->first()) {
    made([](const std::string&) {});
    return 0;
  }
  write_file_atomic(folder / "config.toml", toml_text(run.resolved()));
  const auto write_report = [&](const TrainPresentation& shown) {
    const ReportData report = train_report(folder, run, data, training.trainer().model(), shown);
    write_file_atomic(folder / "report.html", html_report(report));
  };
  TrainPresentation shown{
      .command = request.value("command", ""),
      .prompt = prompt.empty() && config.causal() && data.tokenizer ? first_words(data, run.train.context) : prompt};
  const TrainResult result = made([&](const std::string& why) {
    shown.stopped_by = why;
    write_report(shown);
  });
  shown.done = true;
  for (const std::string& line : mixture_lines(data, run.train, training.trainer().steps_done())) log_info(line);
  std::exception_ptr failure;  // of what is made beside the table, which is shown all the same
  try {
    if (data.tokenizer)
      shown.sample =
          continuation(training.trainer().model(), *data.tokenizer, shown.prompt,
                       {.max_tokens = asked.n_predict,
                        .writer = {.end_tokens = end_tokens(companions, *data.tokenizer), .sampler = {.seed = 1}}});
  } catch (const Interrupted&) {
    failure = std::current_exception();
  }
  try {
    write_report(shown);  // first: who reads stdout may be gone
  } catch (const Error&) {
    failure = std::current_exception();
  }
  print_table(results_table(run, result, training, threads), request);
  if (failure) std::rethrow_exception(failure);
  if (!prompt.empty() && format == TableFormat::table) std::cout << "\n" << prompt << shown.sample << std::endl;
  log_info(text("report: ", (folder / "report.html").string()));
  return 0;
}

// The options of this process, before it knows whether the others see the same.
TrainOptions own_options(const nlohmann::json& request) {
  const std::string given = request.value("resume", ""), run = given == "auto" ? request.value("out", "") : given;
  if (run.empty() || stored_checkpoints(run).empty()) return read_run_config(request, train_defaults()).train;
  const nlohmann::json stored = without_idle_keys(read_toml((std::filesystem::path(run) / "config.toml").string()));
  return read_run_config(request, base_of(stored, request)).train;
}

// Waits for the others, if what launched this process says that there are some.
std::shared_ptr<Processes> processes_of(const nlohmann::json& request) {
  const Place place = this_place();
  if (place.size == 1) return std::make_shared<Processes>();
  const TrainOptions train = read_by_each(place, [&] { return own_options(request); });
  return std::make_shared<Processes>(place, parse_device(device_of(train.device, place)),
                                     Patience{.start = train.start_timeout, .silence = train.timeout});
}

}  // namespace

int run_train(const nlohmann::json& request) {
  if (request.value("options", false)) {
    if (output_format(request) != TableFormat::table) fail_usage("--options: prints TOML, want it without --output");
    std::cout << describe_options(train_defaults());
    return 0;
  }
  const std::shared_ptr<Processes> processes = processes_of(request);
  return together(*processes, [&] { return train(request, processes); });
}

}  // namespace motet
