#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"

namespace motet {

Subcommand verify_subcommand() {
  return {.name = "verify",
          .summary = "Recompute recorded vectors and model folders with this build and report the largest error",
          .flags =
              flags_of(verify_options().table(), {{"device", {.value = "NAME"}}}) +
              std::vector<Flag>{{.long_name = "tokenizers",
                                 .target = "tokenizers",
                                 .value = "DIR",
                                 .help = "PATH holds cases.jsonl: check them with the tokenizer files of this folder"}},
          .positional =
              {.field = "paths",
               .name = "PATH",
               .help = "recorded safetensors files, model folders with expected.safetensors, or folders of both; with "
                       "--tokenizers a folder with cases.jsonl",
               .least = 1,
               .most = SIZE_MAX},
          .examples = {"verify tests/golden/op tests/golden/model", "verify tests/golden/op --dtype float32 --json"}};
}

}  // namespace motet
