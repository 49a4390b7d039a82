// No mix and equal widths: PyTorch's own flash kernels, forward and backward, on the CPU (row sdpa) and on a GPU (row
// flash).
#include <cmath>
#include <numeric>

#include "motet/attention/heads.h"
#include "motet/attention/kernels.h"

namespace motet {
namespace {

std::string why_neither(const Problem& p) {
  if (!p.mixes_nothing()) return "heads are mixed";
  if (p.k_BSGD.scalar_type() != p.q_BTHD.scalar_type() || p.v_BSGE.scalar_type() != p.q_BTHD.scalar_type())
    return "keys or values are narrower than queries";
  if (p.D != p.E) return c10::str("key width ", p.D, " differs from value width ", p.E);
  if (p.bias_BHTS.defined()) return "there is a bias";
  for (int i = 0; i < kNumTables; ++i)
    if (p.table[i].defined()) return c10::str("there is a table ", table_name(i));
  if (p.window > 0 && p.window < p.S) return "there is a window";
  if (p.causal && p.T != p.S) return "causal with other numbers of queries and keys";
  if (p.T == 0 || p.S == 0 || p.B == 0) return "empty";
  return "";
}

std::string why_not_cpu(const Problem& p) { return p.q_BTHD.is_cpu() ? why_neither(p) : "only on the CPU"; }

std::string why_not_gpu(const Problem& p) {
  if (!p.q_BTHD.is_cuda()) return "only on a GPU";
  if (p.q_BTHD.scalar_type() != at::kBFloat16 && p.q_BTHD.scalar_type() != at::kHalf) return "only in 16 bits";
  if (p.D % 8 || p.D > 256) return c10::str("key width ", p.D, ", want a multiple of 8 up to 256");
  return why_neither(p);
}

Tensor heads_of(const Tensor& x_BSGD, const std::vector<int64_t>& table) {
  const Tensor x = spread_heads(x_BSGD, table);
  return x.stride(3) == 1 ? x.transpose(1, 2) : x.contiguous().transpose(1, 2);
}

std::vector<int64_t> every_head(const Problem& p) {
  std::vector<int64_t> heads(p.score_heads);
  std::iota(heads.begin(), heads.end(), 0);
  return heads;
}

// PyTorch's kernel gives 0 to a query all of whose logits are NaN; where there may be one the blocked path tells.
Attended forward_cpu(const Problem& p) {
  if (!std::isfinite((p.q_BTHD.sum(at::kDouble) + p.k_BSGD.sum(at::kDouble)).item<double>()))
    return kBlocked.forward(p);
  auto [out, lse] =
      at::_scaled_dot_product_flash_attention_for_cpu(heads_of(p.q_BTHD, every_head(p)), heads_of(p.k_BSGD, p.key_of),
                                                      heads_of(p.v_BSGE, p.value_of), 0.0, p.causal, {}, p.scale);
  return {out.transpose(1, 2), lse};
}

// Of q, k and v, [B,H,T,D] each.
Gradients wanted_of(const Problem& p, const Backward& b, const std::tuple<Tensor, Tensor, Tensor>& all) {
  const auto& [dq, dk, dv] = all;
  Gradients g;
  if (b.wanted[kQ]) g[kQ] = dq.transpose(1, 2);
  if (b.wanted[kK]) g[kK] = summed_heads(dk.transpose(1, 2), p.key_of, p.k_BSGD.size(2));
  if (b.wanted[kV]) g[kV] = summed_heads(dv.transpose(1, 2), p.value_of, p.v_BSGE.size(2));
  return g;
}

Gradients backward_cpu(const Problem& p, const Backward& b) {
  return wanted_of(p, b,
                   at::_scaled_dot_product_flash_attention_for_cpu_backward(
                       b.dout_BTHE.contiguous().transpose(1, 2), heads_of(p.q_BTHD, every_head(p)),
                       heads_of(p.k_BSGD, p.key_of), heads_of(p.v_BSGE, p.value_of),
                       b.out_BTHE.contiguous().transpose(1, 2), b.lse_BHT, 0.0, p.causal, {}, p.scale));
}

Attended forward_gpu(const Problem& p) {
  const auto done =
      at::_scaled_dot_product_flash_attention(heads_of(p.q_BTHD, every_head(p)), heads_of(p.k_BSGD, p.key_of),
                                              heads_of(p.v_BSGE, p.value_of), 0.0, p.causal, false, p.scale);
  return {std::get<0>(done).transpose(1, 2), std::get<1>(done)};
}

Gradients backward_gpu(const Problem& p, const Backward& b) {
  const auto state = p.q_BTHD.options().dtype(at::kUInt64);  // of dropout, of which there is none
  return wanted_of(
      p, b,
      at::_scaled_dot_product_flash_attention_backward(
          b.dout_BTHE.contiguous().transpose(1, 2), heads_of(p.q_BTHD, every_head(p)), heads_of(p.k_BSGD, p.key_of),
          heads_of(p.v_BSGE, p.value_of), b.out_BTHE.contiguous().transpose(1, 2), b.lse_BHT, {}, {}, p.T, p.S, 0.0,
          p.causal, at::empty({2}, state), at::empty({}, state), p.scale));
}

}  // namespace

const Kernel kSdpa{"sdpa", why_not_cpu, forward_cpu, backward_cpu, nullptr, nullptr};
const Kernel kFlash{"flash", why_not_gpu, forward_gpu, backward_gpu, nullptr, nullptr};

}  // namespace motet
