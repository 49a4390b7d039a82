#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"

namespace motet {

Subcommand compare_subcommand() {
  return {
      .name = "compare",
      .summary = "Train one model per attention mechanism under the same budget on the same text, and report",
      .flags = flags_of(compare_options().table(), {{"mechanisms", {.value = "LIST"}},
                                                    {"sweep", {.value = "KEY=VALUES"}},
                                                    {"sizes", {.value = "LIST"}},
                                                    {"margin", {.value = "NATS"}},
                                                    {"match", {.value = "WHAT"}},
                                                    {"prompt", {.letter = "p"}},
                                                    {"n_predict", {.letter = "n"}}}) +
               std::vector<Flag>{{.long_name = "out",
                                  .target = "out",
                                  .value = "DIR",
                                  .help = "folder of the results (default: runs/compare-<time>)"},
                                 {.long_name = "resume",
                                  .target = "resume",
                                  .value = "RUN",
                                  .help = "go on with this comparison: what has ended stays; more seeds, "
                                          "mechanisms and sizes may be named"}} +
               configuration_flags(compare_defaults()),
      .positional = training_texts(),
      .examples = {"compare",
                   "compare --mechanisms mha,dcmha --sweep train.learning_rate=2e-3,4e-3 --steps 50 --out runs/three",
                   "compare --resume runs/three --seeds 4"}};
}

}  // namespace motet
