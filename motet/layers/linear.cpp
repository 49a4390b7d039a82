#include "motet/layers/linear.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "motet/attention/fused.h"
#include "motet/core/error.h"

namespace motet {

const std::vector<std::string>& weight_type_names() {
  static const std::vector<std::string> names{"float32", "bfloat16", "int8"};  // in the order of WeightType
  return names;
}

WeightType parse_weight_type(const std::string& name) {
  const std::vector<std::string>& names = weight_type_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw UsageError(unknown_name("weight type", name, names));
  return static_cast<WeightType>(found - names.begin());
}

bool for_kernels(const Tensor& x) {
  return !at::GradMode::is_enabled() && x.is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous() &&
         !at::autocast::is_autocast_enabled(at::kCPU);
}

const Threads& torch_threads() {
  thread_local Threads threads{1, torch_runtime().parallel_for};
  threads.count = at::get_num_threads();
  return threads;
}

void over_parts(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& part) {
  const Threads& threads = torch_threads();
  const int64_t parts = std::clamp<int64_t>(count / std::max<int64_t>(grain, 1), 1, threads.count);
  threads.run(parts, [&](int64_t i) { part(count * i / parts, count * (i + 1) / parts); });
}

LinearImpl::LinearImpl(int64_t in, int64_t out, bool with_bias, at::Device device) : in_(in), out_(out) {
  weight = register_parameter("weight", at::empty({out, in}, device));
  if (with_bias) bias = register_parameter("bias", at::empty({out}, device));
}

bool LinearImpl::takes(const Tensor& x) const {
  return for_kernels(x) && x.numel() <= kMaxLinearRows * in_ && x.numel() > 0 &&
         (kept_.defined() || (weight.scalar_type() == at::kFloat && weight.is_contiguous()));
}

Weight LinearImpl::kept() const {
  const Tensor& data = kept_.defined() ? kept_ : weight;
  return {.type = data.scalar_type() == at::kChar       ? WeightType::int8
                  : data.scalar_type() == at::kBFloat16 ? WeightType::bfloat16
                                                        : WeightType::float32,
          .data = data.const_data_ptr(),
          .scale = scale_.defined() ? scale_.const_data_ptr<float>() : nullptr,
          .bias = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
          .N = out_,
          .K = in_};
}

void LinearImpl::refuse_gradients() const {
  if (at::GradMode::is_enabled())
    fail("linear: the weights are kept in ", c10::toString(kept_.scalar_type()),
         " for inference, want train() called before a pass with gradients");
}

Tensor LinearImpl::full() const {
  if (!kept_.defined()) return weight;
  refuse_gradients();
  const Tensor wide = kept_.to(at::kFloat);
  return scale_.defined() ? wide.mul_(scale_.unsqueeze(1)) : wide;
}

Tensor LinearImpl::forward(const Tensor& x) {
  return takes(x) ? linear_together({this}, x)[0] : at::linear(x, full(), bias);
}

Tensor linear_rows(const Tensor& x, const Tensor& weight) {
  const int64_t in = weight.size(1), rows = x.numel() / std::max<int64_t>(in, 1);
  if (!for_kernels(x) || !for_kernels(weight) || rows < 1 || rows > kMaxLinearRows) return at::linear(x, weight);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = weight.size(0);
  const Tensor y = at::empty(shape, x.options());
  const LinearTask task{{.data = weight.const_data_ptr(), .N = weight.size(0), .K = in}, y.mutable_data_ptr<float>()};
  linear({&task, 1}, x.const_data_ptr<float>(), rows, torch_threads());
  return y;
}

std::vector<Tensor> linear_together(std::initializer_list<LinearImpl*> layers, const Tensor& x) {
  std::vector<Tensor> made;
  c10::SmallVector<LinearTask, 4> tasks;
  c10::SmallVector<int64_t, 5> shape(x.sizes());
  for (LinearImpl* layer : layers) {
    if (!layer->takes(x)) {
      made.push_back(at::linear(x, layer->full(), layer->bias));
      continue;
    }
    shape.back() = layer->out_;
    made.push_back(at::empty(shape, x.options()));
    tasks.push_back({layer->kept(), made.back().mutable_data_ptr<float>()});
  }
  if (!tasks.empty())
    linear(std::span(tasks.data(), tasks.size()), x.const_data_ptr<float>(), x.numel() / x.size(-1), torch_threads());
  return made;
}

Tensor LinearImpl::rows(const Tensor& ids) const {
  if (!kept_.defined()) return at::embedding(weight, ids);
  refuse_gradients();
  const Tensor chosen = ids.flatten();
  Tensor found = kept_.index_select(0, chosen).to(at::kFloat);
  if (scale_.defined()) found.mul_(scale_.index_select(0, chosen).unsqueeze(1));
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.push_back(in_);
  return found.view(shape);
}

int64_t LinearImpl::kept_bytes() const {
  return static_cast<int64_t>((kept_.defined() ? kept_.nbytes() : 0) + (scale_.defined() ? scale_.nbytes() : 0));
}

int64_t LinearImpl::prepared_bytes(WeightType type) const {
  const auto rounded = [](int64_t bytes) {
    return (bytes + WeightArena::kAlignment - 1) / WeightArena::kAlignment * WeightArena::kAlignment;
  };
  const int64_t size = type == WeightType::float32 ? 4 : type == WeightType::bfloat16 ? 2 : 1;
  return rounded(in_ * out_ * size) + (type == WeightType::int8 ? rounded(out_ * 4) : 0);
}

void LinearImpl::prepare(WeightType type, WeightArena& arena) {
  at::NoGradGuard no_grad;
  if (!weight.is_cpu() || weight.scalar_type() != at::kFloat)
    fail("weights of ", c10::toString(weight.scalar_type()), " cannot be kept for inference, want float32 on the CPU");
  if (type == WeightType::float32) {
    weight.set_data(arena.take({out_, in_}, at::kFloat).copy_(weight));
    return;
  }
  if (type == WeightType::bfloat16) {
    kept_ = arena.take({out_, in_}, at::kBFloat16).copy_(weight);
  } else {
    const Tensor from = weight.detach().contiguous();
    kept_ = arena.take({out_, in_}, at::kChar), scale_ = arena.take({out_}, at::kFloat);
    over_parts(out_, 64, [&](int64_t begin, int64_t end) {
      quantize_rows(from.const_data_ptr<float>() + begin * in_, end - begin, in_,
                    kept_.mutable_data_ptr<int8_t>() + begin * in_, scale_.mutable_data_ptr<float>() + begin);
    });
  }
  weight.set_data(at::empty({0, in_}));
}

void LinearImpl::drop_prepared() {
  if (!kept_.defined()) return;
  at::NoGradGuard no_grad;
  weight.set_data(full());
  kept_.reset(), scale_.reset();
}

}  // namespace motet
