#pragma once
#include "motet/ops/matrix.h"
#include "motet/ops/torch.h"

namespace motet {

/// f(x [1,T,C]): in inference of few tokens on the CPU one by one, so that a token's bits do not depend on its company,
/// else all at once. torch's loops round the numbers that fill no vector otherwise, and its products of matrices sum in
/// another order for another number of rows. The kernels `rows` of motet/ops see to it themselves.
template <class F>
auto each_token(const Tensor& x_BTC, const F& f) {
  std::vector<decltype(f(x_BTC))> results;
  const int64_t tokens = x_BTC.dim() == 3 && x_BTC.size(0) == 1 ? x_BTC.size(1) : 1;
  if (at::GradMode::is_enabled() || !x_BTC.is_cpu() || tokens == 1 || tokens > kMaxLinearRows) {
    results.push_back(f(x_BTC));
    return results;
  }
  for (int64_t t = 0; t < tokens; ++t) results.push_back(f(x_BTC.narrow(1, t, 1)));
  return results;
}

/// Likewise, of results [1,T,...].
template <class F>
Tensor token_by_token(const Tensor& x_BTC, const F& f) {
  const std::vector<Tensor> rows = each_token(x_BTC, f);
  return rows.size() == 1 ? rows[0] : at::cat(rows, 1);
}

}  // namespace motet
