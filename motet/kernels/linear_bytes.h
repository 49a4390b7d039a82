#pragma once
#include "motet/kernels/linear.h"

namespace motet {

/// Rows of W in 8 bits times rows of x, by a CPU's products of bytes (AVX-512 VNNI). A number of x becomes a whole
/// number of 24 bits, in units of its row's own power of two: it is off by at most 1.2e-7 of the row's largest, as a
/// sum in float32 is when it has met that one. Numbers much smaller than it lose bits, and of a row without one beyond
/// 1e-31 those below 1e-38 are lost; one that is not finite makes the row's y NaN. Nothing else is rounded before the
/// sum is, once. A row of x gives the same bits in any company because sums of whole numbers have no order.
namespace bytes {

/// Whether this CPU can, for rows of K numbers: their sums are of 32 bits.
bool can_multiply(int64_t K);

/// Bytes of M rows of x after split().
int64_t size(int64_t M, int64_t K);

/// Rows of x that are split by one call at least; a part begins at a multiple of them.
inline constexpr int64_t kTileRows = 4;

/// Rows [first, first + count) of x [M,K] to their place in `rows`, at a multiple of 64 bytes.
void split(const float* x, int64_t first, int64_t count, int64_t K, int8_t* rows);

/// Rows of W that are multiplied at once: a part that is not a multiple of them wastes time.
int64_t block(int64_t M, int64_t K);

/// Bytes of memory of its own that multiply() wants, at a multiple of 64 bytes.
int64_t space(int64_t M, int64_t K);

/// y[:, begin:end] of a layer in 8 bits from all M rows of x; the caller goes on with those up to `next`.
void multiply(const LinearTask&, int64_t begin, int64_t end, int64_t next, const int8_t* rows, int64_t M,
              int8_t* space);

}  // namespace bytes
}  // namespace motet
