#pragma once
#include "motet/ops/matrix.h"
#include "motet/ops/torch.h"

namespace motet {

/// f(x), x [1,T,C] with a result [1,T,...]: in inference of few tokens on the CPU one by one, so that a token's bits do
/// not depend on its company. torch's loops round the numbers that fill no vector otherwise, and its products of
/// matrices sum in another order for another number of rows.
template <class F>
Tensor token_by_token(const Tensor& x_BTC, const F& f) {
  if (at::GradMode::is_enabled() || !x_BTC.is_cpu() || x_BTC.dim() != 3 || x_BTC.size(0) != 1) return f(x_BTC);
  const int64_t tokens = x_BTC.size(1);
  if (tokens == 1 || tokens > kMaxLinearRows) return f(x_BTC);
  std::vector<Tensor> rows;
  for (int64_t t = 0; t < tokens; ++t) rows.push_back(f(x_BTC.narrow(1, t, 1)));
  return at::cat(rows, 1);
}

}  // namespace motet
