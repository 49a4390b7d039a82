// No mix, or pairs: PyTorch's own flash kernels, forward and backward, on the CPU (row sdpa) and on a GPU (row flash).
// Widths that differ are padded with zeros to the wider one. Pairs are two calls whose heads read one value:
// out[i] = o[2i] - lambda[i] o[2i+1]; backward makes o[2i+1] once more, and o[2i] of it and out.
#include <algorithm>
#include <array>
#include <cmath>

#include "motet/attention/heads.h"
#include "motet/attention/kernels.h"
#include "motet/ops/device.h"

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
  if (!(p.scale > 0)) return "the scale is not positive";  // which PyTorch multiplies the -inf of hidden keys by
  return "";
}

std::string why_not_cpu(const Problem& p) { return p.q_BTHD.is_cpu() ? why_neither(p) : "only on the CPU"; }

std::string why_not_gpu(const Problem& p) {
  if (!p.q_BTHD.is_cuda()) return "only on a GPU";
  if (p.q_BTHD.scalar_type() != at::kBFloat16 && p.q_BTHD.scalar_type() != at::kHalf) return "only in 16 bits";
  if (std::max(p.D, p.E) > 256) return c10::str("width ", std::max(p.D, p.E), ", want at most 256");
  // PyTorch's kernel throws on a GPU before Ampere.
  if (const int is = compute_capability(p.q_BTHD.device()); is > 0 && is < 80)
    return c10::str("compute capability ", is / 10, ".", is % 10, ", want 8.0 or newer");
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
                     const Tensor lse = std::get<1>(done);  // inf where a logit is no number
                     return {std::get<0>(done), at::nan_to_num(lse, NAN, NAN, -INFINITY)};
                   },
                   [](const Problem& p, const Heads4& x, const Tensor& dout, const Tensor& out, const Tensor& lse) {
                     const auto state = x.q.options().dtype(at::kUInt64);  // of dropout, of which there is none
                     return at::_scaled_dot_product_flash_attention_backward(dout, x.q, x.k, x.v, out, lse, {}, {}, p.T,
                                                                             p.S, 0.0, p.causal, at::empty({2}, state),
                                                                             at::empty({}, state), p.scale);
                   }};

int64_t width_of(const Problem& p) { return (std::max(p.D, p.E) + 7) / 8 * 8; }

// Whether the kernels can read x where it lies; that of a GPU reads pieces of 16 bytes.
bool readable(const Tensor& x) {
  const auto fits = [&](int64_t bytes) { return x.is_cpu() || bytes % 16 == 0; };
  bool all = x.stride(3) == 1 && fits(static_cast<int64_t>(reinterpret_cast<intptr_t>(x.const_data_ptr())));
  for (int64_t dim = 0; dim < 3; ++dim) all &= x.size(dim) == 1 || fits(x.stride(dim) * x.element_size());
  return all;
}

// [B,T,H,D] -> [B,H,T,width], zeros behind D.
Tensor turned(const Tensor& x, int64_t width) {
  const Tensor wide = x.size(3) == width ? x : at::constant_pad_nd(x, {0, width - x.size(3)});
  return (readable(wide) ? wide : wide.clone(at::MemoryFormat::Contiguous)).transpose(1, 2);
}
Tensor turned_back(const Tensor& x, int64_t width) { return x.transpose(1, 2).slice(3, 0, width); }

Heads4 heads_of(const Problem& p) {
  const int64_t width = width_of(p);
  return {turned(p.q_BTHD, width), turned(spread_heads(p.k_BSGD, p.key_of), width),
          turned(spread_heads(p.v_BSGE, p.value_of), width)};
}
// The even heads of pairs, and the odd ones: both read the values of their outputs.
std::array<Heads4, 2> even_and_odd(const Problem& p) {
  const int64_t width = width_of(p);
  const Tensor k_BSHD = spread_heads(p.k_BSGD, p.key_of), v = turned(spread_heads(p.v_BSGE, p.value_of), width);
  const auto half = [&](int64_t first) {
    const auto of = [&](const Tensor& x) { return turned(x.slice(2, first, {}, 2), width); };
    return Heads4{of(p.q_BTHD), of(k_BSHD), v};
  };
  return {half(0), half(1)};
}

