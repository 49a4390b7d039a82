#include "motet/probe/rounding.h"

#include <algorithm>
#include <limits>

#include "motet/core/error.h"
#include "motet/probe/calls.h"

namespace motet {
namespace {

// The largest size of what is seen, by what shares a scale.
Tensor largest_of(const Tensor& logits_BHTS, const Tensor& hidden_BHTS, LogitRounding::Per per) {
  const Tensor row = logits_BHTS.masked_fill(hidden_BHTS, 0).abs().amax(3, true);
  if (per == LogitRounding::Per::row) return row;
  return per == LogitRounding::Per::head ? row.amax(2, true) : row.amax({1, 2}, true);
}

Tensor rounded_output(const Call& call, const LogitRounding& rounding) {
  const int64_t T = call.q.q_BTHD.size(1), step = queries_of_block(call);
  const auto each_block = [&](const auto& look) {
    for (int64_t t0 = 0; t0 < T; t0 += step) look(block(call, t0, std::min(t0 + step, T)));
  };
  Tensor shared;  // the scale of all queries
  if (rounding.per != LogitRounding::Per::row)
    each_block([&](const Call& part) {
      const AttentionMaps maps = attention_maps(part.q, part.k, part.attention);
      const Tensor own = largest_of(maps.logits_BHTS, maps.hidden_BHTS, rounding.per);
      shared = shared.defined() ? at::maximum(shared, own) : own;
    });
  std::vector<Tensor> out;
  each_block([&](const Call& part) {
    const auto change = [&](const Tensor& logits, const Tensor& hidden) {
      const Tensor largest = shared.defined() ? shared : largest_of(logits, hidden, rounding.per);
      return rounded_logits(logits, largest, rounding.bits);
    };
    out.push_back(attention_maps(part.q, part.k, part.attention, change).out_BTHE);
  });
  return at::cat(out, 1);
}

}  // namespace

Tensor rounded_logits(const Tensor& logits, const Tensor& largest, int64_t bits) {
  const double steps = static_cast<double>((int64_t{1} << (bits - 1)) - 1);
  const Tensor scale = steps / largest.clamp_min(std::numeric_limits<float>::min());
  return (logits * scale).round() / scale;
}

ModelImpl::Attend rounded_attention(const Positions& at, const LogitRounding& rounding) {
  if (rounding.bits < 2 || rounding.bits > 16) fail_usage("logits of ", rounding.bits, " bits, want 2 to 16");
  return [at, rounding](int64_t, BlockImpl& block, const Tensor& normed) {
    at::NoGradGuard no_grad;
    Mechanism& m = *block.self_attn;
    const Call call{m.queries(normed, at), m.keys(normed, at), m.attention(at, at, Pass::whole)};
    return m.finish(rounded_output(call, rounding), normed);
  };
}

}  // namespace motet
