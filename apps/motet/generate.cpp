#include "apps/motet/subcommands.h"

namespace motet {

Subcommand generate_subcommand() {
  Subcommand made{.name = "generate",
                  .summary = "Continue a prompt",
                  .flags = {{.long_name = "model",
                             .target = "model",
                             .value = "DIR",
                             .help = "model folder, or the folder of a run",
                             .short_name = "m"},
                            {.long_name = "prompt",
                             .target = "prompt",
                             .value = "TEXT",
                             .help = "what is continued",
                             .short_name = "p"}},
                  .examples = {"generate -m runs/first -p 'ROMEO:' -n 100 --temp 0.8 --seed 1",
                               "generate -m runs/first -p 'JULIET:' -n 50 --temp 0 --stop 'ROMEO:'"}};
  made.flags.insert(made.flags.end(), sampling_flags().begin(), sampling_flags().end());
  return made;
}

}  // namespace motet
