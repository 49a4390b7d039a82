#include "apps/motet/subcommands.h"

namespace motet {

Subcommand inspect_subcommand() {
  return {
      .name = "inspect",
      .summary = "Show what a model or run folder holds: mechanism, sizes, parameters, FLOPs and cache bytes a token",
      .flags =
          {{.long_name = "mechanism",
            .target = "mechanism",
            .value = "NAME",
            .help = "coca: of a model whose config.json does not say it"},
           {.long_name = "probe",
            .target = "probe",
            .value = "TEXT",
            .help =
                "what each layer's attention does with the beginning of this file: entropy, weight of the first token, "
                "largest logit, what the mechanism tells of itself"}},
      .positional = {.field = "path",
                     .name = "PATH",
                     .help = "model folder, folder of a run, .gguf, llama2.c .bin or .safetensors",
                     .least = 1,
                     .most = 1},
      .examples = {"inspect runs/first", "inspect runs/first --json",
                   "inspect runs/first --probe motet/data/tinyshakespeare.txt"}};
}

}  // namespace motet
