#include "motet/bench/rival.h"
#include "motet/bench/shape.h"
#include "motet/bench/timing.h"
#include "motet/commands/bench_served.h"
#include "motet/commands/bench_table.h"
#include "motet/core/error.h"
#include "motet/core/progress.h"
#include "motet/generate/generate.h"
#include "motet/ops/threads.h"

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
constexpr int64_t kHealth = 2000;  // requests a second
constexpr int64_t kChecked = 8;    // tokens that a rival must draw as we do
constexpr const char* kServe = "serve";

// Clients in turn with others: what they ask, and what they met.
struct Way {
  std::string name;
  ServeLoad load;
  std::vector<double> rates = {}, health = {}, first_tokens = {};  // of each turn, and again; of each request
};

void measure(Way& way) {
  const ServeTimes times = measure_serving(way.load);
  way.rates.push_back(static_cast<double>(times.tokens) / times.seconds);
  way.first_tokens.insert(way.first_tokens.end(), times.first_tokens.begin(), times.first_tokens.end());
  if (way.load.health_per_second > 0) way.health.push_back(times.health_per_second);
}

// What `motet generate` makes of the same prompts, one after the other.
void generate(Way& way, ModelImpl& model, const Tokenizer& tokenizer) {
  double seconds = 0;
  for (const auto& prompt : way.load.prompts) {
    GenerateOptions options{.max_tokens = way.load.max_tokens, .writer = {.sampler = {.temperature = 0}}};
    const auto begin = std::chrono::steady_clock::now();
    const auto since = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    options.on_prompt = [&] { way.first_tokens.push_back(since()); };
    Decoder decoder(model, prompt, way.load.max_tokens);
    continue_text(decoder, tokenizer, options);
    seconds += since();
  }
  end_idle_threads();
  way.rates.push_back(static_cast<double>(way.load.max_tokens) * static_cast<double>(way.load.prompts.size()) /
                      seconds);
}

// The likeliest tokens after a prompt, one after the other.
std::vector<int64_t> likeliest(ModelImpl& model, const std::vector<int32_t>& prompt, int64_t count) {
  Decoder decoder(model, prompt, count);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(decoder.logits().argmax(-1).item<int64_t>());
    const auto next = static_cast<int32_t>(ids.back());
    decoder.push({&next, 1});
  }
  return ids;
}

// llama.cpp's server with the folder's weights; in float32 its first tokens must be ours.
int rival_port(const RivalProcess& rival, ModelImpl& model, const std::vector<int32_t>& prompt, WeightType weights) {
  const auto tokens = rival.facts().at("tokens").get<std::vector<int64_t>>();
  if (weights == WeightType::float32 && tokens != likeliest(model, prompt, kChecked))
    fail("llama-server: its first ", kChecked, " tokens are not ours");
  return rival.facts().at("port").get<int>();
}

Table serve_table(const std::vector<Way>& ways, WeightType weights) {
  Table table{.columns = {{"way", Align::left},
                          {"clients"},
                          {"weights", Align::left},
                          {"tokens/s", Align::right, "", "tokens_per_second"},
                          {"ratio", Align::right, "", "over_one_stream"},
                          {"first token, p95", Align::right, "ms", "first_token_p95_ms"},
                          {"serve: tokens/s", Align::right, "", "serve_over_it"},
                          {"first token", Align::right, "", "serve_first_token_over_its"}}};
  std::map<int64_t, const Way*> own;
  for (const Way& way : ways)
    if (way.name == kServe) own[way.load.clients] = &way;
  for (const Way& way : ways) {
    const Way& serve = *own.at(way.load.clients);
    const double rate = median(way.rates), first = quantile(way.first_tokens, 0.95);
    const std::string name =
        way.health.empty() ? way.name : text("serve, ", std::lround(median(way.health)), " /health a second");
    table.rows.push_back({name,
                          count(way.load.clients),
                          motet::name(weights),
                          {fixed(rate, 1), rate},
                          ratio(rate / median(own.at(1)->rates)),
                          milliseconds(first),
                          ratio(median(serve.rates) / rate),
                          ratio(quantile(serve.first_tokens, 0.95) / first)});
  }
  return table;
}

}  // namespace

