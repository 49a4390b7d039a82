#pragma once
#include <array>
#include <string>
#include <vector>

#include "motet/ops/torch.h"

// Every function of tensors that has more than one implementation has a table of them, best first; the last row takes
// everything. The first row that takes the arguments runs, unless the caller's `kernel` or MOTET_KERNEL names one; a
// row that is named and cannot run is an error, never a silent change. Shapes without numbers (tensors of the meta
// device, of which a model's cost is computed) are no work for kernels: they are the last row's, whatever is named.
namespace motet {

/// A table as a user names it.
struct KernelTable {
  std::string name;
  std::vector<std::string> rows;  // best first
};

/// All tables, attention first.
const std::vector<KernelTable>& kernel_tables();

/// Whether MOTET_KERNEL may be this: "blocked" names a row of the attention's table, "linear=torch,rms_norm=rows" rows
/// of others. Throws UsageError naming the nearest for a table or row that is not there.
void check_kernel_choice(const std::string& choice);

/// The row of `table` that `kernel`, or else MOTET_KERNEL, names; "" when neither does. `said` becomes who said it.
/// Throws c10::ValueError naming the nearest for a row, or in MOTET_KERNEL a table, that is not there.
std::string named_row(const KernelTable& table, const char* kernel, std::string* said);

/// Whether MOTET_LOG is "debug": choose_row tells its choices then, in a line that ends with who wanted that row, or
/// why those before it were passed over. The same line is written once.
bool tells_choices();
void tell_choice(const std::string& table, const std::string& row, const std::string& because);

/// The number of the row that runs: why_not(number) is "" when it can, else the reason.
template <class WhyNot>
size_t choose_row(const KernelTable& table, const char* kernel, const WhyNot& why_not) {
  std::string said, passed_over;
  const std::string named = named_row(table, kernel, &said);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    if (!named.empty() && named != table.rows[i]) continue;
    const std::string reason = why_not(i);
    if (reason.empty()) {
      if (tells_choices()) tell_choice(table.name, table.rows[i], named.empty() ? passed_over : said);
      return i;
    }
    TORCH_CHECK_VALUE(named.empty(), said, " cannot run this problem: ", reason);
    if (tells_choices()) passed_over += (passed_over.empty() ? "" : "; ") + ("not " + table.rows[i]) + ": " + reason;
  }
  TORCH_CHECK(false, table.name, ": no kernel runs this problem");
}

/// One implementation of a function of A.
template <class A, class Result>
struct KernelRow {
  const char* name;
  std::string (*why_not)(const A&);  // "" when it runs
  Result (*run)(const A&);
};

/// A function's rows; called with the arguments, of which x lies where the work is, it chooses one and runs it.
template <class A, class Result, size_t N>
class Kernels {
 public:
  Kernels(const char* name, const std::array<KernelRow<A, Result>, N>& rows) : rows_(rows), names_{name, {}} {
    for (const auto& row : rows_) names_.rows.emplace_back(row.name);
  }
  Result operator()(const Tensor& x, const A& arguments, const char* kernel) const {
    if (x.is_meta()) return rows_.back().run(arguments);
    return rows_[choose_row(names_, kernel, [&](size_t i) { return rows_[i].why_not(arguments); })].run(arguments);
  }
  const KernelTable& names() const { return names_; }

 private:
  std::array<KernelRow<A, Result>, N> rows_;
  KernelTable names_;
};

}  // namespace motet
