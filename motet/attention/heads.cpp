#include "motet/attention/heads.h"

namespace motet {
namespace {

// How many heads read each stored one, when those are neighbours; else 0.
int64_t group_size(const std::vector<int64_t>& table, int64_t stored) {
  const int64_t heads = static_cast<int64_t>(table.size()), size = heads / std::max<int64_t>(stored, 1);
  if (heads % stored) return 0;
  for (int64_t h = 0; h < heads; ++h)
    if (table[static_cast<size_t>(h)] != h / size) return 0;
  return size;
}

}  // namespace

Tensor spread_heads(const Tensor& x, const std::vector<int64_t>& table) {
  const int64_t size = group_size(table, x.size(2));
  if (size == 1) return x;
  if (size > 0) return x.unsqueeze(3).expand({-1, -1, -1, size, -1}).flatten(2, 3);
  std::vector<Tensor> heads;  // no table has to come from the host, which a record could not hold
  for (const int64_t stored : table) heads.push_back(x.narrow(2, stored, 1));
  return at::cat(heads, 2);
}

Tensor summed_heads(const Tensor& dx, const std::vector<int64_t>& table, int64_t stored) {
  const int64_t size = group_size(table, stored);
  if (size == 1) return dx;
  if (size > 0) return dx.unflatten(2, {stored, size}).sum(3);
  std::vector<Tensor> sums;  // index_add_ of a device adds in no fixed order, and its table comes from the host
  for (int64_t own = 0; own < stored; ++own) {
    std::vector<Tensor> heads;
    for (size_t h = 0; h < table.size(); ++h)
      if (table[h] == own) heads.push_back(dx.select(2, static_cast<int64_t>(h)));
    sums.push_back(heads.empty() ? at::zeros_like(dx.select(2, 0)) : at::stack(heads, 2).sum(2));
  }
  return at::stack(sums, 2);
}

}  // namespace motet
