#include <algorithm>

#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"
#include "motet/http/options.h"
#include "motet/serve/options.h"

namespace motet {
namespace {

// How the model and its keys are held; how tokens are drawn each request says itself.
OptionTable holding_options() {
  OptionTable picked;
  for (const Option& option : sampling_options().table())
    for (const char* name : {"cache_type", "compact_cache", "weights", "precision", "device"})
      if (option.name == name) picked.push_back(option);
  return picked;
}

}  // namespace

Subcommand serve_subcommand() {
  return {.name = "serve",
          .summary = "Answer requests of OpenAI's interface over HTTP",
          .flags = std::vector<Flag>{{.long_name = "model",
                                      .target = "model",
                                      .value = "DIR",
                                      .help = "model folder, or the folder of a run",
                                      .short_name = "m"}} +
                   flags_of(serve_options().table(), {{"port", {.letter = "p"}}}) + flags_of(holding_options()) +
                   flags_of(http_limits().table()),
          .examples = {"serve -m runs/first", "serve -m smollm2 --port 8000 --weights int8"},
          .has_results = false};
}

}  // namespace motet
