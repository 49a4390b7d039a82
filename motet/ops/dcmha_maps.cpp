// The maps that DCMHA's generator makes of the layer's input; motet/mechanisms/dcmha/README.md has the formulas.
#include <cmath>

#include "motet/kernels/linear.h"
#include "motet/kernels/rows.h"
#include "motet/ops/checks.h"
#include "motet/ops/cuda.h"
#include "motet/ops/ops.h"
#include "motet/ops/table.h"
#include "motet/ops/threads.h"

namespace motet {
namespace {

constexpr double kDownNormEps = 1e-6;  // part of the function: the norms start near it (README.md, trap 3)

using Maps = std::vector<DcmhaMaps>;

struct MapArguments {
  const Tensor& x_BTC;
  const DcmhaGenerator& by;

  int64_t gates() const { return by.gates ? by.branches * by.heads : 0; }
  const Tensor& rows_XC() const { return by.rows_XC.values_NK; }
};

std::string why_not(const MapArguments& a) {
  if (a.by.groups != 1) return "more than one group of heads";
  if (!a.rows_XC().is_contiguous() || (a.by.maps && !a.by.up_rows_PMK.defined()))
    return "the generator is not prepared";
  return why_not_rows(a.x_BTC);
}

Weight rows_of(Weight w, int64_t first, int64_t count) {
  w.data = static_cast<const char*>(w.data) + first * w.K * bytes_of(w.type);
  if (w.scale) w.scale += first;
  w.N = count;
  return w;
}

// A few products and no call of torch between them.
Maps run_rows(const MapArguments& a) {
  const DcmhaGenerator& by = a.by;
  const Tensor& x = a.x_BTC;
  const int64_t rows = x.size(0) * x.size(1), half = by.rank * by.heads,
                width = (a.rows_XC().size(0) - a.gates()) / by.branches;
  const auto floats = [&](at::IntArrayRef shape) { return at::empty(shape, x.options()); };
  const Tensor hidden_PMK = floats({by.branches, rows, width});
  const auto hidden = [&](int64_t i) { return hidden_PMK.mutable_data_ptr<float>() + i * rows * width; };
  Maps result(static_cast<size_t>(by.branches));
  for (DcmhaMaps& of : result) {
    const std::vector<int64_t> shape{x.size(0), x.size(1), by.rank, by.heads};
    if (by.maps) of.down_BTRN = floats(shape), of.up_BTRN = floats(shape);
    if (by.gates) of.gate_BTN = floats({x.size(0), x.size(1), by.heads});
  }
  const auto add_products = [&](int64_t i, std::vector<LinearTask>& tasks) {  // what branch i reads of x
    const DcmhaMaps& of = result[static_cast<size_t>(i)];
    const Weight all = as_weight(by.rows_XC);
    if (by.maps) tasks.push_back({rows_of(all, i * width, width), hidden(i)});
    if (by.gates)
      tasks.push_back(
          {rows_of(all, by.branches * width + i * by.heads, by.heads), of.gate_BTN.mutable_data_ptr<float>()});
  };
  const auto finish = [&](int64_t i, int64_t first, int64_t count) {  // rows of branch i
    const DcmhaMaps& of = result[static_cast<size_t>(i)];
    if (by.maps) {
      float* const own = hidden(i) + first * width;
      float* const down = of.down_BTRN.mutable_data_ptr<float>() + first * half;
      const float* const up_rows = by.up_rows_PMK.const_data_ptr<float>() + i * 2 * half * width;
      const LinearTask both[] = {{{.data = up_rows, .N = half, .K = width}, down},
                                 {{.data = up_rows + half * width, .N = half, .K = width},
                                  of.up_BTRN.mutable_data_ptr<float>() + first * half}};
      gelu(own, count * width, by.gelu_by_tanh, own);
      linear(both, own, count, {});
      rms_norm_rows(down, count * by.rank, by.heads, nullptr, static_cast<float>(kDownNormEps), down);
    }
    if (!by.gates) return;
    float* const gate = of.gate_BTN.mutable_data_ptr<float>() + first * by.heads;
    tanh_of(gate, count * by.heads, gate);
  };
  const Threads threads = torch_threads();
  const float* const from = x.const_data_ptr<float>();
  if (rows <= kMaxLinearRows && threads.count <= by.branches) {  // a branch for a thread: they meet once
    threads.run(by.branches, [&](int64_t i) {
      std::vector<LinearTask> tasks;
      add_products(i, tasks);
      linear(tasks, from, rows, {});
      finish(i, 0, rows);
    });
    return result;
  }
  std::vector<LinearTask> tasks;
  for (int64_t i = 0; i < by.branches; ++i) add_products(i, tasks);
  linear(tasks, from, rows, threads);
  threads.run_parts(rows, kMaxLinearRows, [&](int64_t first, int64_t last) {
    for (int64_t i = 0; i < by.branches; ++i) finish(i, first, last - first);
  });
  return result;
}

// One product for all branches of the side: on their own they are too thin to be fast.
DcmhaProducts products(const MapArguments& a) {
  const DcmhaGenerator& by = a.by;
  DcmhaProducts made{.batch = a.x_BTC.size(0), .count = a.x_BTC.size(1)};
  const Tensor made_BTX = ops::linear(a.x_BTC, {by.rows_XC});
  const std::vector<Tensor> parts = made_BTX.split_with_sizes({made_BTX.size(2) - a.gates(), a.gates()}, 2);
  if (parts[0].size(2)) {
    const Tensor hidden_SQK =
        ops::gelu(parts[0].contiguous(), by.gelu_by_tanh).view({made.batch * made.count, by.groups * by.branches, -1});
    made.maps_QSX = at::bmm(hidden_SQK.transpose(0, 1), by.up_QKM);
  }
  if (by.gates) made.gates_BTX = parts[1];
  return made;
}

Maps run_torch(const MapArguments& a) {
  const DcmhaGenerator& by = a.by;
  const int64_t own = by.heads / by.groups;
  const DcmhaProducts made = products(a);
  const bool maps = made.maps_QSX.defined();
  Tensor down_PBTGRN, up_PBTGRN, gate_BTPN;
  if (maps) {
    const Tensor rows = made.maps_QSX.view({by.groups, by.branches, made.batch, made.count, 2 * by.rank, own})
                            .permute({1, 2, 3, 0, 4, 5});  // [P,B,T,G,2R,N]
    down_PBTGRN = ops::rms_norm(rows.slice(4, 0, by.rank), {}, kDownNormEps), up_PBTGRN = rows.slice(4, by.rank);
  }
  if (by.gates) gate_BTPN = at::tanh(made.gates_BTX).unflatten(-1, {by.branches, by.heads});
  // Groups become blocks of rank: row (g, r) is zero outside the heads of group g.
  const auto spread = [&](const Tensor& t) {
    if (by.groups == 1) return t.squeeze(2);
    const Tensor own_group = at::eye(by.groups, t.options()).view({1, 1, by.groups, 1, by.groups, 1});
    return (t.unsqueeze(4) * own_group).reshape({t.size(0), t.size(1), by.groups * by.rank, by.groups * own});
  };
  Maps result(static_cast<size_t>(by.branches));
  for (int64_t i = 0; i < by.branches; ++i) {
    DcmhaMaps& of = result[static_cast<size_t>(i)];
    if (maps) of.down_BTRN = spread(down_PBTGRN.select(0, i)), of.up_BTRN = spread(up_PBTGRN.select(0, i));
    if (by.gates) of.gate_BTN = gate_BTPN.select(2, i);
  }
  return result;
}

const auto& dcmha_maps_kernels() {
  static const Kernels<MapArguments, Maps, 3> table(
      "dcmha_maps", {{{"cuda",
                       [](const MapArguments& a) {
                         return why_not_step(a.x_BTC, [&] { return cuda_dcmha_maps_why_not(a.x_BTC, a.by); });
                       },
                       [](const MapArguments& a) { return cuda_dcmha_maps(a.x_BTC, a.by, *step_library()); }},
                      {"rows", why_not, run_rows},
                      {"torch", [](const MapArguments&) { return std::string(); }, run_torch}}});
  return table;
}

}  // namespace

Maps cuda_dcmha_maps(const Tensor& x, const DcmhaGenerator& by, const cuda::StepKernels& kernels) {
  return cuda_dcmha_split(products({x, by}), by, kDownNormEps, kernels);
}

const KernelTable& dcmha_maps_table() { return dcmha_maps_kernels().names(); }

std::vector<DcmhaMaps> ops::dcmha_maps(const Tensor& x, const DcmhaGenerator& by, const char* kernel) {
  for (const auto& [name, t] : {std::pair("rows", by.rows_XC.values_NK),
                                {"scale", by.rows_XC.scale_N},
                                {"up", by.up_QKM},
                                {"up_rows", by.up_rows_PMK}})
    check_device("dcmha_maps", t, name, x);
  TORCH_CHECK_VALUE(x.dim() == 3 && by.rows_XC.values_NK.size(1) == x.size(2), "dcmha_maps: x has shape ", x.sizes(),
                    " and the generator's rows ", by.rows_XC.values_NK.sizes(), ", want [B,T,C] and [X,C]");
  return dcmha_maps_kernels()(x, {x, by}, kernel);
}

}  // namespace motet
