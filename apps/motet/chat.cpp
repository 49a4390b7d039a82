#include "apps/motet/subcommands.h"

namespace motet {

Subcommand chat_subcommand() {
  Subcommand made{
      .name = "chat",
      .summary = "Talk with a model in the form of its own template",
      .flags = {{.long_name = "model", .target = "model", .value = "DIR", .help = "model folder", .short_name = "m"},
                {.long_name = "system", .target = "system", .value = "TEXT", .help = "what the model is told first"}},
      .examples = {"chat -m smollm2", "chat -m smollm2 --system 'Answer in one word.' --temp 0"},
      .has_results = false};
  made.flags.insert(made.flags.end(), sampling_flags().begin(), sampling_flags().end());
  return made;
}

}  // namespace motet
