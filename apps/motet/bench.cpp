#include "apps/motet/subcommands.h"

namespace motet {

Subcommand bench_subcommand() {
  return {
      .name = "bench",
      .summary = "Measure speed against plain attention in the same run",
      .flags = {{.long_name = "shape",
                 .target = "shape",
                 .value = "LIST",
                 .help = "sizes between commas, as in T=512,H=8,D=64,B=1,mechanism=dcmha"},
                {.long_name = "repeats", .target = "repeats", .value = "N", .help = "measurements; the median counts"},
                {.long_name = "goals",
                 .target = "goals",
                 .help = "attention: the goals of the fused kernels, with what each reaches; exit 1 if one falls short",
                 .kind = FlagKind::toggle},
                {.long_name = "mechanisms",
                 .target = "mechanisms",
                 .value = "LIST",
                 .help = "train, infer: whose models take turns, as in mha,dcmha (default: mha)"},
                {.long_name = "model",
                 .target = "model",
                 .value = "DIR",
                 .help = "infer: a model folder in place of drawn weights",
                 .short_name = "m"},
                {.long_name = "weights",
                 .target = "weights",
                 .value = "LIST",
                 .help = "infer: of float32, bfloat16 and int8 (default: float32,int8)"},
                {.long_name = "rivals",
                 .target = "rivals",
                 .value = "LIST",
                 .help = "infer: of llama_cpp and transformers, or none (default: both; bench/requirements.txt)"},
                device_flag(),
                {.long_name = "python",
                 .target = "python",
                 .value = "PATH",
                 .help =
                     "train, infer, --goals: the Python with torch that runs the rivals (default: .venv/bin/python)"}},
      .positional =
          {.field = "what", .name = "WHAT", .help = "attention, memory, train or infer", .least = 1, .most = 1},
      .examples = {"bench attention", "bench attention --shape T=256,H=4,D=32,B=1,mechanism=dcmha --repeats 5"}};
}

}  // namespace motet
