#include "motet/bench/serve_client.h"
#include "motet/bench/shape.h"
#include "motet/bench/timing.h"
#include "motet/commands/bench_served.h"
#include "motet/commands/bench_table.h"
#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/core/progress.h"

namespace motet {
namespace {

constexpr int64_t kAnswer = 32, kMessage = 32;  // tokens

// A prompt, where it is asked, and what each conversation met.
struct Turn {
  const char* name;
  int port;
  int64_t tokens;
  std::vector<double> first_tokens = {};
  int64_t read = 0, cached = 0;  // tokens of the prompt, as the server counts them

  std::string ask(const std::vector<int32_t>& conversation) {
    check_interrupt();
    const auto end = conversation.begin() + static_cast<std::ptrdiff_t>(tokens);
    const ServedAnswer answer = ask_server(port, {conversation.begin(), end}, kAnswer);
    first_tokens.push_back(answer.first), read = answer.prompt, cached = answer.cached;
    return answer.text;
  }
};

}  // namespace

// Drawn tokens stand for the first answer: its keys are computed anew in the next turn, whatever they are.
int bench_turn(const nlohmann::json& request) {
  const BenchRequest asked = read_request(bench_options(), request);
  for (const char* field : {"shape", "rivals", "beside", "soak"})
    if (request.contains(field)) fail_usage("--", field, " is given with --turn, which has its own");
  output_format(request);  // refused before anything runs
  const int64_t threads = two_threads(request), repeats = repeats_of(asked, 1, 5),
                second = asked.turn + kAnswer + kMessage;
  const SamplingRequest sampling = sampling_of(asked);
  const std::filesystem::path folder = model_folder(request, "model");
  ServedFolder keeps(folder, sampling, threads, second + kAnswer, true),
      forgets(folder, sampling, threads, second + kAnswer);

  std::vector<Turn> turns{{"first", keeps.server.port(), asked.turn},
                          {"second", keeps.server.port(), second},
                          {"second, where nothing is kept", forgets.server.port(), second}};
  Progress progress("bench serve", repeats);
  for (int64_t done = 0;
       const auto& conversation : drawn_prompts(repeats, second, keeps.tokenizer->vocabulary_size())) {
    turns[0].ask(conversation);
    if (turns[1].ask(conversation) != turns[2].ask(conversation))
      fail("bench serve: the second turn has another answer than where nothing is kept");
    progress.update(++done);
  }
  progress.finish();

  Table table{.columns = {{"turn", Align::left},
                          {"prompt", Align::right, "", "prompt_tokens"},
                          {"kept", Align::right, "", "kept_tokens"},
                          {"first token", Align::right, "ms", "first_token_ms"},
                          {"ratio", Align::right, "", "over_first_turn"},
                          {"weights", Align::left}}};
  const double first = median(turns[0].first_tokens);
  for (const Turn& turn : turns) {
    const double time = median(turn.first_tokens);
    table.rows.push_back({turn.name, count(turn.read), count(turn.cached), milliseconds(time), ratio(time / first),
                          name(keeps.weights)});
  }
  if (for_people(request))
    table.note = text("Medians of ", repeats, " conversations: the second prompt is the first one, an answer of ",
                      kAnswer, " tokens and ", kMessage, " more.\n");
  add_setup(table, {.threads = threads, .repeats = repeats, .device = keeps.model->device()}, request);
  print_table(table, request);
  return 0;
}

}  // namespace motet
