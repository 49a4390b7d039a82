// The whole kernel choice of the operator: one ordered table, best first; the last row takes everything. fused_amx
// takes what fused takes, and runs where it was measured to be the faster one, by its name, and for precision high.
#include "motet/attention/kernels.h"

namespace motet {
namespace {

constexpr const Kernel* kTable[] = {&kFlash, &kCuda, &kFusedAmx, &kFused, &kSdpa, &kBlocked};

std::string reason_against(const Kernel& kernel, const Problem& p, Form form, bool named) {
  if (form == Form::two_phase && (!kernel.lse || !kernel.given_lse)) return "it has no two-phase form";
  if (form == Form::train && !kernel.backward) return "it has no backward pass";
  if (p.precision == Precision::high && &kernel != &kFusedAmx) return "precision is high, which fused_amx alone has";
  const std::string reason = kernel.why_not(p);
  return reason.empty() && !named && kernel.rather_not ? kernel.rather_not(p, form) : reason;
}

bool is_named(const KernelTable& names, const std::optional<std::string>& kernel) {
  std::string said;
  return !named_row(names, kernel ? kernel->c_str() : nullptr, &said).empty();
}

void check_precision(const Problem& p) {
  if (p.precision != Precision::high) return;
  std::string reason = why_not_high(p.q_BTHD.device(), p.q_BTHD.scalar_type());
  if (reason.empty()) reason = kFusedAmx.why_not(p);
  TORCH_CHECK_VALUE(reason.empty(), "composed_attention: precision is high, want highest: ", reason);
}

}  // namespace

const KernelTable& attention_table() {
  static const KernelTable table{"attention", kernel_names()};
  return table;
}

std::span<const Kernel* const> kernel_table() { return kTable; }

const Kernel& choose_of(std::span<const Kernel* const> rows, const KernelTable& names, const Problem& p, Form form,
                        const std::optional<std::string>& kernel) {
  const bool named = is_named(names, kernel);
  return *rows[choose_row(names, kernel ? kernel->c_str() : nullptr,
                          [&](size_t i) { return reason_against(*rows[i], p, form, named); })];
}

const Kernel& choose(const Problem& p, Form form, const std::optional<std::string>& kernel) {
  check_precision(p);
  return choose_of(kTable, attention_table(), p, form, kernel);
}

Choice explain(const Problem& p, const std::optional<std::string>& named) {
  Choice choice{choose(p, Form::attend, named).name, {}};
  for (const Kernel* kernel : kTable) {
    if (kernel->name == choice.kernel) break;
    choice.passed_over.emplace_back(kernel->name,
                                    reason_against(*kernel, p, Form::attend, is_named(attention_table(), named)));
  }
  return choice;
}

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (const Kernel* kernel : kTable) names.emplace_back(kernel->name);
  return names;
}

}  // namespace motet
