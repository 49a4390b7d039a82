#include <algorithm>
#include <cstring>

#include "motet/ops/checks.h"
#include "motet/ops/ops.h"
#include "motet/ops/table.h"
#include "motet/ops/views.h"

namespace motet {
namespace {

struct WriteArguments {
  const Tensor& to;
  int64_t at;
  at::TensorList from;
};

// One sequence on the CPU: no call of torch.
std::string why_not_bytes(const WriteArguments& a) {
  if (!a.to.is_cpu()) return "only on the CPU";
  if (a.to.size(0) != 1) return "more than one sequence";
  if (a.to.dim() == 4 ? a.to.stride(3) != 1 : !a.to.is_contiguous()) return "there are gaps";
  for (const Tensor& from : a.from) {
    if (a.to.scalar_type() != from.scalar_type()) return "another dtype";
    if (!from.is_contiguous()) return "there are gaps";
  }
  return "";
}

void copy_heads(const Tensor& to, int64_t at, const Tensor& from) {
  const int64_t rows = from.size(1), heads = from.size(2), number = static_cast<int64_t>(to.itemsize());
  const auto row = static_cast<size_t>(from.size(3) * number);
  const char* data = static_cast<const char*>(from.const_data_ptr());
  char* const first = static_cast<char*>(to.mutable_data_ptr());
  for (int64_t i = at; i < at + rows; ++i)
    for (int64_t head = 0; head < heads; ++head, data += row)
      std::memcpy(first + (i * to.stride(1) + head * to.stride(2)) * number, data, row);
}

Tensor copy_bytes(const WriteArguments& a) {
  if (a.from[0].size(1) == 0) return a.to;
  if (a.to.dim() == 4) return copy_heads(a.to, a.at, a.from[0]), a.to;
  const auto rows = static_cast<size_t>(a.from[0].size(1)), row = a.to.nbytes() / static_cast<size_t>(a.to.size(1));
  char* to = static_cast<char*>(a.to.mutable_data_ptr()) + static_cast<size_t>(a.at) * row;
  for (const Tensor& from : a.from) {
    const size_t part = from.nbytes() / rows;
    const char* const data = static_cast<const char*>(from.const_data_ptr());
    if (part == row)
      std::memcpy(to, data, from.nbytes());
    else
      for (size_t i = 0; i < rows; ++i) std::memcpy(to + i * row, data + i * part, part);
    to += part;
  }
  return a.to;
}

const auto& write_rows_kernels() {
  static const Kernels<WriteArguments, Tensor, 2> table(
      "write_rows", {{{"bytes", why_not_bytes, copy_bytes},
                      {"torch", [](const WriteArguments&) { return std::string(); },
                       [](const WriteArguments& a) {
                         const Tensor rows = a.to.dim() == 4 ? a.from[0] : ops::side_by_side(a.from);
                         return a.to.narrow(1, a.at, rows.size(1)).copy_(rows);
                       }}}});
  return table;
}

}  // namespace

const KernelTable& write_rows_table() { return write_rows_kernels().names(); }

void ops::write_rows(const Tensor& to, int64_t at, at::TensorList from, const char* kernel) {
  const bool heads = to.dim() == 4 && from.size() == 1;
  TORCH_CHECK_VALUE(heads || (to.dim() == 3 && !from.empty()), "write_rows: to has ", to.dim(), " dimensions and from ",
                    from.size(), " tensors, want [B,S,X] and at least one, or [B,S,G,D] and one");
  int64_t width = 0;
  for (const Tensor& part : from) {
    check_device("write_rows", part, "from", to, "to");
    const bool fits = part.dim() >= (heads ? 4 : 3) && part.size(0) == to.size(0) && part.size(1) == from[0].size(1) &&
                      at >= 0 && at <= to.size(1) - part.size(1);
    TORCH_CHECK_VALUE(fits, "write_rows: from has shape ", part.sizes(), ", want rows that fit at ", at, " of ",
                      to.sizes());
    width += c10::multiply_integers(part.sizes().slice(2));
  }
  const bool as_wide = heads ? from[0].sizes().slice(2) == to.sizes().slice(2) : width == to.size(2);
  TORCH_CHECK_VALUE(as_wide, "write_rows: from has ", width, " numbers a row, want those of ", to.sizes());
  write_rows_kernels()(to, {to, at, from}, kernel);
}

}  // namespace motet
