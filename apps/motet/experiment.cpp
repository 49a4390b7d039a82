#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"

namespace motet {

Subcommand experiment_subcommand() {
  return {
      .name = "experiment",
      .summary = "Test a claim about attention: run its experiment, and let its rules decide",
      .flags = flags_of(experiment_options().table(), {{"folder", {.value = "DIR"}},
                                                       {"data", {.value = "DIR"}},
                                                       {"arms", {.value = "LIST"}},
                                                       {"cells", {.value = "K/N"}},
                                                       {"minutes", {.value = "M"}}}) +
               std::vector<Flag>{{.long_name = "dry-run",
                                  .target = "dry_run",
                                  .help = "run: print what would run, and how long it takes on this machine",
                                  .kind = FlagKind::toggle},
                                 {.long_name = "check",
                                  .target = "check",
                                  .help = "report: change nothing; exit 1 when something is not what the results say",
                                  .kind = FlagKind::toggle}},
      .positional = {.field = "arguments",
                     .name = "ACTION [ID]",
                     .help =
                         "list; run ID; report [ID]; merge DIR, a folder of experiments with cells of another machine",
                     .most = SIZE_MAX},
      .examples = {"experiment list", "experiment run X3 --dry-run"}};
}

}  // namespace motet
