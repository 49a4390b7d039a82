#include <algorithm>

#include "motet/core/error.h"
#include "motet/ops/checks.h"
#include "motet/ops/number_type.h"
#include "motet/ops/ops.h"
#include "motet/ops/options.h"
#include "motet/ops/threads.h"

namespace motet {
namespace {

void refuse_gradients(const Matrix& w) {
  if (at::GradMode::is_enabled())
    fail("linear: the weights are kept in ", c10::toString(w.values_NK.scalar_type()),
         " for inference, want train() called before a pass with gradients");
}

// In 16 bits: bfloat16 has every size of float32.
Matrix halves(const Tensor& values, const Tensor& weight) {
  if (values.scalar_type() == at::kHalf && (values.isinf() & weight.isfinite()).any().item<bool>())
    fail("weights of up to ", weight.abs().max().item<float>(), " cannot be kept in float16, want bfloat16");
  return {.values_NK = values, .kept = true};
}

// On another device, which has memory of its own: the numbers are those of the CPU.
Matrix kept_away(WeightType type, const Tensor& weight) {
  if (type == WeightType::float32) return {weight.detach()};
  if (type != WeightType::int8) return halves(weight.detach().to(dtype_of(type)), weight);
  WeightArena arena(arena_bytes(type, weight.size(0), weight.size(1)));
  return on_device(kept_in(type, weight.detach().to(at::kCPU), arena), weight.device());
}

}  // namespace

Matrix on_device(const Matrix& w, at::Device device) {
  if (device == w.values_NK.device()) return w;
  return {w.values_NK.to(device), w.scale_N.defined() ? w.scale_N.to(device) : Tensor(), w.kept};
}

const char* name(WeightType type) { return word_of(weight_types(), type); }

WeightType parse_weight_type(const std::string& name) { return value_of(weight_types(), name, "weight type"); }

int64_t arena_bytes(WeightType type, int64_t rows, int64_t columns) {
  const auto rounded = [](int64_t bytes) {
    return (bytes + WeightArena::kAlignment - 1) / WeightArena::kAlignment * WeightArena::kAlignment;
  };
  return rounded(rows * columns * bytes_of(type)) + (type == WeightType::int8 ? rounded(rows * 4) : 0);
}

Matrix kept_in(WeightType type, const Tensor& weight, WeightArena& arena) {
  at::NoGradGuard no_grad;
  if (weight.scalar_type() != at::kFloat)
    fail("weights of ", c10::toString(weight.scalar_type()), " cannot be kept for inference, want float32");
  if (!weight.is_cpu()) return kept_away(type, weight);
  if (type == WeightType::float32) return {arena.take(weight.sizes(), at::kFloat).copy_(weight)};
  if (type != WeightType::int8) return halves(arena.take(weight.sizes(), dtype_of(type)).copy_(weight), weight);
  const int64_t rows = weight.size(0), columns = weight.size(1);
  const Tensor from = weight.detach().contiguous(), values = arena.take({rows, columns}, at::kChar),
               scale = arena.take({rows}, at::kFloat);
  torch_threads().run_parts(rows, 64, [&](int64_t begin, int64_t end) {
    quantize_rows(from.const_data_ptr<float>() + begin * columns, end - begin, columns,
                  values.mutable_data_ptr<int8_t>() + begin * columns, scale.mutable_data_ptr<float>() + begin);
  });
  return {values, scale, true};
}

Weight as_weight(const Matrix& w) {
  return {.type = number_type(w.values_NK),
          .data = w.values_NK.const_data_ptr(),
          .scale = w.scale_N.defined() ? w.scale_N.const_data_ptr<float>() : nullptr,
          .N = w.values_NK.size(0),
          .K = w.values_NK.size(1)};
}

Tensor widened(const Matrix& w) {
  if (!w.kept) return w.values_NK;
  refuse_gradients(w);
  const Tensor wide = w.values_NK.to(at::kFloat);
  return w.scale_N.defined() ? wide.mul_(w.scale_N.unsqueeze(1)) : wide;
}

Tensor ops::embedding(const Matrix& w, const Tensor& ids) {
  check_device("embedding", ids, "ids", w.values_NK, "weight");
  if (!w.kept) return at::embedding(w.values_NK, ids);
  refuse_gradients(w);
  const Tensor chosen = ids.flatten();
  Tensor found = w.values_NK.index_select(0, chosen).to(at::kFloat);
  if (w.scale_N.defined()) found.mul_(w.scale_N.index_select(0, chosen).unsqueeze(1));
  std::vector<int64_t> shape = ids.sizes().vec();
  shape.push_back(w.values_NK.size(1));
  return found.view(shape);
}

}  // namespace motet
