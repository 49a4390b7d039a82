#include "apps/motet/subcommands.h"

namespace motet {

Subcommand convert_subcommand() {
  return {
      .name = "convert",
      .summary = "Bring a model from one layout into another: published ones, GGUF and llama2.c's .bin, ours",
      .flags =
          {{.long_name = "to", .target = "to", .value = "LAYOUT", .help = "layout of the result (default: motet)"},
           {.long_name = "out", .target = "out", .value = "DIR", .help = "new folder"},
           {.long_name = "dtype",
            .target = "dtype",
            .value = "NAME",
            .help = "float64, float32, bfloat16 or float16 (default: as stored)"},
           {.long_name = "allow-overflow",
            .target = "allow_overflow",
            .help = "numbers that a narrower --dtype cannot hold become infinite (default: refused)",
            .kind = FlagKind::toggle},
           {.long_name = "mechanism",
            .target = "mechanism",
            .value = "NAME",
            .help = "coca: of a model whose config.json does not say it"},
           {.long_name = "retrofit",
            .target = "retrofit",
            .value = "NAME",
            .help = "give a plain model dcmha, talking_heads, differential_v2 or key_size, starting equal; or coca"},
           {.long_name = "seed", .target = "seed", .value = "N", .help = "of what --retrofit adds", .short_name = "s"},
           {.long_name = "list", .target = "list", .help = "print the layouts, and stop", .kind = FlagKind::toggle}},
      .positional = {.field = "path",
                     .name = "PATH",
                     .help = "model folder, folder of a run, .gguf or llama2.c .bin",
                     .most = 1},
      .examples = {"convert --list", "convert tests/golden/model/gpt_neox --to motet --out runs/neox"}};
}

}  // namespace motet
