#include "motet/ops/graph.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define MOTET_RECORDS_ANY
#endif
#ifdef MOTET_TORCH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#endif

namespace motet {

// While this thread records, others may go on asking for memory.
struct Graph::Recording {
  virtual ~Recording() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
  virtual void replay() = 0;
};

namespace {

// A backend's own, which PyTorch knows since 2.12; CUDA's is not among them yet.
#ifdef MOTET_RECORDS_ANY
struct Any final : Graph::Recording {
  explicit Any(at::DeviceType type) : graph(at::create_graph_impl(type)) {}
  void begin() override { graph->capture_begin({0, 0}, at::GraphCaptureMode::ThreadLocal); }
  void end() override { graph->capture_end(); }
  void replay() override { graph->replay(); }
  std::unique_ptr<at::GraphImplInterface> graph;
};
#endif

#ifdef MOTET_TORCH_CUDA
struct Cuda final : Graph::Recording {
  void begin() override { graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal); }
  void end() override { graph.capture_end(); }
  void replay() override { graph.replay(); }
  at::cuda::CUDAGraph graph;
};
#endif

// Null: nothing on this kind of device.
using Make = std::unique_ptr<Graph::Recording> (*)(at::DeviceType);
Make maker_for(at::DeviceType type) {
#ifdef MOTET_TORCH_CUDA
  if (type == at::kCUDA)
    return [](at::DeviceType) -> std::unique_ptr<Graph::Recording> { return std::make_unique<Cuda>(); };
#endif
#ifdef MOTET_RECORDS_ANY
  if (at::has_graph_impl(type))
    return [](at::DeviceType of) -> std::unique_ptr<Graph::Recording> { return std::make_unique<Any>(of); };
#endif
  return nullptr;
}

}  // namespace

std::string Graph::why_not(at::Device device) {
  if (device.is_cpu() || device.is_meta()) return "a CPU needs no record";
  return maker_for(device.type()) ? "" : "this build records nothing on " + device.str();
}

Graph::Graph(at::Device device, const std::function<void()>& work) {
  TORCH_CHECK_VALUE(why_not(device).empty(), "graph: ", why_not(device));
  const c10::DeviceGuard guard(device);
  // CUDA records on no default stream.
  const c10::StreamGuard on(c10::impl::VirtualGuardImpl(device.type()).getNewStream(device));
  recording_ = maker_for(device.type())(device.type());
  recording_->begin();
  try {
    work();
  } catch (...) {
    try {
      recording_->end();
    } catch (const std::exception&) {  // what went wrong first is what is told
    }
    throw;
  }
  recording_->end();
}

Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;

void Graph::replay() { recording_->replay(); }

}  // namespace motet
