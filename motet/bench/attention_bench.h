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
  at::ScalarType type = at::kFloat;  // of all that is timed, the rivals too
};

/// The cases of a --shape: one mechanism or all at its sizes; without a --shape, a few sizes for all.
std::vector<AttentionCase> attention_cases(const std::string& shape, at::ScalarType = at::kFloat);

/// Medians of one case and one pass.
struct AttentionTimes {
  AttentionCase what;
  std::string kernel;
  bool backward = false;      // forward and backward, else forward alone
  Time ours, sdpa;            // sdpa: causal MHA of equal B, T, H, D
  std::optional<Time> eager;  // attention/eager.h in the same dtype; absent where it would not fit in memory
};

/// Runs on the device at T <= 512, with arguments as `change` makes them (a window, other queries, a dtype). Throws
/// Error unless outputs, with and without autograd, and gradients agree with the float64 definition on the CPU: in
/// float32 within 2x the error of the float32 definition + 8 eps max|reference|; in 16 bits at most as far, by the
/// 2-norm, as eager PyTorch in the same dtype is, in float16 1.75 times as far (motet/attention/rounding_test.cpp), and
/// one number by an epsilon of its size more.
void check_operator(const AttentionCase&, at::Device = at::kCPU,
                    const std::function<Arguments(Arguments)>& change = {});

/// Both passes; checks the operator first.
std::vector<AttentionTimes> measure_attention(const AttentionCase&, Turns, at::Device = at::kCPU);

}  // namespace motet
