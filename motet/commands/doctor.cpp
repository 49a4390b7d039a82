#include <torch/version.h>

#include <cmath>

#include "motet/attention/cpu/plan.h"
#include "motet/commands/commands.h"
#include "motet/commands/request.h"
#include "motet/core/caches.h"
#include "motet/core/environment.h"
#include "motet/core/error.h"
#include "motet/core/instructions.h"
#include "motet/core/process.h"
#include "motet/core/version.h"
#include "motet/ops/cuda_library.h"
#include "motet/ops/failure.h"
#include "motet/ops/table.h"
#include "motet/processes/processes.h"

namespace motet {
namespace {

std::string instruction_sets() {
  std::string names;
  for (const std::string& name : instruction_names()) names += (names.empty() ? "" : " ") + name;
  return names.empty() ? "none that the kernels use" : names;
}

/// Each level of the caches with the speed of one thread that reads from it: half of it, so that all stays there.
std::string caches() {
  const CacheSizes& sizes = cache_sizes();
  std::string all;
  for (const auto& [level, bytes] : {std::pair{"L1", sizes.l1}, {"L2", sizes.l2}, {"L3", sizes.l3}})
    if (bytes > 0)
      all += text(all.empty() ? "" : ", ", level, " ", bytes >> 10, " KiB at ",
                  std::lround(read_bandwidth(std::min<int64_t>(bytes / 2, 64 << 20)) / 1e9), " GB/s");
  if (sizes.l2 > 0 && cpu::takes_groups(sizes))
    all += text("; L2 is ", sizes.slow_l2 ? "slow" : "small", ", so mixed heads run in groups");
  return all.empty() ? "not told" : all;
}

std::string chosen(const Choice& choice) {
  std::string text = choice.kernel;
  for (size_t i = 0, next = 0; i < choice.passed_over.size(); i = next) {  // one reason, all that have it
    text += text == choice.kernel ? " (not " : "; not ";
    for (; next < choice.passed_over.size() && choice.passed_over[next].second == choice.passed_over[i].second; ++next)
      text += (next > i ? ", " : "") + choice.passed_over[next].first;
    text += ": " + (choice.passed_over[i].second.empty() ? "another one is named" : choice.passed_over[i].second);
  }
  return choice.passed_over.empty() ? text : text + ")";
}

/// What runs attention on tensors of these options, or why the row that MOTET_KERNEL names does not.
std::string what_runs(const at::TensorOptions& options, bool mixed) {
  const Tensor x = at::zeros({1, 32, 2, 8}, options), gate = at::zeros({1, 32, 2}, options);
  Attention causal;
  causal.visibility.causal = true;
  causal.pre.identity = causal.post.identity = mixed;
  try {
    return chosen(explain({x, {.gate_BTH = mixed ? gate : Tensor()}, {}, {}}, {x, x, {}, {}}, causal));
  } catch (const c10::ValueError& error) {
    return told(error);
  }
}

}  // namespace

int run_doctor(const nlohmann::json& request) {
  Table table{.columns = {{"what", Align::left}, {"value", Align::left}}};
  const auto row = [&](const std::string& what, const std::string& value) { table.rows.push_back({what, value}); };
  row("motet", kVersion);
  row("torch", TORCH_VERSION);
  row("instruction sets", instruction_sets());
  row("caches", caches());
  row("processors", std::to_string(processor_count()));
  row("threads", std::to_string(request_threads(request)));
  row("GPU", at::hasCUDA() ? "CUDA" : "none");
  row("processes", std::string("Gloo") + (has_nccl() ? ", NCCL" : ""));
  row("CUDA kernels", cuda_library().missing.empty() ? cuda_library().path : "none: " + cuda_library().missing);
  for (const KernelTable& kernels : kernel_tables()) {
    std::string names;
    for (const std::string& name : kernels.rows) names += (names.empty() ? "" : ", ") + name;
    row("kernels of " + kernels.name, names);
  }
  const auto rows = [&](const std::string& plain, const std::string& mixed, const at::TensorOptions& options) {
    row(plain, what_runs(options, false));
    row(mixed, what_runs(options, true));
  };
  rows("plain attention runs", "mixed heads run", at::kFloat);
  if (at::hasCUDA()) rows("on the GPU, plain", "on the GPU, mixed", at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  for (const std::string& name : environment_names())
    if (const std::string* value = environment(name)) row(name, name == "MOTET_API_KEY" ? "set" : *value);
  print_table(table, request);
  return 0;
}

}  // namespace motet
