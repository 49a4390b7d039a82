#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"

namespace motet {

Subcommand generate_subcommand() {
  return {.name = "generate",
          .summary = "Continue a prompt",
          .flags = std::vector<Flag>{{.long_name = "model",
                                      .target = "model",
                                      .value = "DIR",
                                      .help = "model folder, or the folder of a run",
                                      .short_name = "m"},
                                     {.long_name = "prompt",
                                      .target = "prompt",
                                      .value = "TEXT",
                                      .help = "what is continued",
                                      .short_name = "p"}} +
                   flags_of(generate_request_options().table()) + sampling_flags(),
          .examples = {"generate -m runs/first -p 'ROMEO:' -n 100 --temp 0.8 --seed 1",
                       "generate -m runs/first -p 'JULIET:' -n 50 --temp 0 --stop 'ROMEO:'"}};
}

}  // namespace motet
