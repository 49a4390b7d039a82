#include "apps/motet/subcommands.h"

namespace motet {

Subcommand doctor_subcommand() {
  return {.name = "doctor",
          .summary = "Show versions, processor, threads, GPU and which kernels run, with reasons",
          .flags = {},
          .examples = {"doctor", "doctor --json"}};
}

}  // namespace motet
