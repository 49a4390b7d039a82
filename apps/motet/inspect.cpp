#include "apps/motet/subcommands.h"

namespace motet {

Subcommand inspect_subcommand() {
  return {
      .name = "inspect",
      .summary = "Show what a model or run folder holds: mechanism, sizes, parameters, FLOPs and cache bytes a token",
      .flags = {},
      .positional =
          {.field = "path", .name = "PATH", .help = "model folder, or the folder of a run", .least = 1, .most = 1},
      .examples = {"inspect runs/first", "inspect runs/first --json"}};
}

}  // namespace motet
