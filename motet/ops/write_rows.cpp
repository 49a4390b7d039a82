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
  if (!a.to.is_contiguous()) return "there are gaps";
  for (const Tensor& from : a.from) {
    if (a.to.scalar_type() != from.scalar_type()) return "another dtype";
    if (!from.is_contiguous()) return "there are gaps";
  }
  return "";
}

Tensor copy_bytes(const WriteArguments& a) {
  if (a.from[0].size(1) == 0) return a.to;
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
                         return a.to.narrow(1, a.at, a.from[0].size(1)).copy_(ops::side_by_side(a.from));
                       }}}});
  return table;
}

}  // namespace

const KernelTable& write_rows_table() { return write_rows_kernels().names(); }

void ops::write_rows(const Tensor& to, int64_t at, at::TensorList from, const char* kernel) {
  TORCH_CHECK_VALUE(to.dim() == 3 && !from.empty(), "write_rows: to has ", to.dim(), " dimensions and from ",
                    from.size(), " tensors, want [B,S,X] and at least one");
  int64_t width = 0;
  for (const Tensor& part : from) {
    check_device("write_rows", part, "from", to, "to");
    const bool fits = part.dim() >= 3 && part.size(0) == to.size(0) && part.size(1) == from[0].size(1) && at >= 0 &&
                      at <= to.size(1) - part.size(1);
    TORCH_CHECK_VALUE(fits, "write_rows: from has shape ", part.sizes(), ", want rows that fit at ", at, " of ",
                      to.sizes());
    width += c10::multiply_integers(part.sizes().slice(2));
  }
  TORCH_CHECK_VALUE(width == to.size(2), "write_rows: from has ", width, " numbers a row, want those of ", to.sizes());
  write_rows_kernels()(to, {to, at, from}, kernel);
}

}  // namespace motet
