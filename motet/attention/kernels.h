#pragma once
#include <span>

#include "motet/attention/problem.h"
#include "motet/ops/table.h"

namespace motet {

using Gradients = std::array<Tensor, kNumInputs>;
using Wanted = std::array<bool, kNumInputs>;

/// What the forward pass left for the backward pass, the gradient that came in, and which gradients to return: those
/// that are not wanted stay undefined.
struct Backward {
  Tensor dout_BTHE, out_BTHE, lse_BHT;
  Wanted wanted;
};

enum class Form { attend, train, two_phase };  // train: a backward pass follows

/// One row of the kernel table. A null function: the kernel has no such form.
struct Kernel {
  const char* name;
  std::string (*why_not)(const Problem&);  // empty when the kernel runs the problem, else the reason
  Attended (*forward)(const Problem&);
  Gradients (*backward)(const Problem&, const Backward&);
  Tensor (*lse)(const Problem&);
  Tensor (*given_lse)(const Problem&, const Tensor& lse_BHT);
  std::string (*rather_not)(const Problem&, Form) = nullptr;  // why a later row is the better one, unless named
  bool reads_8_bits = false;                                  // keys with scales, as they are
};

extern const Kernel kCuda;      // everything but bias and float64, in our own CUDA kernels (cuda/)
extern const Kernel kFusedAmx;  // what kFused takes with products of tiles (AMX); by itself in bfloat16
extern const Kernel kFused;     // everything but bias and float64, in our own CPU kernels (cpu/)
extern const Kernel kSdpa;      // no mix, or pairs: PyTorch's own flash kernel (CPU)
extern const Kernel kFlash;     // the same on a GPU, in 16 bits
extern const Kernel kBlocked;   // everything, in torch operations, blocked over queries

/// The rows of the table `attention`, best first (motet/ops/table.h).
std::span<const Kernel* const> kernel_table();

/// The first kernel of the table that runs the problem in this form, or the one that `kernel` or MOTET_KERNEL names;
/// one that is named and cannot run it is an error.
const Kernel& choose(const Problem&, Form, const std::optional<std::string>& kernel);
/// The same among other rows.
const Kernel& choose_of(std::span<const Kernel* const> rows, const KernelTable& names, const Problem&, Form,
                        const std::optional<std::string>& kernel);
Choice explain(const Problem&, const std::optional<std::string>& kernel);

}  // namespace motet
