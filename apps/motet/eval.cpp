#include "apps/motet/subcommands.h"

namespace motet {

Subcommand eval_subcommand() {
  return {
      .name = "eval",
      .summary = "Score a model on a text",
      .flags =
          {{.long_name = "model",
            .target = "model",
            .value = "DIR",
            .help = "model folder, or the folder of a run",
            .short_name = "m"},
           {.long_name = "task", .target = "task", .value = "NAME", .help = "what to measure (default: perplexity)"},
           {.long_name = "list", .target = "list", .help = "print the tasks, and stop", .kind = FlagKind::toggle},
           {.long_name = "batch-size",
            .target = "batch_size",
            .value = "N",
            .help = "windows at once",
            .short_name = "b"},
           {.long_name = "ctx-size",
            .target = "ctx_size",
            .value = "N",
            .help = "tokens in a window (default: the model's)",
            .short_name = "c"},
           {.long_name = "documents",
            .target = "documents",
            .value = "HOW",
            .help = "of prepared data: packed, or apart: none sees another (default: packed)"}},
      .positional = {.field = "texts",
                     .name = "TEXT",
                     .help = "files, folders of *.txt, or one of motet data (default: the built-in tiny Shakespeare)",
                     .most = SIZE_MAX},
      .examples = {"eval --list", "eval -m runs/first motet/data/tinyshakespeare.txt"}};
}

}  // namespace motet
