#pragma once
#include "motet/attention/cuda/general-inl.h"

// What blocks leave apart, summed in their order. These kernels are no templates, so one file includes them:
// general.cu.
namespace motet::cuda::general {

/// stats and lse of all keys from those of the parts; with an lse that is given, stats from it.
MOTET_KERNEL(kThreads)
join_stats(const MOTET_PARAMETER Call c) {
  const int64_t rows = static_cast<int64_t>(c.a.B) * c.a.softmax_heads * c.a.T;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rows || (c.only && !c.only[at / c.a.T / c.a.softmax_heads])) return;
  if (!c.parts) {
    c.stats[at] = {c.lse[at], 1};
    return;
  }
  float top = -INFINITY, sum = 0;
  for (int part = 0; part < c.parts; ++part) top = fmaxf(top, c.stats[part * rows + at].x);
  for (int part = 0; part < c.parts; ++part) {
    const float2 one = c.stats[part * rows + at];
    if (one.x != -INFINITY || one.y != 0) sum += one.y * expf(one.x - top);
  }
  c.stats[at] = {top, sum};
  if (c.lse) c.lse[at] = sum == 0 ? -INFINITY : top + logf(sum);
}

/// out from those of the parts, in their order.
MOTET_KERNEL(kThreads)
join_outputs(const MOTET_PARAMETER Call c) {
  const int64_t count = static_cast<int64_t>(c.a.B) * c.a.T * c.a.output_heads * c.a.E;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= count || (c.only && !c.only[at / (count / c.a.B)])) return;
  float sum = 0;
  for (int part = 0; part < c.parts; ++part) sum += c.partial_out[part * count + at];
  store(c.out, c.a.q.type, at, sum);
}

/// Gradients of the static weights, over the blocks in their order.
struct WeightSums {
  const float* from[2];
  float* to[2];
  int numbers[2], blocks, B;
  const int* only;  // as in Call: the sums are added to what is there
};
MOTET_KERNEL(kThreads)
join_weights(const MOTET_PARAMETER WeightSums s) {
  bool any = !s.only;
  for (int b = 0; !any && b < s.B; ++b) any = s.only[b] != 0;
  if (!any) return;  // as nearly always behind the tensor kernels
  for (int which = 0; which < 2; ++which) {
    const int at = static_cast<int>(blockIdx.x) * kThreads + threadIdx.x;
    if (!s.to[which] || at >= s.numbers[which]) continue;
    float sum = s.only ? s.to[which][at] : 0;
    for (int block = 0; block < s.blocks; ++block)
      if (!s.only || s.only[block % s.B]) sum += s.from[which][static_cast<int64_t>(block) * s.numbers[which] + at];
    s.to[which][at] = sum;
  }
}

}  // namespace motet::cuda::general
