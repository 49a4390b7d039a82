#include <unistd.h>

#include "motet/bench/infer_bench.h"
#include "motet/bench/shape.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/commands/bench_table.h"
#include "motet/commands/request.h"
#include "motet/compare/arms.h"
#include "motet/core/error.h"
#include "motet/core/process.h"
#include "motet/train/run_config.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

OptionTable request_options() {
  using enum OptionType;
  return {{"shape", string, "", {}, {}, {}, "sizes between commas"},
          {"repeats", integer, 5, 2, 1000, {}, "measurements"},
          {"mechanisms", string, "", {}, {}, {}, "whose models take turns"},
          {"weights", string, "", {}, {}, {}, "types between commas"},
          {"rivals", string, "llama_cpp,transformers", {}, {}, {}, "programs between commas"},
          {"python", string, "", {}, {}, {}, "the Python that runs the rivals"}};
}

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> all;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) all.push_back(word);
  return all;
}

std::vector<InferCase> cases_of(const nlohmann::json& shape) {
  const int64_t prompt = shape["prompt"], generate = shape["generate"], depth = shape["depth"];
  std::vector<InferCase> cases{{true, prompt, 0}, {false, generate, 0}};
  if (depth > 0) cases.push_back({true, prompt, depth}), cases.push_back({false, generate, depth});
  return cases;
}

ModelConfig arm_sizes(const nlohmann::json& shape, const Arm& arm, int64_t context) {
  const std::pair<const char*, const char*> keys[] = {
      {"model.hidden_size", "hidden"}, {"model.num_layers", "layers"}, {"model.intermediate_size", "intermediate"}};
  nlohmann::json set = nlohmann::json::array();
  for (const auto& [key, size] : keys) set.push_back({key, shape.at(size)});
  set.push_back({"model.tie_embeddings", true});
  set.push_back({"train.context", context});
  set.push_back({"train.steps", 1});  // a run needs a budget
  return arm_config(read_run_config({{"set", set}}), arm, shape.at("vocab"));
}

// A folder for the rivals, gone with the object.
struct Scratch {
  fs::path path = fs::temp_directory_path() / text("motet-bench-", ::getpid());
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

void add_rivals(InferBench& bench, const std::string& list) {
  if (list == "none") return;
  const std::vector<std::string> known{"llama_cpp", "transformers", "none"};
  for (const std::string& name : words(list)) {
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError(unknown_name("rival", name, known));
    for (size_t i = 0; i < bench.models.size(); ++i) {
      const WeightType weights = bench.models[i].weights;
      const bool plain = bench.models[i].name.starts_with("mha") || bench.models[i].name.starts_with("model");
      if (!plain || weights == WeightType::bfloat16) continue;
      if (name == "transformers" && weights != WeightType::float32) continue;
      const char* type = name == "transformers" ? " float32" : weights == WeightType::int8 ? " Q8_0" : " F32";
      bench.rivals.push_back({(name == "llama_cpp" ? "llama.cpp" : name) + type, "rival_" + name + ".py", weights, i});
    }
  }
}

}  // namespace

int bench_infer(const nlohmann::json& request) {
  const nlohmann::json values = request_values(request_options(), request);
  const nlohmann::json shape = parse_shape(values["shape"], infer_shape_options());
  output_format(request);  // refused before anything runs
  nlohmann::json with_threads = request;
  if (!request.contains("threads")) with_threads["threads"] = std::min(2, processor_count());
  const Setup setup{request_threads(with_threads), values["repeats"], "Means"};
  InferBench bench{.cases = cases_of(shape), .python = values["python"], .threads = setup.threads};
  bench.turns.repeats = setup.repeats;
  std::vector<WeightType> types;
  const std::string given = values["weights"];
  for (const std::string& type : words(given.empty() ? "float32,int8" : given))
    types.push_back(parse_weight_type(type));

  Scratch scratch;
  const bool own = request.contains("model");
  if (own && !values["mechanisms"].get<std::string>().empty())
    fail_usage("--mechanisms and --model are both given, want one: models of mechanisms have drawn weights");
  if (own) {
    bench.folder = model_folder(request, "model");
    for (const WeightType type : types)
      bench.models.push_back({text("model ", name(type)), load_model_folder(bench.folder), type});
  } else {
    int64_t context = 0;
    for (const InferCase& c : bench.cases) context = std::max(context, c.depth + c.tokens);
    nlohmann::json common{{"num_heads", shape["heads"]}};
    if (shape["kv_heads"] != 0) common["num_kv_heads"] = shape["kv_heads"];
    const std::string mechanisms = values["mechanisms"];
    double parameters = 0;  // of the first, matched by the others
    for (const Arm& arm : parse_arms(mechanisms.empty() ? "mha" : mechanisms, common)) {
      ModelConfig config = arm_sizes(shape, arm, context);
      if (parameters > 0)
        match_size(config, Match::parameters, parameters);
      else
        parameters = size_of(config, Match::parameters);
      for (const WeightType type : types) {
        Model model(config);
        model->initialize(1);
        if (bench.folder.empty() && arm.label == "mha" && values["rivals"] != "none") {
          bench.folder = scratch.path;
          save_model_folder(scratch.path, *model, {});
        }
        bench.models.push_back({text(arm.label, " ", name(type)), model, type});
      }
    }
  }
  add_rivals(bench, values["rivals"]);
  const std::vector<InferResult> results = measure_inference(bench);

  Table table{.columns = {{"program", Align::left},
                          {"case", Align::left},
                          {"tokens/s", Align::right, "", "tokens_per_second"},
                          {"deviation"},
                          {"compared with", Align::left, "", "compared_with"},
                          {"ratio"}}};
  const bool people = for_people(request);
  if (!people) {
    table.columns.push_back({"model_bytes"});
    table.columns.push_back({"cache_bytes"});
    table.columns.push_back({"logits_error"});
    table.columns.push_back({"version", Align::left});
  }
  const size_t ours = bench.models.size();
  for (size_t c = 0; c < bench.cases.size(); ++c)
    for (size_t i = 0; i < results.size(); ++i) {
      const InferResult& r = results[i];
      // A rival: ours over it. A model: it over the first one of the same weights.
      size_t other = i;
      if (i >= ours) other = bench.rivals[i - ours].against;
      for (size_t j = ours; i < ours && j-- > 0;)
        if (bench.models[j].weights == bench.models[i].weights) other = j;
      const InferRates &mine = r.rates[c], &its = results[other].rates[c];
      table.rows.push_back({i < ours ? "motet " + r.name : r.name,
                            bench.cases[c].name(),
                            {fixed(mine.mean(), 1), mine.mean()},
                            {fixed(mine.deviation(), 1), mine.deviation()},
                            other == i ? "" : "motet " + results[other].name,
                            other == i ? Cell{"", nullptr} : ratio(i < ours ? mine.over(its) : its.over(mine))});
      if (people) continue;
      table.rows.back().push_back(count(r.model_bytes));
      table.rows.back().push_back(count(r.cache_bytes));
      table.rows.back().push_back({fixed(r.logits_error, 6), r.logits_error});
      table.rows.back().push_back(r.version);
    }
  if (people)
    table.note = text(
        "pp: a prompt; tg: single tokens; @: tokens already in the cache. The time to the first token is that of the "
        "prompt.\nRatio: of tokens/s, the median over turns. A rival's row: Motet with the same weights over it; a "
        "model's: it over the first, whose number of parameters all have.\n");
  add_setup(table, setup, request);
  print_table(table, request);
  return 0;
}

}  // namespace motet
