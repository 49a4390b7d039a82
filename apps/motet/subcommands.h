// One table each, in the file of its name.
#pragma once

#include "apps/motet/cli.h"

namespace motet {

Subcommand compare_subcommand();
Subcommand train_subcommand();
Subcommand eval_subcommand();
Subcommand generate_subcommand();
Subcommand chat_subcommand();
Subcommand serve_subcommand();
Subcommand convert_subcommand();
Subcommand inspect_subcommand();
Subcommand doctor_subcommand();
Subcommand bench_subcommand();
Subcommand verify_subcommand();
Subcommand tokenize_subcommand();
Subcommand data_subcommand();
Subcommand experiment_subcommand();

/// How tokens are drawn and kept, of generate and chat.
std::vector<Flag> sampling_flags();

}  // namespace motet
