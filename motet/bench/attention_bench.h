// `motet bench attention`: the operator against PyTorch's SDPA and against its own definition in eager torch
// operations.
#pragma once

#include <optional>

#include "motet/bench/operators.h"
#include "motet/bench/timing.h"
#include "motet/core/options.h"

namespace motet {

/// B, T, H, D and mechanism ("all": every row of benched_operators).
const OptionTable& attention_shape_options();

struct AttentionCase {
  std::string mechanism;
  AttentionSize size;
};

/// The cases of a --shape: one mechanism or all at its sizes; without a --shape, a few sizes for all.
std::vector<AttentionCase> attention_cases(const std::string& shape);

/// Medians of one case and one pass.
struct AttentionTimes {
  AttentionCase what;
  std::string kernel;
  bool backward = false;      // forward and backward, else forward alone
  Time ours, sdpa;            // sdpa: causal MHA of equal B, T, H, D
  std::optional<Time> eager;  // the definition under autograd; absent where it would not fit in memory
};

/// Runs on the device. Throws Error unless output and gradients agree with the float64 definition on the CPU within 2x
/// the error of the float32 definition + 8 eps max|reference| (at T <= 512).
void check_operator(const AttentionCase&, at::Device = at::kCPU);

/// Both passes; checks the operator first.
std::vector<AttentionTimes> measure_attention(const AttentionCase&, Turns, at::Device = at::kCPU);

}  // namespace motet
