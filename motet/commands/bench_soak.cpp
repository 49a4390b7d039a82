#include "motet/bench/serve_soak.h"
#include "motet/bench/shape.h"
#include "motet/commands/bench_served.h"
#include "motet/commands/bench_table.h"
#include "motet/core/error.h"
#include "motet/core/progress.h"

namespace motet {

int bench_soak(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  for (const char* field : {"shape", "repeats", "rivals", "beside"})
    if (request.contains(field)) fail_usage("--", field, " is given with --soak, which has its own");
  output_format(request);  // refused before anything runs
  const int64_t threads = two_threads(request);
  const SamplingRequest sampling = sampling_of(asked);
  ServedFolder own(model_folder(request, "model"), sampling, threads, SoakLoad().max_tokens + 1, true);
  SoakLoad load{.port = own.server.port(), .requests = asked.soak};
  const int64_t length = std::min<int64_t>(100, own.model->config().context - load.max_tokens);
  load.prompts = drawn_prompts(64, length, own.tokenizer->vocabulary_size());
  for (size_t i = 0; i < load.prompts.size(); ++i)  // of every length
    load.prompts[i].resize(1 + i * static_cast<size_t>(length) / load.prompts.size());
  load.texts = checked_texts(load.port, load.prompts, load.max_tokens);

  Progress progress("bench serve", load.requests);
  const SoakResult result = soak_server(load, [&](int64_t ended) { progress.update(ended); });
  progress.finish();
  Table table{.columns = {{"what", Align::left}, {"value"}}};
  const double growth = static_cast<double>(result.end_bytes) / static_cast<double>(result.warm_bytes) - 1;
  const auto add = [&](const char* what, int64_t value) { table.rows.push_back({what, count(value)}); };
  add("answers that are whole", result.whole);
  add("left by their client", result.left);
  add("lost", result.lost);
  add("wrong", result.wrong);
  add("bytes in memory, after the first 1,000", result.warm_bytes);
  add("bytes in memory, at the end", result.end_bytes);
  add("still running", result.running);
  add("still waiting", result.waiting);
  add("bytes of keys", result.cache_bytes);
  add("tokens of kept prompts", result.kept_tokens);
  table.rows.push_back({"growth of memory, %", {fixed(100 * growth, 2), 100 * growth}});
  add_setup(table, {.threads = threads, .repeats = 1, .device = own.model->device()}, request);
  print_table(table, request);
  if (result.lost > 0) fail("bench serve: ", result.lost, " requests were lost, the first one: ", result.first_error);
  if (result.wrong > 0) fail("bench serve: ", result.wrong, " answers have another text than alone");
  if (result.running + result.waiting + result.cache_bytes > 0)
    fail("bench serve: ", result.running, " requests still run, ", result.waiting, " wait and ", result.cache_bytes,
         " bytes of keys are held after the last one");
  return 0;
}

}  // namespace motet
