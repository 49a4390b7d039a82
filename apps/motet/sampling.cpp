#include "apps/motet/subcommands.h"

namespace motet {

const std::vector<Flag>& sampling_flags() {
  static const std::vector<Flag> flags = {
      {.long_name = "n-predict", .target = "n_predict", .value = "N", .help = "tokens at most", .short_name = "n"},
      {.long_name = "temp", .target = "temp", .value = "X", .help = "temperature; 0 takes the likeliest token"},
      {.long_name = "top-k", .target = "top_k", .value = "N", .help = "only the N likeliest tokens; 0: all"},
      {.long_name = "top-p", .target = "top_p", .value = "X", .help = "only the likeliest tokens that sum to X"},
      {.long_name = "min-p",
       .target = "min_p",
       .value = "X",
       .help = "only tokens at least X times as likely as the likeliest"},
      {.long_name = "typical-p",
       .target = "typical_p",
       .value = "X",
       .help = "only the most typical tokens that sum to X"},
      {.long_name = "repeat-penalty",
       .target = "repeat_penalty",
       .value = "X",
       .help = "divides the logits of tokens seen before; 1: off"},
      {.long_name = "frequency-penalty",
       .target = "frequency_penalty",
       .value = "X",
       .help = "taken from a logit for each time that its token was seen"},
      {.long_name = "presence-penalty",
       .target = "presence_penalty",
       .value = "X",
       .help = "taken from the logits of tokens seen before"},
      {.long_name = "cache-type",
       .target = "cache_type",
       .value = "TYPE",
       .help = "how keys and values are kept: model, bfloat16, float16 or int8"},
      {.long_name = "compact-cache",
       .target = "compact_cache",
       .help = "keys in the mechanism's smaller form, made whole in every step (CoCA: 3/4 of the bytes)",
       .kind = FlagKind::toggle},
      {.long_name = "weights",
       .target = "weights",
       .value = "TYPE",
       .help = "how the model's matrices are kept: float32, bfloat16 or int8"},
      {.long_name = "stepwise-base",
       .target = "stepwise_base",
       .help = "dynamic position scaling by the length reached, as published, not by the planned one",
       .kind = FlagKind::toggle},
      {.long_name = "seed", .target = "seed", .value = "N", .help = "of the random choice", .short_name = "s"},
      {.long_name = "stop",
       .target = "stop",
       .value = "TEXT",
       .help = "ends the text where it appears; may be repeated",
       .kind = FlagKind::list}};
  return flags;
}

}  // namespace motet