// Even and odd heads in turns again.
Tensor woven(const Tensor& even, const Tensor& odd, int64_t dim) {
  return at::stack({even, odd}, dim + 1).flatten(dim, dim + 1);
}

// lambda as [1 or B,Ho,1 or T,1]
Tensor lambda_of(const Problem& p) {
  const Tensor l = p.lambda.to(p.accumulate());
  return l.dim() == 3 ? l.permute({0, 2, 1}).unsqueeze(3) : l.view({1, -1, 1, 1});
}
// x + sign lambda y in the type of lambda, rounded once; on a GPU in one pass.
Tensor with_lambda(const Tensor& x, const Tensor& lambda, const Tensor& y, double sign) {
  Tensor out = at::empty_like(x);
  at::addcmul_out(out, x, lambda, y, sign);
  return out;
}

Attended forward(const Problem& p, const Flash& flash) {
  if (!p.lambda.defined()) {
    const auto [out, lse] = flash.forward(p, heads_of(p));
    return {turned_back(out, p.E), lse};
  }
  const auto heads = even_and_odd(p);
  const auto [even, even_lse] = flash.forward(p, heads[0]);
  const auto [odd, odd_lse] = flash.forward(p, heads[1]);
  return {turned_back(with_lambda(even, lambda_of(p), odd, -1), p.E), woven(even_lse, odd_lse, 1)};
}

Gradients backward_of_pairs(const Problem& p, const Backward& b, const Flash& flash) {
  const auto heads = even_and_odd(p);
  const int64_t width = width_of(p);
  const Tensor dout = turned(b.dout_BTHE.contiguous(), width), out = turned(b.out_BTHE.contiguous(), width);
  const Tensor lambda = lambda_of(p), odd = flash.forward(p, heads[1]).first;  // once more
  const Tensor even = with_lambda(out, lambda, odd, 1);
  Tensor dodd = at::empty_like(dout);
  at::mul_out(dodd, dout, -lambda);
  const auto lse = [&](int64_t first) { return b.lse_BHT.slice(1, first, {}, 2).contiguous(); };
  const auto [dq0, dk0, dv0] = flash.backward(p, heads[0], dout, even, lse(0));
  const auto [dq1, dk1, dv1] = flash.backward(p, heads[1], dodd, odd, lse(1));
  Gradients g;
  if (b.wanted[kLambda]) {
    const Tensor each_BHT = -(dout.to(p.accumulate()) * odd).sum(3);
    g[kLambda] = at::sum_to(each_BHT.transpose(1, 2), p.lambda.sizes()).to(p.lambda.scalar_type());
  }
  const auto both = [&](const Tensor& x, const Tensor& y) {
    return woven(turned_back(x, p.D), turned_back(y, p.D), 2);
  };
  if (b.wanted[kQ]) g[kQ] = both(dq0, dq1);
  if (b.wanted[kK]) g[kK] = summed_heads(both(dk0, dk1), p.key_of, p.k_BSGD.size(2));
  if (b.wanted[kV]) {
    const bool shared = p.v_BSGE.size(2) < static_cast<int64_t>(p.value_of.size());
    const Tensor dv = shared ? dv0.to(p.accumulate()) + dv1 : dv0 + dv1;  // either way rounded once
    g[kV] = summed_heads(turned_back(dv, p.E), p.value_of, p.v_BSGE.size(2)).to(dv0.scalar_type());
  }
  return g;
}

Gradients backward(const Problem& p, const Backward& b, const Flash& flash) {
  if (p.lambda.defined()) return backward_of_pairs(p, b, flash);
  const int64_t width = width_of(p);
  const Tensor dout = turned(b.dout_BTHE.contiguous(), width), out = turned(b.out_BTHE.contiguous(), width);
  const auto [dq, dk, dv] = flash.backward(p, heads_of(p), dout, out, b.lse_BHT);
  Gradients g;
  if (b.wanted[kQ]) g[kQ] = turned_back(dq, p.D);
  if (b.wanted[kK]) g[kK] = summed_heads(turned_back(dk, p.D), p.key_of, p.k_BSGD.size(2));
  if (b.wanted[kV]) g[kV] = summed_heads(turned_back(dv, p.E), p.value_of, p.v_BSGE.size(2));
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
