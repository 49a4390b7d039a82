#pragma once
#include "motet/kernels/cuda/team-inl.h"

// Cross entropy: logits are read once forward and once backward, as they are.
namespace motet::cuda::step {

inline constexpr float kLog2OfE = 1.44269504f;
MOTET_DEVICE float exponential(float x) { return power_of_2(x * kLog2OfE); }

struct LossCall {
  TokenLoss l;
  TokenLosses made;
  TokenLossIncoming from;
  void* dlogits;
};

MOTET_DEVICE int64_t logits_at(const TokenLoss& l, int64_t row) {
  return row / l.group * l.group_stride + row % l.group * l.logits.stride;
}

template <int kLanes, int kCount>
MOTET_KERNEL(kThreads)
loss_forward(const MOTET_PARAMETER LossCall c) {
  const Team<kLanes> team;
  const TokenLoss& l = c.l;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * team.kTeams + team.index;
  const bool mine = row < l.rows;
  const int64_t at = mine ? logits_at(l, row) : 0;
  float top = -INFINITY, sum = 0;  // of exp(x - top)
  for (int64_t i = team.lane * kCount; mine && i < l.classes; i += kLanes * kCount) {
    float x[kCount], most = top;
    load_all<kCount>(l.logits.data, l.logits.type, at + i, x);
    MOTET_UNROLL
    for (int j = 0; j < kCount; ++j) most = fmaxf(most, x[j]);
    const float base = most == -INFINITY ? 0.f : most;
    if (most > top) sum *= exponential(top - base);
    MOTET_UNROLL
    for (int j = 0; j < kCount; ++j) sum += exponential(x[j] - base);
    top = most;
  }
  const float most = team.most(top), base = most == -INFINITY ? 0.f : most;
  const float log_sum = logf(team.sum(sum * exponential(top - base)));
  if (!mine || team.lane != 0) return;
  c.made.normalizers[2 * row] = most, c.made.normalizers[2 * row + 1] = log_sum;
  const int64_t target = l.targets[row];
  float loss = target == kIgnoredTarget ? 0.f : NAN;
  if (target >= 0 && target < l.classes) loss = log_sum - (load(l.logits.data, l.logits.type, at + target) - most);
  c.made.losses[row] = loss;
}

/// The mean of the losses, by one block.
MOTET_KERNEL(kThreads)
loss_mean(const MOTET_PARAMETER LossCall c) {
  const Team<kThreads> team;
  float sum = 0, count = 0;
  for (int64_t row = threadIdx.x; row < c.l.rows; row += kThreads)
    sum += c.made.losses[row], count += c.l.targets[row] != kIgnoredTarget ? 1.f : 0.f;
  sum = team.sum(sum), count = team.sum(count);
  if (threadIdx.x == 0) *c.made.mean = sum / count, *c.made.count = count;
}

template <int kLanes, int kCount>
MOTET_KERNEL(kThreads)
loss_backward(const MOTET_PARAMETER LossCall c) {
  const Team<kLanes> team;
  const TokenLoss& l = c.l;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * team.kTeams + team.index;
  if (row >= l.rows) return;
  const int64_t at = logits_at(l, row), target = l.targets[row];
  const float top = c.from.normalizers[2 * row], log_sum = c.from.normalizers[2 * row + 1];
  float d = c.from.count ? c.from.gradients[0] / *c.from.count : c.from.gradients[row];
  const bool ignored = target == kIgnoredTarget;
  if (!ignored && (target < 0 || target >= l.classes)) d = NAN;
  for (int64_t i = team.lane * kCount; i < l.classes; i += kLanes * kCount) {
    float x[kCount] = {};
    if (!ignored) {
      load_all<kCount>(l.logits.data, l.logits.type, at + i, x);
      MOTET_UNROLL
      for (int j = 0; j < kCount; ++j) x[j] = (exponential(x[j] - top - log_sum) - (i + j == target ? 1.f : 0.f)) * d;
    }
    store_all<kCount>(c.dlogits, l.logits.type, row * l.classes + i, x);
  }
}

// ---- the host's half -----------------------------------------------------------------------------------------------

// Few classes take a warp, never less: a row has a tail of serial work.
inline int loss_lanes(const TokenLoss& l) { return l.classes <= 1024 ? 32 : kThreads; }

inline const char* token_loss(const TokenLoss& l, const TokenLosses& made, const Runtime& run) {
  Launches to(run.stream);
  const LossCall c{l, made};
  with_team<32>(loss_lanes(l), vector_rows(l.classes, {l.logits, {l.logits.data, {}, l.group_stride}}),
                [&](auto lanes, auto count) {
                  constexpr int kLanes = decltype(lanes)::value, kCount = decltype(count)::value;
                  to.run(loss_forward<kLanes, kCount>, blocks_of(l.rows, Team<kLanes>::kTeams), 1, kThreads, kTeamBytes,
                         c);
                });
  if (made.mean) to.run(loss_mean, 1, 1, kThreads, kTeamBytes, c);
  return to.error();
}

inline const char* token_loss_backward(const TokenLoss& l, const TokenLossIncoming& from, void* dlogits,
                                       const Runtime& run) {
  Launches to(run.stream);
  const LossCall c{l, {}, from, dlogits};
  with_team<32>(loss_lanes(l), vector_rows(l.classes, {l.logits, {l.logits.data, {}, l.group_stride}, {dlogits}}),
                [&](auto lanes, auto count) {
                  constexpr int kLanes = decltype(lanes)::value, kCount = decltype(count)::value;
                  to.run(loss_backward<kLanes, kCount>, blocks_of(l.rows, Team<kLanes>::kTeams), 1, kThreads, 0, c);
                });
  return to.error();
}

}  // namespace motet::cuda::step
