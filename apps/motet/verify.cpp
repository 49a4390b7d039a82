#include "apps/motet/subcommands.h"

namespace motet {

Subcommand verify_subcommand() {
  return {
      .name = "verify",
      .summary = "Recompute recorded vectors and model folders with this build and report the largest error",
      .flags =
          {{.long_name = "dtype", .target = "dtype", .value = "NAME", .help = "float64 (default), float32 or bfloat16"},
           device_flag(),
           {.long_name = "tolerance", .target = "tolerance", .value = "X", .help = "largest error that passes"},
           {.long_name = "tokenizers",
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
