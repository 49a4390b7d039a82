#include "motet/commands/request.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <iostream>

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/error.h"
#include "motet/core/process.h"
#include "motet/formats/json.h"
#include "motet/generate/end_tokens.h"
#include "motet/ops/device.h"
#include "motet/text/readers/load.h"
#include "motet/train/run_checkpoints.h"
#include "motet/train/run_config.h"

namespace motet {

namespace fs = std::filesystem;

// "--logit-bits" of logit_bits.
static std::string flag_of(std::string field) {
  std::ranges::replace(field, '_', '-');
  return "--" + field;
}

void refuse_flags(const nlohmann::json& request, const std::string& what, std::initializer_list<const char*> fields) {
  for (const char* field : fields)
    if (request.contains(field)) fail_usage(flag_of(field), ": has no meaning for ", what);
}

nlohmann::json request_values(const OptionTable& table, const nlohmann::json& request) {
  nlohmann::json values;
  for (const Option& option : table) {
    values[option.name] = request.contains(option.name) ? checked(option, request[option.name], flag_of(option.name))
                                                        : option.default_value;
  }
  return values;
}

int64_t request_threads(const nlohmann::json& request) {
  const int64_t threads = request.contains("threads") ? request["threads"].get<int64_t>() : processor_count();
  at::set_num_threads(static_cast<int>(threads));
  return threads;
}

TableFormat output_format(const nlohmann::json& request) { return table_format(request.value("output", "table")); }

void print_table(const Table& table, const nlohmann::json& request) {
  std::cout << render(table, output_format(request), request.value("color", false)) << std::flush;
}

void show(std::string_view text) {
  if (!(std::cout << text << std::flush)) fail("cannot write the results to standard output");
}

namespace {

[[noreturn]] void cannot_write(const fs::path& path, int error) {
  fail("cannot write ", quote(path.string()), ": ", std::generic_category().message(error));
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) cannot_write(folder, error.value());
}

// runs/<kind>-<time>; of several runs that begin in one second each makes a folder of its own.
fs::path new_folder(const std::string& kind) {
  char time[32];
  const std::time_t now = std::time(nullptr);
  std::tm local;
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", ::localtime_r(&now, &local));
  const fs::path first = fs::path("runs") / (kind + "-" + time);
  make_folders(first.parent_path());
  fs::path folder = first;
  for (int number = 2; ::mkdir(folder.c_str(), 0777) != 0; ++number) {
    if (errno != EEXIST) cannot_write(folder, errno);
    folder = first.string() + text("-", number);
  }
  return folder;
}

}  // namespace

RunFolder::RunFolder(const nlohmann::json& request, const std::string& kind) : path_(request.value("out", "")) {
  if (path_.empty() && request.contains("out")) fail_usage("--out is empty, want a folder");
  if (path_.empty()) {
    path_ = new_folder(kind);
  } else {
    make_folders(path_);
  }
  const int claim = ::open((path_ / "metrics.jsonl").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (claim < 0 && errno == EEXIST) fail_usage("--out: ", path_.string(), " already holds a run, want a new folder");
  if (claim < 0) cannot_write(path_, errno);
  ::close(claim);
  lock();
}

RunFolder::RunFolder(fs::path path) : path_(std::move(path)) { lock(); }

RunFolder::~RunFolder() {
  std::error_code ignored;
  if (fs::file_size(path_ / "metrics.jsonl", ignored) == 0) fs::remove(path_ / "metrics.jsonl", ignored);
}

namespace {

// The models of a comparison, as they would be named.
std::vector<std::string> models_of(const fs::path& folder) {
  std::vector<std::string> models;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder / "models", none))
    if (fs::exists(entry.path() / "config.json")) models.push_back(entry.path().string());
  std::sort(models.begin(), models.end());
  return models;
}

}  // namespace

fs::path model_folder(const nlohmann::json& request, const char* field) {
  const std::string given = request.value(field, "");
  if (given.empty()) fail_usage("--model is missing, want a model folder");
  std::string run = given;
  const auto ends = [&](const std::string& suffix) {
    const bool has = run.size() > suffix.size() && run.ends_with(suffix) && !fs::exists(run);
    if (has) run.resize(run.size() - suffix.size());
    return has;
  };
  const bool averaged = ends(":average"), best = ends(":best");
  if (best && !fs::is_directory(run)) fail(given, ": there is no folder ", quote(run), ", want that of a run");
  if (best) {
    if (const auto found = best_checkpoint(run, averaged ? Weights::averaged : Weights::own))
      return averaged ? found->folder / kAverage : found->folder;
    fail(given, ": no checkpoint of ", quote(run), " has a validation loss",
         averaged ? " of averaged weights, which earlier versions did not write down, want :average or :best"
                  : ", want the folder of a run that has");
  }
  if (averaged) {
    const fs::path of = model_folder({{field, run}}, field);
    if (fs::exists(of / kAverage / "config.json")) return of / kAverage;
    fail(given, ": there are no averaged weights in ", quote(of.string()), ", want a run with train.average");
  }
  const fs::path folder = given;
  if (const size_t colon = given.rfind(':'); !fs::exists(folder) && colon != std::string::npos && colon > 0)
    if (const std::string run = given.substr(0, colon); fs::exists(fs::path(run) / "metrics.jsonl"))
      fail(given, ": ", quote(given.substr(colon)), " stands behind a run, want :best, :average or :best:average");
  if (fs::exists(folder / "config.json") || !fs::is_directory(folder)) return folder;
  if (const auto all = stored_checkpoints(folder); !all.empty()) return all.back().folder;
  constexpr size_t kMostShown = 20;
  std::vector<std::string> models = models_of(folder);
  const size_t count = models.size();
  if (count > kMostShown) models.resize(kMostShown);
  if (count > 0)
    fail(given, ": a comparison, want one of its models: ", joined(models),
         count > kMostShown ? text(" and ", count - kMostShown, " more") : "");
  if (fs::exists(folder / "metrics.jsonl"))
    fail(given, ": a run that has no checkpoint yet, want a finished run or a model folder");
  return folder;
}

