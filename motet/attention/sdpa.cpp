// No mix, or pairs: PyTorch's own flash kernels, forward and backward, on the CPU (row sdpa) and on a GPU (row flash).
// Widths that differ are padded with zeros to the wider one. Pairs are two heads that read one value:
// out[i] = o[2i] - lambda[i] o[2i+1].
#include <cmath>
#include <numeric>

#include "motet/attention/definition.h"
#include "motet/attention/heads.h"
#include "motet/attention/kernels.h"

namespace motet {
namespace {

std::string why_neither(const Problem& p) {
  if (p.pre.any_part() || p.post.any_part()) return "heads are mixed";
  if (p.k_BSGD.scalar_type() != p.q_BTHD.scalar_type() || p.v_BSGE.scalar_type() != p.q_BTHD.scalar_type())
    return "keys or values are narrower than queries";
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
  if (std::max(p.D, p.E) > 256) return c10::str("width ", std::max(p.D, p.E), ", want at most 256");
  return why_neither(p);
}

/// PyTorch's kernels on [B,H,T,W]: all of one number of heads and one width, a multiple of 8.
struct Heads4 {
  Tensor q, k, v;
};
struct Flash {
  std::pair<Tensor, Tensor> (*forward)(const Problem&, const Heads4&);  // out, lse [B,H,T]
  std::tuple<Tensor, Tensor, Tensor> (*backward)(const Problem&, const Heads4&, const Tensor& dout, const Tensor& out,
                                                 const Tensor& lse_BHT);
};

const Flash kOnCpu{[](const Problem& p, const Heads4& x) -> std::pair<Tensor, Tensor> {
                     auto [out, lse] =
                         at::_scaled_dot_product_flash_attention_for_cpu(x.q, x.k, x.v, 0.0, p.causal, {}, p.scale);
                     return {out, lse};
                   },
                   [](const Problem& p, const Heads4& x, const Tensor& dout, const Tensor& out, const Tensor& lse) {
                     return at::_scaled_dot_product_flash_attention_for_cpu_backward(dout, x.q, x.k, x.v, out, lse, 0.0,
                                                                                     p.causal, {}, p.scale);
                   }};

const Flash kOnGpu{[](const Problem& p, const Heads4& x) -> std::pair<Tensor, Tensor> {
                     const auto done =
                         at::_scaled_dot_product_flash_attention(x.q, x.k, x.v, 0.0, p.causal, false, p.scale);
                     return {std::get<0>(done), std::get<1>(done)};
                   },
                   [](const Problem& p, const Heads4& x, const Tensor& dout, const Tensor& out, const Tensor& lse) {
                     const auto state = x.q.options().dtype(at::kUInt64);  // of dropout, of which there is none
                     return at::_scaled_dot_product_flash_attention_backward(dout, x.q, x.k, x.v, out, lse, {}, {}, p.T,
                                                                             p.S, 0.0, p.causal, at::empty({2}, state),
                                                                             at::empty({}, state), p.scale);
                   }};

int64_t width_of(const Problem& p) { return (std::max(p.D, p.E) + 7) / 8 * 8; }

// [B,T,H,D] -> [B,H,T,width], zeros behind D.
Tensor turned(const Tensor& x, int64_t width) {
  const Tensor wide = x.size(3) == width ? x : at::constant_pad_nd(x, {0, width - x.size(3)});
  return (wide.stride(3) == 1 ? wide : wide.contiguous()).transpose(1, 2);
}
Tensor turned_back(const Tensor& x, int64_t width) { return x.transpose(1, 2).slice(3, 0, width); }

// Which stored value each softmax head reads: both of a pair that of their output.
std::vector<int64_t> values_of(const Problem& p) {
  if (!p.lambda.defined()) return p.value_of;
  std::vector<int64_t> table;
  for (const int64_t stored : p.value_of) table.insert(table.end(), 2, stored);
  return table;
}

Heads4 heads_of(const Problem& p) {
  const int64_t width = width_of(p);
  return {turned(p.q_BTHD, width), turned(spread_heads(p.k_BSGD, p.key_of), width),
          turned(spread_heads(p.v_BSGE, values_of(p)), width)};
}

Attended forward(const Problem& p, const Flash& flash) {
  const auto [out, lse] = flash.forward(p, heads_of(p));
  if (!p.lambda.defined()) return {turned_back(out, p.E), lse};
  const Tensor pairs = subtracted_pairs(out.to(p.accumulate()), p.lambda).to(out.scalar_type());
  return {turned_back(pairs, p.E), lse};
}

// lambda as [1 or B,Ho,1 or T,1]
Tensor lambda_of(const Problem& p) {
  const Tensor l = p.lambda.to(p.accumulate());
  return l.dim() == 3 ? l.permute({0, 2, 1}).unsqueeze(3) : l.view({1, -1, 1, 1});
}

// Odd ones of a pair's heads, [B,H,T,W] -> [B,H/2,T,W]; even and odd ones again.
Tensor odd(const Tensor& x) { return x.slice(1, 1, {}, 2); }
Tensor woven(const Tensor& even, const Tensor& odd) { return at::stack({even, odd}, 2).flatten(1, 2); }

Gradients backward(const Problem& p, const Backward& b, const Flash& flash) {
  const Heads4 heads = heads_of(p);
  const int64_t width = width_of(p);
  Tensor dout = turned(b.dout_BTHE.contiguous(), width), out = turned(b.out_BTHE.contiguous(), width);
  Gradients g;
  if (p.lambda.defined()) {  // o of the odd heads once more; that of the even ones is out + lambda o
    const Tensor lambda = lambda_of(p), second = flash.forward(p, {odd(heads.q), odd(heads.k), odd(heads.v)}).first;
    const auto narrow = out.scalar_type(), wide = p.accumulate();
    const Tensor first = (out.to(wide) + lambda * second.to(wide)).to(narrow);
    if (b.wanted[kLambda]) {
      const Tensor each_BHT = -(dout.to(wide) * second.to(wide)).sum(3);
      g[kLambda] = at::sum_to(each_BHT.transpose(1, 2), p.lambda.sizes()).to(p.lambda.scalar_type());
    }
    dout = woven(dout, (-lambda * dout.to(wide)).to(narrow)), out = woven(first, second);
  }
  const auto [dq, dk, dv] = flash.backward(p, heads, dout, out, b.lse_BHT);
  if (b.wanted[kQ]) g[kQ] = turned_back(dq, p.D);
  if (b.wanted[kK]) g[kK] = summed_heads(turned_back(dk, p.D), p.key_of, p.k_BSGD.size(2));
  if (b.wanted[kV]) g[kV] = summed_heads(turned_back(dv, p.E), values_of(p), p.v_BSGE.size(2));
  return g;
}

// PyTorch's kernel for the CPU gives 0 to a query all of whose logits are NaN; where there may be one the blocked path
// tells.
Attended forward_cpu(const Problem& p) {
  if (!std::isfinite((p.q_BTHD.sum(at::kDouble) + p.k_BSGD.sum(at::kDouble)).item<double>()))
    return kBlocked.forward(p);
  return forward(p, kOnCpu);
}

}  // namespace

const Kernel kSdpa{"sdpa",      why_not_cpu,
                   forward_cpu, [](const Problem& p, const Backward& b) { return backward(p, b, kOnCpu); },
                   nullptr,     nullptr};
const Kernel kFlash{"flash",
                    why_not_gpu,
                    [](const Problem& p) { return forward(p, kOnGpu); },
                    [](const Problem& p, const Backward& b) { return backward(p, b, kOnGpu); },
                    nullptr,
                    nullptr};

}  // namespace motet
