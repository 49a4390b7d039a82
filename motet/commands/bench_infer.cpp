#include <unistd.h>

#include "motet/bench/infer_bench.h"
#include "motet/bench/shape.h"
#include "motet/checkpoints/checkpoint.h"
#include "motet/checkpoints/model_folder.h"
#include "motet/commands/bench_table.h"
#include "motet/commands/request.h"
#include "motet/compare/arms.h"
#include "motet/core/error.h"
#include "motet/ops/device.h"
#include "motet/train/run_config.h"

namespace motet {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words(const std::string& list) {
  std::vector<std::string> all;
  std::istringstream in(list);
  for (std::string word; std::getline(in, word, ',');) all.push_back(word);
  return all;
}

std::vector<InferCase> cases_of(const InferShape& s) {
  std::vector<InferCase> cases{{true, s.prompt, 0}, {false, s.generate, 0}};
  if (s.depth > 0) cases.push_back({true, s.prompt, s.depth}), cases.push_back({false, s.generate, s.depth});
  return cases;
}

ModelConfig arm_sizes(const InferShape& s, const Arm& arm, int64_t context) {
  RunConfig run;
  run.model = {
      .hidden_size = s.hidden, .num_layers = s.layers, .intermediate_size = s.intermediate, .tie_embeddings = true};
  run.train.context = context;
  return arm_config(run, arm, s.vocab);
}

// A folder for the rivals, gone with the object.
struct Scratch {
  fs::path path = fs::temp_directory_path() / text("motet-bench-", ::getpid());
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// Of --weights; a folder is measured as it is, and in 8 bits.
std::vector<WeightType> weight_types(const std::string& given, const std::optional<Checkpoint>& own,
                                     at::Device device) {
  std::vector<WeightType> types;
  for (const std::string& name : words(given)) types.push_back(parse_weight_type(name));
  if (!types.empty()) return types;
  types = {own ? usual_weights(*own, device) : WeightType::float32};
  if (types[0] != WeightType::int8) types.push_back(WeightType::int8);
  return types;
}

// How a model is kept.
struct Kept {
  WeightType weights;
  CacheType cache;
};

// Of --weights and --cache-types: keys as computed first, which the others are held to.
std::vector<Kept> kept_as(const std::vector<WeightType>& weights, const std::string& cache_types) {
  std::vector<CacheType> caches;
  for (const std::string& name : words(cache_types.empty() ? "model" : cache_types))
    caches.push_back(value_of(motet::cache_types(), name, "--cache-types"));
  std::ranges::stable_partition(caches, [](CacheType type) { return type == CacheType::model; });
  std::vector<Kept> all;
  for (const WeightType type : weights)
    for (const CacheType cache : caches) all.push_back({type, cache});
  return all;
}

std::string model_name(const std::string& name, const Kept& as) {
  const std::string cache = as.cache == CacheType::model ? "" : text(", ", motet::name(as.cache), " cache");
  return text(name, " ", motet::name(as.weights), cache);
}

void add_model(InferBench& bench, const std::string& label, Model model, const Kept& as) {
  std::optional<size_t> near;
  for (size_t i = 0; i < bench.models.size() && as.cache != CacheType::model; ++i)
    if (bench.models[i].name == model_name(label, {as.weights, CacheType::model})) near = i;
  bench.models.push_back({model_name(label, as), std::move(model), as.weights, as.cache, near});
}

// The names of --rivals. All of them compute on the CPU and read no matrices in 8 bits of ours: elsewhere, and of such
// a folder, none is what is taken when nothing is said.
std::vector<std::string> rival_names(const std::string& given, at::Device device,
                                     const std::optional<Checkpoint>& own) {
  const std::string list = given.empty() ? "llama_cpp,transformers" : given;
  const std::vector<std::string> known{"llama_cpp", "transformers", "none"};
  for (const std::string& name : words(list))
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw UsageError(unknown_name("rival", name, known));
  const bool narrow = own && own->in_8_bits;
  if (list == "none" || (given.empty() && narrow)) return {};
  if (narrow) fail_usage("--rivals: ", list, " of a folder in 8 bits, want none: they do not read it");
  if (device.is_cpu()) return words(list);
  if (!given.empty())
    fail_usage("--rivals: ", list, " on ", device.str(), ", want none or --device cpu: they compute on the CPU");
  return {};
}

std::string ggml_type(WeightType type) {
  static const Words<WeightType> all{{"F32", WeightType::float32},
                                     {"BF16", WeightType::bfloat16},
                                     {"F16", WeightType::float16},
                                     {"Q8_0", WeightType::int8}};
  return word_of(all, type);
}

void add_rivals(InferBench& bench, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (size_t i = 0; i < bench.models.size(); ++i) {
      const WeightType weights = bench.models[i].weights;
      const std::string& model = bench.models[i].name;
      const Kept as{weights, CacheType::model};
      const bool in_folder = model == model_name("mha", as) || model == model_name("model", as);
      if (!in_folder || (name == "transformers" && weights != WeightType::float32)) continue;
      const std::string called = name == "transformers" ? "transformers float32" : "llama.cpp " + ggml_type(weights);
      bench.rivals.push_back({called, "rival_" + name + ".py", weights, i});
    }
  }
}

// The folder's model in each type.
void add_own(InferBench& bench, const std::vector<Kept>& kept, at::Device device, const Checkpoint& own) {
  for (const Kept& as : kept) add_model(bench, "model", load_model(own, {.device = device, .weights = as.weights}), as);
}

// Models with drawn weights, one for each mechanism and way to keep it, of one number of parameters. The rivals' is
// saved in `scratch`, unless that is empty.
void add_drawn(InferBench& bench, const InferShape& shape, const std::string& mechanisms, const std::vector<Kept>& kept,
               at::Device device, const fs::path& scratch) {
  int64_t context = 0;
  for (const InferCase& c : bench.cases) context = std::max(context, c.depth + c.tokens);
  nlohmann::json common{{"num_heads", shape.heads}};
  if (shape.kv_heads != 0) common["num_kv_heads"] = shape.kv_heads;
  double parameters = 0;  // of the first, matched by the others
  for (const Arm& arm : parse_arms(mechanisms.empty() ? "mha" : mechanisms, common)) {
    ModelConfig config = arm_sizes(shape, arm, context);
    if (parameters > 0)
      match_size(config, Match::parameters, parameters);
    else
      parameters = size_of(config, Match::parameters);
    for (const Kept& as : kept) {
      Model model(config, device);
      model->initialize(1);
      if (bench.folder.empty() && arm.label == "mha" && !scratch.empty()) {
        bench.folder = scratch;
        save_model_folder(scratch, *model, {});
      }
      add_model(bench, arm.label, model, as);
    }
  }
}

Table infer_table(const InferBench& bench, const std::vector<InferResult>& results, bool people) {
  Table table{.columns = {{"program", Align::left},
                          {"case", Align::left},
                          {"tokens/s", Align::right, "", "tokens_per_second"},
                          {"deviation"},
                          {"compared with", Align::left, "", "compared_with"},
                          {"ratio"}}};
  if (!people)
    table.columns.insert(table.columns.end(),
                         {{"model_bytes"}, {"cache_bytes"}, {"logits_error"}, {"version", Align::left}});
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
  return table;
}

}  // namespace

