#include "motet/ops/graph.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define MOTET_RECORDS_ANY
#endif
#ifdef MOTET_TORCH_CUDA
#include <cuda_runtime_api.h>
#if CUDART_VERSION >= 12040  // the class below has other members with an older toolkit than PyTorch's
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#define MOTET_RECORDS_CUDA
#endif
#endif

#include <map>
#include <mutex>

#include "motet/ops/device.h"

namespace motet {

// While this thread records, others may go on asking for memory.
struct Graph::Recording {
  virtual ~Recording() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
  virtual void replay() = 0;
  virtual void abandon() {}  // where end() has failed
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

#ifdef MOTET_RECORDS_CUDA
void try_to(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception&) {  // what went wrong before is what is told
  }
}

struct Cuda final : Graph::Recording {
  void begin() override { graph.capture_begin(pool, cudaStreamCaptureModeThreadLocal); }
  void end() override { graph.capture_end(); }
  void replay() override { graph.replay(); }
  // capture_end() of a record that became invalid leaves the allocators and the generator in the state of recording.
  void abandon() override {
    if (graph.ended()) return;  // it gives back what it has
    const at::DeviceIndex device = c10::cuda::current_device();
    try_to([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool); });
    try_to([&] { c10::cuda::CUDACachingAllocator::releasePool(device, pool); });
    try_to([&] { end_on(at::getHostAllocator(at::kCUDA)); });
    graph.forget();
  }
  template <class Allocator>
  void end_on(Allocator* host) const {
    if constexpr (requires { host->end_allocate_to_pool(pool), host->release_pool(pool); })
      host->end_allocate_to_pool(pool), host->release_pool(pool);
  }

  // A generator that goes on recording (PyTorch before 2.12, whose end() alone ends it) lets no other graph be
  // replayed.
  struct Own final : at::cuda::CUDAGraph {
    bool ended() const { return capture_ended_; }
    void forget() {
      for (const auto& each : captured_generator_states_) end_on(*each.first);
    }
    template <class State>
    static void end_on(State& state) {
      if constexpr (requires { state.capturing_; }) state.capturing_ = false;
    }
  };

  const at::MempoolId_t pool = at::cuda::graph_pool_handle();
  Own graph;
};
#endif

// Null: nothing on this kind of device.
using Make = std::unique_ptr<Graph::Recording> (*)(at::DeviceType);
Make maker_for(at::DeviceType type) {
#ifdef MOTET_RECORDS_CUDA
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

namespace {

// One for each device, as PyTorch has it: libraries keep memory for every stream that they have met. CUDA records on no
// default stream.
c10::Stream recording_stream(at::Device device) {
  static std::mutex mutex;
  static std::map<std::pair<at::DeviceType, at::DeviceIndex>, c10::Stream> streams;
  const std::scoped_lock lock(mutex);
  const std::pair key{device.type(), device.index()};
  const auto found = streams.find(key);
  if (found != streams.end()) return found->second;
  return streams.emplace(key, c10::impl::VirtualGuardImpl(device.type()).getNewStream(device)).first->second;
}

}  // namespace

Graph::Graph(at::Device device, const std::function<void()>& work) {
  TORCH_CHECK_VALUE(why_not(device).empty(), "graph: ", why_not(device));
  const c10::DeviceGuard guard(device);
  synchronize(device);
  const c10::StreamGuard on(recording_stream(device));
  work();
  synchronize(device);
  recording_ = maker_for(device.type())(device.type());
  recording_->begin();
  try {
    work();
  } catch (...) {
    try {
      recording_->end();
    } catch (const std::exception&) {  // what went wrong first is what is told
      recording_->abandon();
    }
    throw;
  }
  try {
    recording_->end();
  } catch (...) {
    recording_->abandon();
    throw;
  }
}

Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;

void Graph::replay() { recording_->replay(); }

}  // namespace motet
