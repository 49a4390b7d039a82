#include "apps/motet/flags.h"
#include "apps/motet/subcommands.h"
#include "motet/commands/options.h"

namespace motet {

std::vector<Flag> sampling_flags() {
  return flags_of(sampling_options().table(), {{"n_predict", {.letter = "n"}},
                                               {"cache_type", {.value = "TYPE"}},
                                               {"weights", {.value = "TYPE"}},
                                               {"precision", {.value = "HOW"}},
                                               {"device", {.value = "NAME"}},
                                               {"seed", {.letter = "s"}}}) +
         std::vector<Flag>{{.long_name = "stop",
                            .target = "stop",
                            .value = "TEXT",
                            .help = "ends the text where it appears; may be repeated",
                            .kind = FlagKind::list},
                           {.long_name = "ignore-eos",
                            .target = "ignore_eos",
                            .help = "go on behind the tokens that end a text (default: the text ends there)",
                            .kind = FlagKind::toggle}};
}

}  // namespace motet