int bench_serve(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  if (asked.turn > 0) return bench_turn(request);
  if (asked.soak > 0) return bench_soak(request);
  const int64_t repeats = repeats_of(asked, 1, 3);
  const ServeShape shape = read_shape(asked.shape, serve_shape_options());
  output_format(request);  // refused before anything runs
  if (!asked.rivals.empty() && asked.rivals != "llama_server" && asked.rivals != "none")
    throw UsageError(unknown_name("rival", asked.rivals, {"llama_server", "none"}));
  const int64_t threads = two_threads(request), length = shape.prompt + shape.generate;
  const SamplingRequest sampling = sampling_of(asked);
  const std::filesystem::path folder = model_folder(request, "model");

  ServedFolder own(folder, sampling, threads, length);
  std::optional<ServedFolder> beside;
  if (!asked.beside.empty()) beside.emplace(asked.beside, sampling, threads, length);
  const auto prompts = drawn_prompts(16, shape.prompt, own.tokenizer->vocabulary_size());
  checked_texts(own.server.port(), prompts, std::min<int64_t>(shape.generate, 16));
  const std::vector<std::vector<int32_t>> few(prompts.begin(), prompts.begin() + 2);
  std::optional<RivalProcess> rival;
  if (asked.rivals == "llama_server")
    rival.emplace(find_rival("rival_llama_server.py", asked.python),
                  nlohmann::json{{"folder", std::filesystem::absolute(folder).string()},
                                 {"context", length + 8},
                                 {"clients", kClients[std::size(kClients) - 1]},
                                 {"threads", threads},
                                 {"weights", name(own.weights)},
                                 {"check", few[0]},
                                 {"generate", kChecked},
                                 {"seed", 1}});

  const auto load = [&](int port, int64_t clients) {
    return ServeLoad{
        .port = port, .clients = clients, .prompts = clients == 1 ? few : prompts, .max_tokens = shape.generate};
  };
  std::vector<Way> ways{{.name = "generate", .load = {.prompts = few, .max_tokens = shape.generate}}};
  for (const int64_t clients : kClients) ways.push_back({.name = kServe, .load = load(own.server.port(), clients)});
  if (rival)
    for (const int port = rival_port(*rival, *own.model, few[0], own.weights); const int64_t clients : kClients)
      ways.push_back({.name = "llama-server", .load = load(port, clients)});
  ServeLoad eight = load(own.server.port(), 8);
  eight.health_per_second = kHealth;
  ways.push_back({.name = "serve and /health", .load = eight});
  eight.health_per_second = 0;
  for (const int64_t bytes : {0, 10}) {
    eight.reader_bytes = bytes;
    ways.push_back(
        {.name = bytes ? "serve, and one that reads 10 bytes a second" : "serve, and one more answer", .load = eight});
  }
  if (beside) ways.push_back({.name = text("serve ", asked.beside), .load = load(beside->server.port(), 8)});

  Progress progress("bench serve", repeats * static_cast<int64_t>(ways.size()));
  for (int64_t turn = 0, done = 0; turn < repeats; ++turn)
    for (Way& way : ways) {
      progress.update(done++, text(way.name, ", ", way.load.clients, " clients"));
      if (&way == &ways.front())
        generate(way, *own.model, *own.tokenizer);
      else
        measure(way);
    }
  progress.finish();

  Table table = serve_table(ways, own.weights);
  if (for_people(request))
    table.note =
        text("Prompts of ", shape.prompt, " tokens, greedy answers of ", shape.generate,
             "; all ways took turns, and 16 answers in company were first\nfound to be those alone. Ratio: of "
             "all streams' tokens/s to that of one client, prompts included. Serve: its tokens/s, and its\n95th "
             "percentile of the time to the first token, over those of the row.\n");
  add_setup(table, {.threads = threads, .repeats = repeats, .device = own.model->device()}, request);
  print_table(table, request);
  return 0;
}

}  // namespace motet
