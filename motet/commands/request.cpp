#include "motet/commands/request.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <iostream>

#include "motet/checkpoints/checkpoint.h"
#include "motet/core/error.h"
#include "motet/core/process.h"
#include "motet/formats/json.h"
#include "motet/generate/end_tokens.h"
#include "motet/ops/device.h"
#include "motet/text/readers/load.h"

namespace motet {

namespace fs = std::filesystem;

nlohmann::json request_values(const OptionTable& table, const nlohmann::json& request) {
  nlohmann::json values;
  for (const Option& option : table) {
    std::string flag = "--" + option.name;
    for (char& c : flag)
      if (c == '_') c = '-';
    values[option.name] =
        request.contains(option.name) ? checked(option, request[option.name], flag) : option.default_value;
  }
  return values;
}

Option device_option() {
  return {"device", OptionType::string, "auto", {}, {}, {}, "cpu, cuda or cuda:N; auto: a GPU if there is one"};
}

at::Device request_device(const nlohmann::json& values) { return parse_device(values.at("device").get<std::string>()); }

void check_weights(WeightType weights, at::Device device) {
  if (device.is_cpu() || weights == WeightType::float32) return;
  fail_usage("--weights: ", weight_type_names()[static_cast<size_t>(weights)], " on ", device.str(),
             ", want float32 or --device cpu");
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
  if (path_.empty()) {
    path_ = new_folder(kind);
  } else {
    make_folders(path_);
  }
  const int claim = ::open((path_ / "metrics.jsonl").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (claim < 0 && errno == EEXIST) fail_usage("--out: ", path_.string(), " already holds a run, want a new folder");
  if (claim < 0) cannot_write(path_, errno);
  ::close(claim);
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  if (fs::file_size(path_ / "metrics.jsonl", ignored) == 0) fs::remove(path_ / "metrics.jsonl", ignored);
}

namespace {

// The N of step_N; -1 for another name.
int64_t step_of(const fs::path& checkpoint) {
  const std::string name = checkpoint.filename().string(), prefix = "step_";
  int64_t step = -1;
  if (!name.starts_with(prefix)) return -1;
  const auto end = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  return end.ec == std::errc() && end.ptr == name.data() + name.size() ? step : -1;
}

fs::path last_checkpoint(const fs::path& run) {
  fs::path last;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", none))
    if (step_of(entry.path()) > step_of(last)) last = entry.path();
  return last;
}

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
  const fs::path folder = given;
  if (fs::exists(folder / "config.json") || !fs::is_directory(folder)) return folder;
  if (const fs::path last = last_checkpoint(folder); !last.empty()) return last;
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

LoadedModel load_for_inference(const fs::path& folder, const nlohmann::json& values) {
  const Checkpoint checkpoint = open_checkpoint(folder);
  const at::Device device = request_device(values);
  const WeightType weights = parse_weight_type(values.at("weights").get<std::string>());
  check_weights(weights, device);
  LoadedModel made{.model = load_model(checkpoint, {.device = device}),
                   .tokenizer = nullptr,
                   .companions = companions_of(checkpoint)};
  made.model->set_autocast(false);  // decoding computes in float32
  if (device.is_cpu()) made.model->prepare(weights);
  made.tokenizer = load_tokenizer(folder, checkpoint.config);
  return made;
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& folder, const ModelConfig& config) {
  auto tokenizer = load_tokenizer(folder.string());
  if (tokenizer->vocabulary_size() > config.vocab_size)  // published models round their vocabulary up
    fail(folder.string(), ": the tokenizer has ", tokenizer->vocabulary_size(), " tokens, want at most the ",
         config.vocab_size, " of vocab_size in config.json");
  return_freed_memory();  // what reading the model and the tokenizer took
  return tokenizer;
}

const OptionTable& sampling_options() {
  using enum OptionType;
  static const OptionTable table{
      {"n_predict", integer, 200, 1, 1e9, {}, "tokens at most"},
      {"temp", number, 0.8, 0, 100, {}, "temperature; 0 takes the likeliest token"},
      {"top_k", integer, 40, 0, 1e9, {}, "only the N likeliest tokens; 0: all"},
      {"top_p", number, 0.95, 0, 1, {}, "only the likeliest tokens that sum to X"},
      {"min_p", number, 0, 0, 1, {}, "only tokens at least X times as likely as the likeliest"},
      {"typical_p", number, 1.0, 0.001, 1, {}, "only the most typical tokens that sum to X; 1: all"},
      {"repeat_penalty", number, 1.0, 0.01, 100, {}, "divides the logits of tokens of prompt and text; 1: off"},
      {"frequency_penalty", number, 0, -100, 100, {}, "taken from a logit for each time that its token was drawn"},
      {"presence_penalty", number, 0, -100, 100, {}, "taken from the logits of tokens drawn before"},
      {"cache_type", string, "model", {}, {}, cache_type_names(), "how keys and values are kept"},
      {"weights", string, "float32", {}, {}, weight_type_names(), "how the model's matrices are kept"},
      device_option(),
      {"compact_cache", boolean, false, {}, {}, {}, "keys in the mechanism's smaller form"},
      {"stepwise_base", boolean, false, {}, {}, {}, "dynamic position scaling by the length reached, as published"},
      {"seed", integer, 0, 0, 1e15, {}, "of the random choice"},
  };
  return table;
}

GenerateOptions generate_options(const nlohmann::json& request, const nlohmann::json& v, const LoadedModel& model) {
  const bool ends = !request.value("ignore_eos", false);
  return {.max_tokens = v.at("n_predict").get<int64_t>(),
          .stop = request.value("stop", std::vector<std::string>()),
          .end_tokens = ends ? end_tokens(model.companions, *model.tokenizer) : std::vector<int32_t>(),
          .sampler = {.temperature = v.at("temp").get<double>(),
                      .top_k = v.at("top_k").get<int64_t>(),
                      .top_p = v.at("top_p").get<double>(),
                      .min_p = v.at("min_p").get<double>(),
                      .typical_p = v.at("typical_p").get<double>(),
                      .repeat_penalty = v.at("repeat_penalty").get<double>(),
                      .frequency_penalty = v.at("frequency_penalty").get<double>(),
                      .presence_penalty = v.at("presence_penalty").get<double>(),
                      .seed = v.at("seed").get<uint64_t>()},
          .cache = {.type = parse_cache_type(v.at("cache_type").get<std::string>()),
                    .stepwise_base = v.at("stepwise_base").get<bool>(),
                    .compact = v.at("compact_cache").get<bool>()}};
}

}  // namespace motet
