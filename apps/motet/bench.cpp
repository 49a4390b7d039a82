#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"

namespace motet {

Subcommand bench_subcommand() {
  return {.name = "bench",
          .summary = "Measure speed against plain attention in the same run",
          .flags = flags_of(bench_options().table(), {{"shape", {.value = "LIST"}},
                                                      {"dtype", {.value = "TYPE"}},
                                                      {"mechanisms", {.value = "LIST"}},
                                                      {"weights", {.value = "LIST"}},
                                                      {"cache_types", {.value = "LIST"}},
                                                      {"rivals", {.value = "LIST"}},
                                                      {"device", {.value = "NAME"}},
                                                      {"python", {.value = "PATH"}},
                                                      {"processes", {.value = "N"}}}) +
                   std::vector<Flag>{
                       {.long_name = "model",
                        .target = "model",
                        .value = "DIR",
                        .help = "infer: a model folder in place of drawn weights; serve: the model that is served",
                        .short_name = "m"}},
          .positional = {.field = "what",
                         .name = "WHAT",
                         .help = "attention, memory, train, checkpoint, processes, infer or serve",
                         .least = 1,
                         .most = 1},
          .examples = {"bench attention", "bench attention --shape T=256,H=4,D=32,B=1,mechanism=dcmha --repeats 5"}};
}

}  // namespace motet
