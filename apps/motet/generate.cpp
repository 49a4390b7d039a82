#include "apps/motet/subcommands.h"

namespace motet {

Subcommand generate_subcommand() {
  Subcommand made{
      .name = "generate",
      .summary = "Continue a prompt",
      .flags =
          {{.long_name = "model",
            .target = "model",
            .value = "DIR",
            .help = "model folder, or the folder of a run",
            .short_name = "m"},
           {.long_name = "prompt", .target = "prompt", .value = "TEXT", .help = "what is continued", .short_name = "p"},
           {.long_name = "samples",
            .target = "samples",
            .value = "N",
            .help = "continuations of the prompt; each is the same whatever their number"},
           {.long_name = "logprobs",
            .target = "logprobs",
            .value = "N",
            .help = "with -o json: of each token, and of the N likeliest at its place"}},
      .examples = {"generate -m runs/first -p 'ROMEO:' -n 100 --temp 0.8 --seed 1",
                   "generate -m runs/first -p 'JULIET:' -n 50 --temp 0 --stop 'ROMEO:'"}};
  made.flags.insert(made.flags.end(), sampling_flags().begin(), sampling_flags().end());
  return made;
}

}  // namespace motet
