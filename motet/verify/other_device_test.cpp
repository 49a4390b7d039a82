// Training, scoring, decoding and verification on a device that is not the CPU, without one: a backend whose memory is
// the host's and whose every function runs on the CPU, after it has refused operands of mixed devices, as a GPU would.
// (torch's own cpu_fallback lets them through.)
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include "motet/generate/decoder.h"
#include "motet/mechanisms/contender.h"
#include "motet/ops/device.h"
#include "motet/train/testing.h"
#include "motet/verify/verify.h"

namespace motet {
namespace {

constexpr c10::DeviceType kOther = c10::DeviceType::PrivateUse1;
constexpr const char* kName = "host_copy";

struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    void* const data = n ? std::malloc(n) : nullptr;
    return {data, data, std::free, c10::Device(kOther, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return std::free; }
  void copy_data(void* to, const void* from, size_t n) const override { std::memcpy(to, from, n); }
};
HostAllocator allocator;

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

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
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

void checked_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  refuse_mixed(op, *stack);
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
  void synchronizeDevice(c10::DeviceIndex) const override {}
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};

class OtherDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!c10::is_privateuse1_backend_registered()) c10::register_privateuse1_backend(kName);
    c10::SetAllocator(kOther, &allocator);
    static Hooks hooks;
    if (!at::isPrivateUse1HooksRegistered()) at::RegisterPrivateUse1HooksInterface(&hooks);
  }
  static at::Device other() { return parse_device(kName); }
};

TEST_F(OtherDevice, MixedOperandsAreFound) {
  const Tensor here = at::ones({2, 3}), there = here.to(other());
  EXPECT_EQ((there + there).sum().item<double>(), 12);
  EXPECT_THROW(at::matmul(there, here.t()), std::exception);
  EXPECT_THROW(there + here, std::exception);
}

double largest(const Tensor& a, const Tensor& b) { return (a.cpu() - b.cpu()).abs().max().item<double>(); }

TEST_F(OtherDevice, EveryMechanismTrainsAndScoresAsOnTheCpu) {
  const TextData data = testing::two_texts();
  for (const std::string& name : contender_names()) {
    SCOPED_TRACE(name);
    double loss[2], score[2];
    for (const bool away : {false, true}) {
      RunConfig run = testing::small_run({{"train.device", away ? kName : "cpu"}, {"train.dtype", "float64"}});
      run.attention_given = parse_contender(name, "");
      Model model(run.model_config(data.tokenizer->vocabulary_size()), away ? other() : at::Device(at::kCPU));
      model->initialize(1);
      Trainer trainer(model, data, run.train);
      for (int step = 0; step < 3; ++step) loss[away] = trainer.step().loss;
      score[away] = trainer.evaluate().loss;
      EXPECT_EQ(trainer.model().device().is_cpu(), !away);
    }
    EXPECT_NEAR(loss[1], loss[0], 1e-12 * loss[0]);
    EXPECT_NEAR(score[1], score[0], 1e-12 * score[0]);
  }
}

TEST_F(OtherDevice, EveryMechanismDecodesAsOnTheCpu) {
  for (const std::string& name : contender_names())
    for (const CacheType type : {CacheType::model, CacheType::int8}) {
      SCOPED_TRACE(name);
      const ModelConfig config = testing::tiny({}, parse_contender(name, ""));
      Tensor logits[2];
      for (const bool away : {false, true}) {
        Model model(config, away ? other() : at::Device(at::kCPU));
        model->initialize(1);
        Decoder decoder(*model, {1, 2, 3}, 8, {.type = type});
        for (const int32_t next : {4, 5}) {
          decoder.logits();
          decoder.push({{next}});
        }
        logits[away] = decoder.logits();
      }
      EXPECT_LE(largest(logits[0], logits[1]), 1e-5);
    }
}

TEST_F(OtherDevice, RecordedFilesAreVerifiedThere) {
  for (const std::string folder : {"tests/golden/op", "tests/golden/model"}) {
    int verified = 0;
    for (const std::string& path : golden_files({folder})) {
      const FileReport report = verify_file(path, {.device = other()});
      EXPECT_TRUE(report.passed()) << path;
      if (++verified == 12) break;
    }
    EXPECT_GT(verified, 0) << folder;
  }
}

}  // namespace
}  // namespace motet
