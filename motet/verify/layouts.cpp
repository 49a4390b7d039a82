#include "motet/verify/layouts.h"

#include "motet/core/error.h"

namespace motet {
namespace {

// Letters that stand for one axis in different files: key heads are also called heads, value widths head widths.
std::string kin(char letter) {
  switch (letter) {
    case 'G':
      return "H";
    case 'H':
      return "GMN";
    case 'N':
    case 'M':
      return "H";
    case 'D':
      return "E";
    case 'E':
      return "D";
    case 'S':
      return "T";
    case 'T':
      return "S";
    default:
      return "";
  }
}

size_t axis_of(char letter, const std::string& from, const std::string& to) {
  if (letter == '1') return std::string::npos;
  if (const size_t found = from.find(letter); found != std::string::npos) return found;
  for (char other : kin(letter))
    if (to.find(other) == std::string::npos && from.find(other) != std::string::npos) return from.find(other);
  return std::string::npos;
}

}  // namespace

Tensor arranged(const Tensor& t, const std::string& from, const std::string& to, const std::string& name) {
  if (t.dim() != static_cast<int64_t>(from.size()))
    fail("tensor ", quote(name), " has the shape ", t.sizes(), " and the layout ", quote(from),
         ", want a letter for each axis");
  std::vector<int64_t> order, shape;
  std::vector<bool> used(from.size(), false);
  for (char letter : to) {
    const size_t axis = axis_of(letter, from, to);
    if (axis != std::string::npos && used[axis])
      fail("tensor ", quote(name), ": the layout ", quote(from), " names an axis twice");
    if (axis != std::string::npos) {
      used[axis] = true;
      order.push_back(static_cast<int64_t>(axis));
    }
    shape.push_back(axis == std::string::npos ? 1 : t.size(static_cast<int64_t>(axis)));
  }
  for (size_t axis = 0; axis < from.size(); ++axis) {
    if (used[axis]) continue;
    if (t.size(static_cast<int64_t>(axis)) != 1)
      fail("tensor ", quote(name), " has the shape ", t.sizes(), " and the layout ", quote(from),
           ", which does not fit ", quote(to));
    order.push_back(static_cast<int64_t>(axis));
  }
  return t.permute(order).reshape(shape);
}

Tensor picked(const Tensor& t, const std::vector<int64_t>& order, const std::string& place) {
  for (int64_t i : order)
    if (i < 0 || i >= t.size(0)) fail(place, " names head ", i, ", want 0 to ", t.size(0) - 1);
  return t.index_select(0, at::tensor(order, t.options().dtype(at::kLong).requires_grad(false)));
}

}  // namespace motet