nlohmann::json task_of(const fs::path& folder) {
  const std::string path = (folder / kTaskFile).string();
  if (!fs::exists(path)) return nullptr;
  const nlohmann::json task = read_json(path);
  if (!task.is_object() || !task.contains("name") || !task["name"].is_string())
    fail(path, ": is damaged, want the name and the options of a task");
  return task;
}

LoadedModel load_for_inference(const fs::path& folder, const SamplingRequest& sampling) {
  const Checkpoint checkpoint = open_checkpoint(folder);
  const at::Device device = parse_device(sampling.device);
  const WeightType weights = sampling.weights.value_or(usual_weights(checkpoint, device));
  LoadedModel made{.model = load_model(checkpoint, {.device = device, .weights = weights}),
                   .tokenizer = nullptr,
                   .companions = companions_of(checkpoint),
                   .weights = weights};
  made.model->set_autocast({});  // decoding computes in float32
  made.model->set_precision(sampling.precision, "--precision");
  made.model->prepare(weights);
  if (sampling.compact_cache && cache_bytes(*made.model, 1, {.compact = true}) >= cache_bytes(*made.model, 1, {}))
    fail_usage("--compact-cache: keys of ", checkpoint.config.attention["mechanism"].get<std::string>(),
               " have no smaller form, want it left out");
  made.tokenizer = load_tokenizer(folder, checkpoint.config);
  return made;
}

Model load_for_scoring(const Checkpoint& checkpoint, const EvalRequest& asked, at::Device device) {
  const TrainDtype otherwise = value_of(train_dtypes(), trained_dtype(checkpoint), "dtype");
  const bool in_float32 = asked.dtype.value_or(otherwise) == TrainDtype::float32 || checkpoint.in_8_bits;
  const WeightType weights =
      asked.weights.value_or(in_float32 ? usual_weights(checkpoint, device) : WeightType::float32);
  const bool narrow = weights != WeightType::float32;
  if (narrow && asked.dtype.value_or(TrainDtype::float32) != TrainDtype::float32)
    fail_usage("--dtype: ", word_of(train_dtypes(), *asked.dtype), " of weights in ", name(weights),
               ", want float32 or --weights float32");
  const TrainDtype dtype = narrow ? TrainDtype::float32 : asked.dtype.value_or(otherwise);
  Model model = load_model(
      checkpoint,
      {.dtype = dtype == TrainDtype::float64 ? at::kDouble : at::kFloat, .device = device, .weights = weights});
  model->set_autocast(autocast_of(dtype));
  model->set_precision(asked.precision, "--precision");
  if (narrow) model->keep_matrices(weights);
  return model;
}

namespace {

// A model of llama2.c is a file without its tokenizer.
fs::path tokenizer_of(const fs::path& model) {
  if (model.extension() != ".bin") return model;
  const fs::path beside = model.parent_path() / "tokenizer.bin";
  if (!fs::exists(beside))
    fail(model.string(), ": a model of llama2.c holds no tokenizer, want its tokenizer.bin there");
  return beside;
}

std::vector<std::string> stops_of(const nlohmann::json& request) {
  const auto stops = request.value("stop", std::vector<std::string>());
  if (std::ranges::find(stops, "") != stops.end()) fail_usage("--stop: an empty text, want one that can appear");
  return stops;
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& folder, const ModelConfig& config) {
  if (const nlohmann::json task = task_of(folder); !task.is_null()) {
    const std::string name = task["name"];
    fail(folder.string(), ": a model of the task ", name, " has no text, want motet eval ", name);
  }
  auto tokenizer = load_tokenizer(tokenizer_of(folder).string());
  if (tokenizer->vocabulary_size() > config.vocab_size)  // published models round their vocabulary up
    fail(folder.string(), ": the tokenizer has ", tokenizer->vocabulary_size(), " tokens, want at most the ",
         config.vocab_size, " of vocab_size in config.json");
  return_freed_memory();  // what reading the model and the tokenizer took
  return tokenizer;
}

GenerateOptions generate_options(const nlohmann::json& request, const SamplingRequest& s, const LoadedModel& model) {
  const bool ends = !request.value("ignore_eos", false);
  return {
      .max_tokens = s.n_predict,
      .writer = {.stop = stops_of(request),
                 .end_tokens = ends ? end_tokens(model.companions, *model.tokenizer) : std::vector<int32_t>(),
                 .sampler = {.temperature = s.temp,
                             .top_k = s.top_k,
                             .top_p = s.top_p,
                             .min_p = s.min_p,
                             .typical_p = s.typical_p,
                             .repeat_penalty = s.repeat_penalty,
                             .frequency_penalty = s.frequency_penalty,
                             .presence_penalty = s.presence_penalty,
                             .seed = static_cast<uint64_t>(s.seed)}},
      .cache = {
          .type = s.cache_type, .stepwise_base = s.stepwise_base, .compact = s.compact_cache, .recorded = !s.eager}};
}

}  // namespace motet
