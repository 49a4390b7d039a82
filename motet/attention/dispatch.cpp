// The whole kernel choice: one ordered table, best first; the last row takes everything.
#include <algorithm>

#include "motet/attention/kernels.h"
#include "motet/core/environment.h"

namespace motet {
namespace {

constexpr const Kernel* kTable[] = {&kFused, &kSdpa, &kBlocked};

std::string reason_against(const Kernel& kernel, const Problem& p, Form form) {
  if (form == Form::two_phase && !kernel.given_lse) return "it has no two-phase form";
  return kernel.why_not(p);
}

const Kernel& forced_kernel(const std::string& name, const Problem& p, Form form) {
  const auto found = std::ranges::find(kTable, name, [](const Kernel* k) { return std::string(k->name); });
  std::string names;
  for (const Kernel* k : kTable) names += (names.empty() ? "" : ", ") + std::string(k->name);
  TORCH_CHECK_VALUE(found != std::end(kTable), "MOTET_KERNEL=", name, " is not a kernel; have ", names);
  const std::string reason = reason_against(**found, p, form);
  TORCH_CHECK_VALUE(reason.empty(), "MOTET_KERNEL=", name, " cannot run this problem: ", reason);
  return **found;
}

}  // namespace

std::span<const Kernel* const> kernel_table() { return kTable; }

const Kernel& choose(const Problem& p, Form form) {
  if (const auto forced = environment("MOTET_KERNEL")) return forced_kernel(*forced, p, form);
  for (const Kernel* kernel : kTable)
    if (reason_against(*kernel, p, form).empty()) return *kernel;
  TORCH_CHECK(false, "composed_attention: no kernel runs this problem");
}

Choice explain(const Problem& p) {
  Choice choice{choose(p, Form::attend).name, {}};
  for (const Kernel* kernel : kTable) {
    if (kernel->name == choice.kernel) break;
    choice.passed_over.emplace_back(kernel->name, kernel->why_not(p));
  }
  return choice;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const Kernel* kernel : kTable) names.emplace_back(kernel->name);
  return names;
}

}  // namespace motet
