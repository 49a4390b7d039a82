#include <random>

#include "motet/bench/serve_bench.h"
#include "motet/bench/shape.h"
#include "motet/bench/timing.h"
#include "motet/commands/bench_table.h"
#include "motet/commands/model_server.h"
#include "motet/core/error.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

struct ServeShape {
  int64_t prompt = 128, generate = 128;
};
const Fields<ServeShape>& serve_shape_options() {
  using S = ServeShape;
  static const Fields<S> table{{"prompt", &S::prompt, {1, 1e6}, "tokens of each prompt"},
                               {"generate", &S::generate, {1, 1e6}, "tokens of each answer"}};
  return table;
}

constexpr int64_t kClients[] = {1, 4, 8, 16};

// Prompts of drawn tokens: none begins as another does.
std::vector<std::vector<int32_t>> drawn_prompts(int64_t count, int64_t tokens, int64_t vocabulary) {
  std::mt19937_64 random(1);
  std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(count));
  for (auto& prompt : prompts)
    for (int64_t i = 0; i < tokens; ++i)
      prompt.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary)));
  return prompts;
}

// What `motet generate` makes of the prompts, one after the other: tokens a second, and from a prompt to its first.
struct Direct {
  double seconds = 0;
  std::vector<double> first_tokens;
};
Direct generated(ModelImpl& model, const Tokenizer& tokenizer, const std::vector<std::vector<int32_t>>& prompts,
                 int64_t tokens) {
  Direct direct;
  for (const auto& prompt : prompts) {
    double first = 0;
    GenerateOptions options{.max_tokens = tokens, .writer = {.sampler = {.temperature = 0}}};
    const auto begin = std::chrono::steady_clock::now();
    const auto since = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    options.on_prompt = [&] { first = since(); };
    Decoder decoder(model, prompt, tokens);
    continue_text(decoder, tokenizer, options);
    direct.seconds += since();
    direct.first_tokens.push_back(first);
  }
  return direct;
}

struct Measured {
  std::vector<double> rates, first_tokens;  // of each turn; of each request
};

// Texts in company must be those alone, before any time counts.
void check_texts(int port, const std::vector<std::vector<int32_t>>& prompts, int64_t tokens) {
  const auto alone = measure_serving({.port = port, .clients = 1, .prompts = prompts, .max_tokens = tokens});
  const auto together = measure_serving({.port = port, .clients = 16, .prompts = prompts, .max_tokens = tokens});
  if (alone.texts != together.texts) fail("bench serve: a request got another text among others than alone");
}

}  // namespace

int bench_serve(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  const int64_t repeats = repeats_of(asked, 1, 3);
  const ServeShape shape = read_shape(asked.shape, serve_shape_options());
  output_format(request);  // refused before anything runs
  const int64_t threads = decoding_threads(request);
  SamplingRequest sampling{.device = asked.device};
  if (!asked.weights.empty()) sampling.weights = parse_weight_type(asked.weights);
  const std::filesystem::path folder = model_folder(request, "model");

  ModelServer server({.port = 0, .no_prefix_cache = true}, {}, ApiKeys({}));
  LoadedModel loaded = load_for_inference(folder, sampling);
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(folder, loaded.model->config());
  Model model = loaded.model;
  const WeightType weights = loaded.weights;
  if (shape.prompt + shape.generate > model->config().context)
    fail_usage("--shape: ", shape.prompt, " and ", shape.generate, " tokens are more than the context of ",
               model->config().context);
  server.open(folder, std::move(loaded), {}, threads);
  const auto prompts = drawn_prompts(16, shape.prompt, tokenizer->vocabulary_size());
  check_texts(server.port(), prompts, std::min<int64_t>(shape.generate, 16));

  Measured direct;
  std::map<int64_t, Measured> served;
  const std::vector<std::vector<int32_t>> few(prompts.begin(), prompts.begin() + 2);
  const auto tokens_of = [&](size_t count) { return static_cast<double>(count) * static_cast<double>(shape.generate); };
  for (int64_t turn = 0; turn < repeats; ++turn) {
    const Direct alone = generated(*model, *tokenizer, few, shape.generate);
    direct.rates.push_back(tokens_of(few.size()) / alone.seconds);
    direct.first_tokens.insert(direct.first_tokens.end(), alone.first_tokens.begin(), alone.first_tokens.end());
    for (const int64_t clients : kClients) {
      const ServeTimes times = measure_serving({.port = server.port(),
                                                .clients = clients,
                                                .prompts = clients == 1 ? few : prompts,
                                                .max_tokens = shape.generate});
      Measured& into = served[clients];
      into.rates.push_back(static_cast<double>(times.tokens) / times.seconds);
      into.first_tokens.insert(into.first_tokens.end(), times.first_tokens.begin(), times.first_tokens.end());
    }
  }

  Table table{.columns = {{"way", Align::left},
                          {"clients"},
                          {"weights", Align::left},
                          {"tokens/s", Align::right, "", "tokens_per_second"},
                          {"ratio", Align::right, "", "over_one_stream"},
                          {"first token, p95", Align::right, "ms", "first_token_p95_ms"}}};
  const double one = median(served[1].rates);
  const auto add = [&](const char* way, int64_t clients, const Measured& m) {
    const double rate = median(m.rates);
    table.rows.push_back({way,
                          count(clients),
                          name(weights),
                          {fixed(rate, 1), rate},
                          ratio(rate / one),
                          milliseconds(quantile(m.first_tokens, 0.95))});
  };
  add("generate", 1, direct);
  for (const int64_t clients : kClients) add("serve", clients, served[clients]);
  if (for_people(request))
    table.note = text("Prompts of ", shape.prompt, " tokens, greedy answers of ", shape.generate,
                      "; all ways took turns, and 16 answers in company were first\nfound to be those alone. Ratio: of "
                      "all streams' tokens/s to that of one client, prompts included.\n");
  add_setup(table, {.threads = threads, .repeats = repeats, .device = model->device()}, request);
  print_table(table, request);
  return 0;
}

}  // namespace motet
