#include "motet/ops/other_device.h"

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <unordered_map>

#include "motet/core/error.h"
#include "motet/ops/device.h"
#include "motet/ops/other_record.h"

namespace motet {
namespace {

using testing::other_device;
using testing::OtherCounts;

constexpr const char* kName = "host_copy";

constexpr c10::DeviceType kOther = c10::DeviceType::PrivateUse1;

std::mutex mutex;
OtherCounts counts;
int64_t memory = 0;

void count(int64_t OtherCounts::* what) {
  const std::scoped_lock lock(mutex);
  ++(counts.*what);
  if (what == &OtherCounts::waits) counts.since_wait = 0;
  if (what == &OtherCounts::calls) ++counts.since_wait;
}

// Memory of the host that says how much of it is in use, now and at most.
struct HostAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t n) override {
    void* const data = n ? std::malloc(n) : nullptr;
    if (data) std::memset(data, 0xff, n);  // what nobody has written is NaN
    const std::scoped_lock lock(mutex);
    if (data) sizes[data] = n, used.increase(n);
    return {data, data, release, c10::Device(kOther, 0)};
  }
  static void release(void* data);
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    const std::scoped_lock lock(mutex);
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0] = stats.reserved_bytes[0] = used;
    stats.reserved_bytes[0].increase(kHeldBack);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    const std::scoped_lock lock(mutex);
    used.reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    TORCH_CHECK_NOT_IMPLEMENTED(memory > 0, "nobody knows");
    return {static_cast<size_t>(memory), static_cast<size_t>(memory)};
  }

  static constexpr int64_t kHeldBack = 1000;  // bytes that were freed and not given back
  std::unordered_map<void*, size_t> sizes;
  c10::CachingAllocator::Stat used;
};
HostAllocator allocator;

void HostAllocator::release(void* data) {
  const std::scoped_lock lock(mutex);
  allocator.used.decrease(allocator.sizes.at(data));
  allocator.sizes.erase(data);
  std::free(data);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    count(&OtherCounts::pinned);
    void* const data = std::malloc(n);
    return {data, data, std::free, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return std::free; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
};
PinnedAllocator pinned;

// The same memory as a tensor of the CPU.
Tensor host(const Tensor& t) {
  if (t.is_cpu()) return t;
  return at::from_blob(t.mutable_data_ptr(), t.sizes(), t.strides(), at::TensorOptions(t.scalar_type()));
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                     std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type.value_or(at::kFloat));
}

thread_local int fallbacks = 0;  // copies inside of them are the backend's own

Tensor copy_from(const Tensor& from, const Tensor& to, bool without_wait) {
  if (fallbacks == 0 && testing::other_records()) {
    TORCH_CHECK(!from.is_cpu() && !to.is_cpu(), "a copy between host and ", kName, " cannot be recorded");
    const Tensor before = host(to).clone();
    testing::add_to_record([=] { host(to).copy_(host(from)); }, [=] { host(to).copy_(before); });
  }
  if (fallbacks == 0 && (to.is_cpu() || (from.is_cpu() && !without_wait))) count(&OtherCounts::waits);
  if (fallbacks == 0 && from.is_cpu() && without_wait) count(&OtherCounts::without_wait);
  host(to).copy_(host(from));
  return to;
}

const Tensor& resized(const Tensor& t, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(size)) * t.itemsize();
  if (t.storage().nbytes() < bytes) {
    c10::DataPtr data = allocator.allocate(bytes);
    t.storage().set_data_ptr_noswap(std::move(data));
    t.storage().unsafeGetStorageImpl()->set_nbytes(bytes);
  }
  t.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return t;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) resized(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

// A number that is no tensor of a device may stand beside any; everything else lies on one.
void refuse_mixed(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const auto check = [&](const Tensor& t) {
    if (t.defined() && t.device().type() != kOther && t.dim() > 0)
      throw std::runtime_error(text(op.schema().name(), " got a tensor of ", t.device().str(), " beside ", kName));
  };
  const size_t count = op.schema().arguments().size();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor()) check(value.toTensor());
    if (value.isTensorList())
      for (const Tensor& t : value.toTensorVector()) check(t);
    if (value.isOptionalTensorList())
      for (const std::optional<Tensor>& t : value.toOptionalTensorVector()) check(t.value_or(Tensor()));
  }
}

