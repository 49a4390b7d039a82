#include "apps/motet/subcommands.h"

namespace motet {

const std::vector<Subcommand>& subcommands() {
  static const std::vector<Subcommand> all = {
      compare_subcommand(), train_subcommand(),    eval_subcommand(),    generate_subcommand(),  chat_subcommand(),
      serve_subcommand(),   convert_subcommand(),  inspect_subcommand(), doctor_subcommand(),    bench_subcommand(),
      verify_subcommand(),  tokenize_subcommand(), data_subcommand(),    experiment_subcommand()};
  return all;
}

std::vector<Flag> all_flags(const Subcommand& subcommand) {
  std::vector<Flag> flags = subcommand.flags;
  flags.push_back({.long_name = "threads",
                   .target = "threads",
                   .value = "N",
                   .help = "processor threads (default: all, or MOTET_THREADS)",
                   .short_name = "t"});
  if (!subcommand.has_results) return flags;
  flags.insert(flags.end(),
               {{.long_name = "output",
                 .target = "output",
                 .value = "FORMAT",
                 .help = "of the results: table, json, jsonl, csv or md (default: table)",
                 .short_name = "o"},
                {.long_name = "json", .target = "json", .help = "the same as -o json", .kind = FlagKind::toggle}});
  return flags;
}

}  // namespace motet