int bench_infer(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  const int64_t repeats = repeats_of(asked, 2, 5);
  const InferShape shape = read_shape(asked.shape, infer_shape_options());
  output_format(request);  // refused before anything runs
  const at::Device device = parse_device(asked.device);
  if (request.contains("model") && !asked.mechanisms.empty())
    fail_usage("--mechanisms and --model are both given, want one: models of mechanisms have drawn weights");
  std::optional<Checkpoint> own;
  if (request.contains("model")) own = open_checkpoint(model_folder(request, "model"));
  const std::vector<WeightType> types = weight_types(asked.weights, own, device);
  const std::vector<std::string> rivals = rival_names(asked.rivals, device, own);
  if (words(asked.rivals) == rivals && std::find(rivals.begin(), rivals.end(), "transformers") != rivals.end() &&
      std::find(types.begin(), types.end(), WeightType::float32) == types.end())
    fail_usage("--rivals: transformers, which computes in float32, want that among --weights");
  const std::vector<Kept> kept = kept_as(types, asked.cache_types);
  if (!rivals.empty() && kept[0].cache != CacheType::model)
    fail_usage(
        "--cache-types: ", asked.cache_types,
        " beside rivals, which are compared with keys kept as computed, want model among them, or --rivals none");
  const Setup setup{two_threads(request), repeats, "Means", device};
  InferBench bench{.cases = cases_of(shape), .python = asked.python, .threads = setup.threads};
  bench.turns.repeats = setup.repeats;
  const Scratch scratch;
  if (own) bench.folder = model_folder(request, "model");
  if (own)
    add_own(bench, kept, device, *own);
  else
    add_drawn(bench, shape, asked.mechanisms, kept, device, rivals.empty() ? fs::path() : scratch.path);
  add_rivals(bench, rivals);
  const std::vector<InferResult> results = measure_inference(bench);

  const bool people = for_people(request);
  Table table = infer_table(bench, results, people);
  if (people)
    table.note = text(
        "pp: a prompt; tg: single tokens; @: tokens already in the cache. The time to the first token is that of the "
        "prompt.\nRatio: of tokens/s, the median over turns. A rival's row: Motet with the same weights over it; a "
        "model's: it over the first, whose number of parameters all have.\n",
        device.is_cpu() || asked.rivals == "none" ? "" : "The rivals compute on the CPU and are left out.\n");
  add_setup(table, setup, request);
  print_table(table, request);
  return 0;
}

}  // namespace motet
