#include "apps/motet/subcommands.h"

namespace motet {

const std::vector<Subcommand>& subcommands() {
  static const std::vector<Subcommand> all = {compare_subcommand(),  train_subcommand(),    eval_subcommand(),
                                              generate_subcommand(), chat_subcommand(),     convert_subcommand(),
                                              inspect_subcommand(),  doctor_subcommand(),   bench_subcommand(),
                                              verify_subcommand(),   tokenize_subcommand(), data_subcommand()};
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

Flag device_flag(const char* target) {
  return {.long_name = "device",
          .target = target,
          .value = "NAME",
          .help = "cpu, cuda or cuda:N (default: auto, a GPU if there is one)"};
}

std::vector<Flag> configuration_flags() {
  return {
      {.long_name = "config", .target = "config", .value = "FILE", .help = "TOML file with [model] [data] [train]"},
      {.long_name = "set",
       .target = "set",
       .value = "KEY=VALUE",
       .help = "any key of the configuration, as in train.learning_rate=3e-4; may be repeated",
       .kind = FlagKind::list},
      {.long_name = "steps", .target = "train.steps", .value = "N", .help = "budget: steps of the optimiser"},
      {.long_name = "tokens", .target = "train.tokens", .value = "N", .help = "budget: tokens read"},
      {.long_name = "minutes", .target = "train.minutes", .value = "X", .help = "budget: minutes a model"},
      {.long_name = "hidden-size", .target = "model.hidden_size", .value = "N", .help = "width of the model"},
      {.long_name = "num-layers", .target = "model.num_layers", .value = "N", .help = "blocks"},
      {.long_name = "num-heads", .target = "model.attention.num_heads", .value = "N", .help = "attention heads"},
      {.long_name = "ctx-size",
       .target = "train.context",
       .value = "N",
       .help = "tokens in a window of text",
       .short_name = "c"},
      {.long_name = "batch-size",
       .target = "train.batch_size",
       .value = "N",
       .help = "windows in a step",
       .short_name = "b"},
      {.long_name = "learning-rate", .target = "train.learning_rate", .value = "X", .help = "highest of the schedule"},
      {.long_name = "dtype",
       .target = "train.dtype",
       .value = "NAME",
       .help = "float32, float64 or bfloat16 (autocast)"},
      device_flag("train.device"),
      {.long_name = "seed", .target = "train.seed", .value = "N", .help = "of the initial weights", .short_name = "s"},
      {.long_name = "tokenizer",
       .target = "data.tokenizer",
       .value = "NAME",
       .help = "chars, bytes, or the file or folder of a tokenizer"},
      {.long_name = "validation",
       .target = "data.validation",
       .value = "X",
       .help = "part of the text, at its end, that is kept for validation"},
      {.long_name = "documents",
       .target = "data.documents",
       .value = "HOW",
       .help = "of prepared data: packed, or apart: none sees another (default: packed)"},
      {.long_name = "eval-every", .target = "train.eval_every", .value = "N", .help = "steps between evaluations"},
      {.long_name = "dry-run",
       .target = "dry_run",
       .help = "print configuration, parameters, memory and FLOPs, and stop",
       .kind = FlagKind::toggle},
  };
}

}  // namespace motet
