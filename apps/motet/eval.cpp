#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"

namespace motet {

Subcommand eval_subcommand() {
  return {
      .name = "eval",
      .summary =
          "Score a model: the perplexity of a text, the likelihood of the right endings, or the answers to a task",
      .flags =
          std::vector<Flag>{
              {.long_name = "model",
               .target = "model",
               .value = "DIR",
               .help = "model folder, or the folder of a run",
               .short_name = "m"},
              {.long_name = "list", .target = "list", .help = "print the tasks, and stop", .kind = FlagKind::toggle}} +
          flags_of(eval_options().table(), {{"batch_size", {.letter = "b"}},
                                            {"ctx_size", {.letter = "c", .value = "LIST"}},
                                            {"documents", {.value = "HOW"}},
                                            {"items", {.value = "FILE"}},
                                            {"dtype", {.value = "TYPE"}},
                                            {"weights", {.value = "TYPE"}},
                                            {"precision", {.value = "HOW"}},
                                            {"device", {.value = "NAME"}}}) +
          std::vector<Flag>{
              {.long_name = "set",
               .target = "set",
               .value = "KEY=VALUE",
               .help = "rotary positions of the model: model.attention.rope_scaling, rope_factor, rope_base; sizes of "
                       "a task: data.task.tokens; may be repeated",
               .kind = FlagKind::list}},
      .positional = {.field = "arguments",
                     .name = "[TASK] FILE",
                     .help = "a task of --list (default: perplexity), and its files or folders (perplexity: also of "
                             "motet data, several of them too, or a .jsonl of examples; of a task of motet train "
                             "--task none); without files: the built-in tiny Shakespeare",
                     .most = SIZE_MAX},
      .examples = {"eval --list", "eval perplexity -m runs/first --validation 0.1 motet/data/tinyshakespeare.txt"}};
}

}  // namespace motet
