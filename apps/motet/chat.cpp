#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"

namespace motet {

Subcommand chat_subcommand() {
  return {
      .name = "chat",
      .summary = "Talk with a model in the form of its own template",
      .flags =
          std::vector<Flag>{
              {.long_name = "model", .target = "model", .value = "DIR", .help = "model folder", .short_name = "m"},
              {.long_name = "system", .target = "system", .value = "TEXT", .help = "what the model is told first"}} +
          sampling_flags(),
      .examples = {"chat -m smollm2", "chat -m smollm2 --system 'Answer in one word.' --temp 0"},
      .has_results = false};
}

}  // namespace motet
