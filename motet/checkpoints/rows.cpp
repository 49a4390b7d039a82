#include "motet/checkpoints/rows.h"

#include "motet/core/error.h"

namespace motet {
namespace {

// [A * B, ...] with A groups of B -> [B * A, ...]: element (a, b) goes to (b, a), inside each of `outer` parts.
Tensor swapped(const Tensor& t, int64_t outer, int64_t a) {
  return t.unflatten(0, {outer, a, -1}).transpose(1, 2).flatten(0, 2).contiguous();
}

std::string replaced(std::string name, int64_t layer) {
  const size_t at = name.find("{i}");
  return at == std::string::npos ? name : name.replace(at, 3, std::to_string(layer));
}

}  // namespace

std::vector<Tensor> Row::taken(const Tensor& t) const {
  const int64_t parts = static_cast<int64_t>(ours.size());
  switch (order) {
    case Order::same:
      return {t};
    case Order::shape:
      return {t.reshape(shape)};
    case Order::blocks:
      return t.chunk(parts, 0);
    case Order::per_head: {
      std::vector<Tensor> out;
      for (const Tensor& own : t.unflatten(0, {heads, parts, -1}).unbind(1))
        out.push_back(own.flatten(0, 1).contiguous());
      return out;
    }
    case Order::halves: {  // [2, H/2, D] -> [H/2, 2, D]
      const Tensor wide = t.unflatten(0, {2, heads / 2, -1});
      return {wide.transpose(0, 1).flatten(0, 2).contiguous()};
    }
    case Order::interleaved:  // [H, D/2, 2] -> [H, 2, D/2]
      return {swapped(t, heads, t.size(0) / heads / 2)};
  }
  TORCH_INTERNAL_ASSERT(false, "unknown order");
}

Tensor Row::given(const std::vector<Tensor>& own) const {
  switch (order) {
    case Order::same:
      return own[0];
    case Order::shape:
      return own[0].reshape(stored_shape);
    case Order::blocks:
      return at::cat(own, 0);
    case Order::per_head: {
      std::vector<Tensor> by_head;
      for (const Tensor& t : own) by_head.push_back(t.unflatten(0, {heads, -1}));
      return at::stack(by_head, 1).flatten(0, 2);
    }
    case Order::halves:
      return own[0].unflatten(0, {heads / 2, 2, -1}).transpose(0, 1).flatten(0, 2).contiguous();
    case Order::interleaved:
      return swapped(own[0], heads, 2);
  }
  TORCH_INTERNAL_ASSERT(false, "unknown order");
}

std::vector<Row> expanded(const std::vector<Row>& rows, int64_t num_layers) {
  std::vector<Row> out;
  for (const Row& row : rows) {
    const bool layered = row.stored.find("{i}") != std::string::npos;
    for (int64_t i = 0; i < (layered ? num_layers : 1); ++i) {
      out.push_back(row);
      out.back().stored = replaced(row.stored, i);
      for (std::string& name : out.back().ours) name = replaced(name, i);
    }
  }
  return out;
}

std::map<std::string, Tensor> given_all(const std::vector<Row>& rows, const std::map<std::string, Tensor>& ours) {
  std::map<std::string, Tensor> out;
  for (const Row& row : rows) {
    std::vector<Tensor> own;
    for (const std::string& name : row.ours) {
      const auto found = ours.find(name);
      if (found == ours.end()) fail("tensor ", name, ", which ", row.stored, " holds, is missing");
      own.push_back(found->second);
    }
    out[row.stored] = row.given(own);
  }
  return out;
}

}  // namespace motet
