#include "apps/motet/subcommands.h"

namespace motet {

Subcommand data_subcommand() {
  return {.name = "data",
          .summary = "Turn texts into token files for training (prepare), or verify such a folder (check)",
          .flags = {{.long_name = "tokenizer",
                     .target = "tokenizer",
                     .value = "FILE",
                     .help = "a tokenizer's file or folder, or bytes",
                     .short_name = "m"},
                    {.long_name = "out", .target = "out", .value = "DIR", .help = "the new folder"},
                    {.long_name = "validation",
                     .target = "validation",
                     .value = "X",
                     .help = "keep every 1/X-th document for validation (default: 0, none)"},
                    {.long_name = "validation-text",
                     .target = "validation_text",
                     .value = "INPUT",
                     .help = "texts for validation alone; may be repeated",
                     .kind = FlagKind::list},
                    {.long_name = "separator",
                     .target = "separator",
                     .value = "LINE",
                     .help = "the line between two documents of a .txt, '' for blank lines (default: one a file)"},
                    {.long_name = "text-field",
                     .target = "text_field",
                     .value = "NAME",
                     .help = "what lines of JSON call the text (default: text)"},
                    {.long_name = "format",
                     .target = "format",
                     .value = "NAME",
                     .help = "txt or jsonl (default: by the file's name; standard input: txt)"},
                    {.long_name = "document-token",
                     .target = "document_token",
                     .value = "TOKEN",
                     .help = "stands before each document, or none (default: <|endoftext|> or <s>, if there is one)"},
                    {.long_name = "shard-tokens",
                     .target = "shard_tokens",
                     .value = "N",
                     .help = "tokens of each file but the last (default: 100000000)"}},
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
