#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"

namespace motet {

Subcommand train_subcommand() {
  return {
      .name = "train",
      .summary = "Train one model and write its checkpoints and metrics",
      .flags =
          std::vector<Flag>{{.long_name = "mechanism",
                             .target = "model.attention.mechanism",
                             .value = "NAME",
                             .help = "as a contender of compare: mha, differential_v2, dcmha:rank=1"},
                            {.long_name = "task",
                             .target = "data.task.name",
                             .value = "NAME",
                             .help = "train on where-select, noisy-recall, passkey, episodes or facts in place of a "
                                     "text; --set data.task.KEY=VALUE has its options, which --options prints"},
                            {.long_name = "out",
                             .target = "out",
                             .value = "DIR",
                             .help = "folder of the run (default: runs/train-<time>)"},
                            {.long_name = "init",
                             .target = "init",
                             .value = "DIR",
                             .help = "start from this model and its tokenizer: model folder, or the folder of a "
                                     "run"},
                            {.long_name = "resume",
                             .target = "resume",
                             .value = "RUN",
                             .help = "go on with this run, as if it had never stopped; auto: with that of --out, or "
                                     "begin it"},
                            {.long_name = "freeze",
                             .target = "freeze",
                             .value = "PATTERN",
                             .help = "parameters that do not learn, '*' for anything; '!PATTERN': that do after "
                                     "all",
                             .kind = FlagKind::list},
                            {.long_name = "options",
                             .target = "options",
                             .help = "print every key of the configuration as TOML that --config reads, and stop",
                             .kind = FlagKind::toggle}} +
          flags_of(train_request_options().table(), {{"prompt", {.letter = "p"}}, {"n_predict", {.letter = "n"}}}) +
          configuration_flags(train_defaults()),
      .positional = training_texts(),
      .examples = {"train --mechanism dcmha --steps 100 --out runs/first", "train --resume runs/first --steps 200",
                   "train --set model.attention.num_heads=8 --learning-rate 1e-3 --steps 20"}};
}

}  // namespace motet
