#include "apps/motet/subcommands.h"

namespace motet {

Subcommand eval_subcommand() {
  return {
      .name = "eval",
      .summary = "Score a model: the perplexity of a text, or the likelihood of the right endings",
      .flags = {{.long_name = "model",
                 .target = "model",
                 .value = "DIR",
                 .help = "model folder, or the folder of a run",
                 .short_name = "m"},
                {.long_name = "list", .target = "list", .help = "print the tasks, and stop", .kind = FlagKind::toggle},
                {.long_name = "batch-size",
                 .target = "batch_size",
                 .value = "N",
                 .help = "windows or items at once",
                 .short_name = "b"},
                {.long_name = "ctx-size",
                 .target = "ctx_size",
                 .value = "N",
                 .help = "tokens in a window or an item (default: the model's)",
                 .short_name = "c"},
                {.long_name = "stride",
                 .target = "stride",
                 .value = "N",
                 .help = "perplexity: tokens from one window to the next (default: a whole window)"},
                {.long_name = "documents",
                 .target = "documents",
                 .value = "HOW",
                 .help = "perplexity of prepared data: packed, or apart: none sees another (default: packed)"},
                {.long_name = "limit",
                 .target = "limit",
                 .value = "N",
                 .help = "endings: only the first N items of each file"},
                {.long_name = "items",
                 .target = "items",
                 .value = "FILE",
                 .help = "endings: results item by item (JSON lines), from which an interrupted run goes on"},
                {.long_name = "dtype",
                 .target = "dtype",
                 .value = "TYPE",
                 .help = "float32, float64, bfloat16 (autocast) or auto: as it was trained (default)"},
                device_flag()},
      .positional = {.field = "arguments",
                     .name = "[TASK] FILE",
                     .help =
                         "a task of --list (default: perplexity), and its files or folders (perplexity: also of motet "
                         "data); without "
                         "files: the built-in tiny Shakespeare",
                     .most = SIZE_MAX},
      .examples = {"eval --list", "eval perplexity -m runs/first motet/data/tinyshakespeare.txt"}};
}

}  // namespace motet
