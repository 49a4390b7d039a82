#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"

namespace motet {

Subcommand data_subcommand() {
  return {.name = "data",
          .summary = "Turn texts into token files for training (prepare), or verify such a folder (check)",
          .flags = flags_of(prepare_options().table(), {{"tokenizer", {.letter = "m", .value = "FILE"}},
                                                        {"out", {.value = "DIR"}},
                                                        {"text_field", {.value = "NAME"}},
                                                        {"document_token", {.value = "TOKEN"}}}) +
                   std::vector<Flag>{{.long_name = "validation-text",
                                      .target = "validation_text",
                                      .value = "INPUT",
                                      .help = "texts for validation alone; may be repeated",
                                      .kind = FlagKind::list},
                                     {.long_name = "separator",
                                      .target = "separator",
                                      .value = "LINE",
                                      .help = "the line between two documents of a .txt, '' for blank lines (default: "
                                              "one a file)"}},
          .positional = {.field = "arguments",
                         .name = "ACTION",
                         .help = "prepare INPUT...: .txt, .jsonl, folders of them, .gz, .zst, - for standard input; "
                                 "check DIR",
                         .least = 1,
                         .most = SIZE_MAX},
          .examples = {"data prepare motet/data/tinyshakespeare.txt --separator '' --validation 0.1 -m bytes --out "
                       "runs/plays",
                       "data check runs/plays"}};
}

}  // namespace motet
