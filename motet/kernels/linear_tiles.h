#pragma once
#include "motet/core/precision.h"
#include "motet/kernels/linear.h"

namespace motet {

/// linear() by tiles of bfloat16 with sums in float32 (AMX). A float32 number is three parts whose sum it is, or with
/// the precision high two; a weight in bfloat16 or 8 bits is one, in float16 two. A row of x gives the same bits in any
/// company and on any threads, but not those of linear(). Wants a CPU with tiles: why_not_amx() of
/// motet/core/instructions.h is "".
void linear_by_tiles(std::span<const LinearTask>, const float* x, int64_t M, Precision, const Threads&);

/// The same on tiles that are loops (motet/core/tiles.h), on any CPU.
void linear_by_emulated_tiles(std::span<const LinearTask>, const float* x, int64_t M, Precision, const Threads&);

}  // namespace motet