// What the host has to wait for, for it asks for numbers or makes a shape of them.
const std::set<std::string> kWaits{
    "aten::_local_scalar_dense", "aten::equal",    "aten::nonzero",    "aten::masked_select",
    "aten::unique_dim",          "aten::_unique2", "aten::is_nonzero", "aten::repeat_interleave"};

struct Inside {
  Inside() { ++fallbacks; }
  ~Inside() { --fallbacks; }
};

void for_each_tensor_of(const c10::IValue& value, const std::function<void(const Tensor&)>& f) {
  if (value.isTensor() && value.toTensor().defined()) f(value.toTensor());
  if (value.isTensorList())
    for (const Tensor& t : value.toTensorVector()) f(t);
}

void spoil(const Tensor& t) {
  if (t.is_floating_point())
    host(t).fill_(std::numeric_limits<double>::quiet_NaN());
  else
    host(t).fill_(99);
}

// Does it, for the shapes of its results, and records how it is done again: into the tensors that it gave now.
void record_call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  TORCH_CHECK(!kWaits.contains(op.schema().name()), op.schema().name(), " waits and cannot be recorded");
  const auto& arguments = op.schema().arguments();
  const torch::jit::Stack given(stack->end() - static_cast<ptrdiff_t>(arguments.size()), stack->end());
  std::set<const at::TensorImpl*> written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].alias_info() || !arguments[i].alias_info()->isWrite()) continue;
    for_each_tensor_of(given[i], [&](const Tensor& t) {
      const Tensor before = host(t).clone();
      testing::add_to_record([] {},
                             [=] {
                               if (before.sizes() == t.sizes())
                                 host(t).copy_(before);
                               else
                                 spoil(t);
                             });
      written.insert(t.unsafeGetTensorImpl());
    });
  }
  at::native::cpu_fallback(op, stack);
  std::vector<Tensor> made;
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i)
    for_each_tensor_of((*stack)[i], [&](const Tensor& t) { made.push_back(t); });
  const auto again = [=] {
    const Inside inside;
    torch::jit::Stack values = given;
    at::native::cpu_fallback(op, &values);
    size_t next = 0;
    for (const c10::IValue& value : values)
      for_each_tensor_of(value, [&](const Tensor& t) {
        const Tensor& to = made[next++];
        if (to.const_data_ptr() != t.const_data_ptr()) host(to).copy_(host(t));
      });
  };
  testing::add_to_record(again, [=] {
    for (const Tensor& t : made)
      if (!written.contains(t.unsafeGetTensorImpl())) spoil(t);
  });
}

void checked_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_mixed(op, *stack);
  if (fallbacks == 0 && testing::other_records()) {
    const Inside inside;
    return record_call(op, stack);
  }
  if (fallbacks == 0) count(&OtherCounts::calls);
  if (fallbacks == 0 && kWaits.contains(op.schema().name())) count(&OtherCounts::waits);
  const Inside inside;
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&checked_fallback>()); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("resize_", resized);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
}

// One device with one stream; everything is done when a call returns, so events have happened.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<kOther> {
  static c10::Device only() { return {kOther, 0}; }
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, only()); }
  c10::Device exchangeDevice(c10::Device) const override { return only(); }
  c10::Device getDevice() const override { return only(); }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream(); }
  c10::Stream getNewStream(c10::Device, int) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeDevice(c10::DeviceIndex) const override { count(&OtherCounts::synchronize); }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {  // at::manual_seed asks for it
    static const at::Generator generator = at::detail::createCPUGenerator();
    return generator;
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned; }
};

TEST(OtherDevice, MixedOperandsAreFound) {
  const Tensor here = at::ones({2, 3}), there = here.to(other_device());
  EXPECT_EQ((there + there).sum().item<double>(), 12);
  EXPECT_THROW(at::matmul(there, here.t()), std::exception);
  EXPECT_THROW(there + here, std::exception);
}

