#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"

namespace motet {

Subcommand convert_subcommand() {
  return {
      .name = "convert",
      .summary = "Bring a model from one layout into another: published ones, GGUF and llama2.c's .bin, ours",
      .flags =
          flags_of(convert_options().table(), {{"to", {.value = "LAYOUT"}},
                                               {"out", {.value = "DIR"}},
                                               {"mechanism", {.value = "NAME"}},
                                               {"retrofit", {.value = "NAME"}},
                                               {"seed", {.letter = "s"}}}) +
          std::vector<Flag>{
              {.long_name = "allow-overflow",
               .target = "allow_overflow",
               .help = "numbers that a narrower --dtype cannot hold become infinite (default: "
                       "refused)",
               .kind = FlagKind::toggle},
              {.long_name = "list", .target = "list", .help = "print the layouts, and stop", .kind = FlagKind::toggle}},
      .positional = {.field = "path",
                     .name = "PATH",
                     .help = "model folder, folder of a run, .gguf or llama2.c .bin",
                     .most = 1},
      .examples = {"convert --list", "convert tests/golden/model/gpt_neox --to motet --out runs/neox"}};
}

}  // namespace motet
