#include "motet/bench/timing.h"

#include <c10/core/Event.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "motet/core/error.h"
#include "motet/core/interrupt.h"
#include "motet/ops/device.h"

namespace motet {
namespace {

double process_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// By events on the GPU's stream: what the host needs to begin does not count.
Time timed_on_gpu(const std::function<void()>& call, at::Device device) {
  const c10::impl::VirtualGuardImpl gpu(device.type());
  c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT), end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  synchronize(device);
  const double cpu = process_seconds();
  begin.record(gpu.getStream(device));
  call();
  end.record(gpu.getStream(device));
  synchronize(device);
  return {begin.elapsedTime(end) * 1e-3, process_seconds() - cpu};
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) fail("median: no values");
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Time median(const std::vector<Time>& times) {
  std::vector<double> wall, cpu;
  for (const Time& t : times) wall.push_back(t.wall), cpu.push_back(t.cpu);
  return {median(std::move(wall)), median(std::move(cpu))};
}

Time timed(const std::function<void()>& call, at::Device device) {
  if (device.is_cuda()) return timed_on_gpu(call, device);
  synchronize(device);
  const auto start = std::chrono::steady_clock::now();
  const double cpu = process_seconds();
  call();
  synchronize(device);
  const double used = process_seconds() - cpu;
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), used};
}

std::vector<Time> interleaved(const std::vector<std::function<void()>>& contestants, Turns turns, at::Device device) {
  std::vector<std::vector<Time>> times(contestants.size());
  for (int64_t turn = 0; turn < turns.warmups + turns.repeats; ++turn) {
    for (size_t i = 0; i < contestants.size(); ++i) {
      check_interrupt();
      if (!contestants[i]) continue;
      const Time t = timed(contestants[i], device);
      if (turn >= turns.warmups) times[i].push_back(t);
    }
  }
  std::vector<Time> medians;
  for (const auto& all : times) medians.push_back(all.empty() ? Time{} : median(all));
  return medians;
}

}  // namespace motet
