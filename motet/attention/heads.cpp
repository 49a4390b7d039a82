#include "motet/attention/heads.h"

namespace motet {
namespace {

bool is_identity(const std::vector<int64_t>& table, int64_t stored) {
  for (size_t i = 0; i < table.size(); ++i)
    if (table[i] != static_cast<int64_t>(i)) return false;
  return static_cast<int64_t>(table.size()) == stored;
}

// On a device this is a copy from the host.
Tensor index(const std::vector<int64_t>& table, const Tensor& like) {
  return at::tensor(table, like.options().dtype(at::kLong));
}

// How many heads read each stored one, when those are neighbours; else 0.
int64_t group_size(const std::vector<int64_t>& table, int64_t stored) {
  const int64_t heads = static_cast<int64_t>(table.size()), size = heads / std::max<int64_t>(stored, 1);
  if (heads % stored) return 0;
  for (int64_t h = 0; h < heads; ++h)
    if (table[static_cast<size_t>(h)] != h / size) return 0;
  return size;
}

}  // namespace

bool in_groups(const std::vector<int64_t>& table, int64_t stored) { return group_size(table, stored) > 0; }

Tensor spread_heads(const Tensor& x, const std::vector<int64_t>& table) {
  if (is_identity(table, x.size(2))) return x;
  if (const int64_t size = group_size(table, x.size(2)); size > 0)
    return x.unsqueeze(3).expand({-1, -1, -1, size, -1}).flatten(2, 3);
  if (x.is_cpu()) return x.index_select(2, index(table, x));
  std::vector<Tensor> heads;  // no table has to come from the host, which a record could not hold
  for (const int64_t stored : table) heads.push_back(x.narrow(2, stored, 1));
  return at::cat(heads, 2);
}

Tensor summed_heads(const Tensor& dx, const std::vector<int64_t>& table, int64_t stored) {
  if (is_identity(table, stored)) return dx;
  // index_add_ of a device adds in no fixed order; that of the CPU does, and rounds otherwise than this sum.
  if (const int64_t size = dx.is_cpu() ? 0 : group_size(table, stored); size > 0)
    return dx.unflatten(2, {stored, size}).sum(3);
  std::vector<int64_t> shape = dx.sizes().vec();
  shape[2] = stored;
  return at::zeros(shape, dx.options()).index_add_(2, index(table, dx), dx);
}

}  // namespace motet