TEST(OtherDevice, WaitsAreCounted) {
  const Tensor there = at::ones({2, 3}).to(other_device());
  const int64_t before = testing::other_counts().waits;
  const Tensor sum = (there + there).sum();
  EXPECT_EQ(testing::other_counts().waits, before);
  sum.item<double>();
  EXPECT_EQ(testing::other_counts().waits, before + 1);
  there.to(at::kCPU);
  EXPECT_EQ(testing::other_counts().waits, before + 2);
  EXPECT_EQ(testing::other_counts().since_wait, 0);
  (there + there).abs();
  EXPECT_EQ(testing::other_counts().since_wait, 2);
}

TEST(Moved, NobodyWaitsForACopyFromPinnedMemory) {
  const std::vector<int64_t> values{1, 2, 3, 4, 5, 6};
  EXPECT_TRUE(moved(std::span(values), {2, 3}, at::kCPU).equal(at::arange(1, 7, at::kLong).view({2, 3})));
  const at::Device device = other_device();
  const OtherCounts before = testing::other_counts();
  const Tensor there = moved(std::span(values), {2, 3}, device);
  const OtherCounts after = testing::other_counts();
  EXPECT_EQ(after.pinned - before.pinned, !at::hasCUDA()) << "memory is pinned for a GPU where there is one";
  EXPECT_EQ(after.without_wait - before.without_wait, 1);
  EXPECT_TRUE(there.to(at::kCPU).equal(moved(std::span(values), {2, 3}, at::kCPU)));
  moved(std::span(values), {2, 3}, at::kCPU);
  EXPECT_EQ(testing::other_counts().pinned, after.pinned) << "the CPU needs none";
  EXPECT_THROW(moved(std::span(values), {7}, at::kCPU), c10::ValueError);
}

TEST(HostBytes, OfAnotherDeviceOrWithGapsAreRefused) {
  const Tensor here = at::arange(6, at::kFloat).view({2, 3});
  EXPECT_EQ(host_numbers<float>(here)[4], 4);
  EXPECT_EQ(host_bytes(here).size(), 24u);
  EXPECT_THROW(host_numbers<float>(here.to(other_device())), c10::ValueError);
  EXPECT_THROW(host_bytes(here.t()), c10::ValueError);
  EXPECT_THROW(host_numbers<double>(here), c10::Error);
  EXPECT_EQ(host_bytes(at::zeros({})).size(), 4u);
}

TEST(Memory, IsThatOfTheDevice) {
  const at::Device device = other_device();
  const int64_t before = used_memory(device);
  EXPECT_TRUE(reset_peak_memory(device));
  {
    const Tensor gone = at::empty({1000}, at::TensorOptions(at::kFloat).device(device));
    EXPECT_EQ(used_memory(device), before + 4000);
  }
  EXPECT_EQ(used_memory(device), before);
  EXPECT_EQ(peak_memory(device), before + 4000);
  EXPECT_TRUE(reset_peak_memory(device));
  EXPECT_EQ(peak_memory(device), before);
}

TEST(Memory, WhatTheAllocatorHoldsBackIsFree) {
  EXPECT_EQ(free_memory(other_device()), std::nullopt);
  testing::set_other_memory(5000);
  EXPECT_EQ(free_memory(other_device()), 5000 + HostAllocator::kHeldBack);
  testing::set_other_memory(0);
}

}  // namespace

namespace testing {

at::Device other_device() {
  static const at::Device device = [] {
    static Hooks hooks;
    c10::register_privateuse1_backend(kName);
    c10::SetAllocator(kOther, &allocator);
    at::RegisterPrivateUse1HooksInterface(&hooks);
    return parse_device(kName);
  }();
  return device;
}

std::string other_name() {
  other_device();
  return kName;
}

OtherCounts other_counts() {
  const std::scoped_lock lock(mutex);
  return counts;
}

void set_other_memory(int64_t bytes) { memory = bytes; }

}  // namespace testing
}  // namespace motet
