#include <cstring>

#include "motet/ops/checks.h"
#include "motet/ops/ops.h"
#include "motet/ops/table.h"

namespace motet {
namespace {

struct WriteArguments {
  const Tensor& to;
  int64_t at;
  const Tensor& from;
};

// One sequence on the CPU: no call of torch.
std::string why_not_bytes(const WriteArguments& a) {
  if (!a.to.is_cpu()) return "only on the CPU";
  if (a.to.size(0) != 1) return "more than one sequence";
  if (a.to.scalar_type() != a.from.scalar_type()) return "another dtype";
  if (!a.to.is_contiguous() || !a.from.is_contiguous()) return "there are gaps";
  return "";
}

Tensor copy_bytes(const WriteArguments& a) {
  const size_t row = a.to.nbytes() / static_cast<size_t>(a.to.size(1));
  std::memcpy(static_cast<char*>(a.to.mutable_data_ptr()) + static_cast<size_t>(a.at) * row, a.from.const_data_ptr(),
              a.from.nbytes());
  return a.to;
}

const auto& write_rows_kernels() {
  static const Kernels<WriteArguments, Tensor, 2> table(
      "write_rows", {{{"bytes", why_not_bytes, copy_bytes},
                      {"torch", [](const WriteArguments&) { return std::string(); },
                       [](const WriteArguments& a) { return a.to.narrow(1, a.at, a.from.size(1)).copy_(a.from); }}}});
  return table;
}

}  // namespace

const KernelTable& write_rows_table() { return write_rows_kernels().names(); }

void ops::write_rows(const Tensor& to, int64_t at, const Tensor& from, const char* kernel) {
  check_device("write_rows", from, "from", to, "to");
  const bool fits = to.dim() == from.dim() && to.dim() >= 2 && to.size(0) == from.size(0) &&
                    to.sizes().slice(2) == from.sizes().slice(2) && at >= 0 && at + from.size(1) <= to.size(1);
  TORCH_CHECK_VALUE(fits, "write_rows: from has shape ", from.sizes(), ", want rows that fit at ", at, " of ",
                    to.sizes());
  write_rows_kernels()({to, at, from}, kernel);
}

}  // namespace motet
