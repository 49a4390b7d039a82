#include "motet/ops/checks.h"
#include "motet/ops/cuda.h"
#include "motet/ops/ops.h"
#include "motet/ops/table.h"

namespace motet {
namespace {

struct LossArguments {
  const Tensor &logits_BTV, &targets_BT;
  Loss loss;
};

Tensor run_torch(const LossArguments& a) {
  const Tensor wide = a.logits_BTV.to(at::promote_types(a.logits_BTV.scalar_type(), at::kFloat));
  const Tensor loss = at::cross_entropy_loss(wide.flatten(0, 1), a.targets_BT.flatten(), {},
                                             a.loss == Loss::mean ? at::Reduction::Mean : at::Reduction::None);
  return a.loss == Loss::mean ? loss : loss.view(a.targets_BT.sizes());
}

const auto& token_loss_kernels() {
  static const Kernels<LossArguments, Tensor, 2> table(
      "token_loss",
      {{{"cuda",
         [](const LossArguments& a) {
           return why_not_step(a.logits_BTV, [&] { return cuda_token_loss_why_not(a.logits_BTV, a.targets_BT); });
         },
         [](const LossArguments& a) { return cuda_token_loss(a.logits_BTV, a.targets_BT, a.loss, *step_library()); }},
        {"torch", [](const LossArguments&) { return std::string(); }, run_torch}}});
  return table;
}

}  // namespace

const KernelTable& token_loss_table() { return token_loss_kernels().names(); }

Tensor ops::token_loss(const Tensor& logits, const Tensor& targets, Loss loss, const char* kernel) {
  check_device("token_loss", targets, "targets", logits, "logits");
  TORCH_CHECK_VALUE(logits.dim() == 3 && targets.sizes() == logits.sizes().slice(0, 2), "token_loss: logits has shape ",
                    logits.sizes(), " and targets ", targets.sizes(), ", want [B,T,V] and [B,T]");
  return token_loss_kernels()(logits, {logits, targets, loss}, kernel);
}

}  // namespace motet
