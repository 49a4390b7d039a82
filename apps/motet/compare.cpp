#include "apps/motet/subcommands.h"

namespace motet {

Subcommand compare_subcommand() {
  Subcommand out = {
      .name = "compare",
      .summary = "Train one model per attention mechanism under the same budget on the same text, and report",
      .flags =
          {{.long_name = "mechanisms",
            .target = "mechanisms",
            .value = "LIST",
            .help = "names between commas (default: the main seven)"},
           {.long_name = "seeds", .target = "seeds", .value = "N", .help = "models of each mechanism (default: 3)"},
           {.long_name = "margin",
            .target = "margin",
            .value = "NATS",
            .help = "fewer than 5 seeds give a verdict only beyond it (default: 0.01)"},
           {.long_name = "match",
            .target = "match",
            .value = "WHAT",
            .help = "what is equal between the models: parameters, flops or none"},
           {.long_name = "jobs", .target = "jobs", .value = "N", .help = "models trained at once; 0: chosen"},
           {.long_name = "out",
            .target = "out",
            .value = "DIR",
            .help = "folder of the results (default: runs/compare-<time>)"},
           {.long_name = "prompt",
            .target = "prompt",
            .value = "TEXT",
            .help = "what each model continues at the end",
            .short_name = "p"},
           {.long_name = "n-predict",
            .target = "n_predict",
            .value = "N",
            .help = "tokens of the continuation",
            .short_name = "n"}},
      .positional = {.field = "texts",
                     .name = "TEXT",
                     .help = "files, folders of *.txt, or one of motet data (default: the built-in tiny Shakespeare)",
                     .most = SIZE_MAX},
      .examples = {"compare", "compare --mechanisms mha,dcmha --seeds 3 --steps 50 --out runs/three"}};
  for (const Flag& flag : configuration_flags()) out.flags.push_back(flag);
  return out;
}

}  // namespace motet
