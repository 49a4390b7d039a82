#include "motet/ops/dropout.h"

#include <ATen/OpMathType.h>

#include "motet/ops/checks.h"
#include "motet/ops/device.h"
#include "motet/ops/table.h"
#include "motet/ops/threads.h"

namespace motet {
namespace {

// A row's numbers are drawn in fours: number j takes the 16 bits j % 4 of draw j / 4.
constexpr int64_t kOfADraw = 4;
constexpr int64_t kSteps = 1 << 16;

struct Drawn {
  const Tensor& x;
  const Dropout& dropout;

  int64_t zeros() const { return std::llround(dropout.p * kSteps); }  // of kSteps
  double scale() const { return static_cast<double>(kSteps) / static_cast<double>(kSteps - zeros()); }
  int64_t rows() const { return x.size(0); }
  int64_t row_size() const { return x.numel() / std::max<int64_t>(x.size(0), 1); }
  uint64_t row_key(int64_t row) const {
    return splitmix64(dropout.key, static_cast<uint64_t>(dropout.first_row + row));
  }
};

std::string why_not_counted(const Drawn& a) {
  if (!a.x.is_cpu()) return "CPU tensors alone";
  return a.x.is_contiguous() ? "" : "x without gaps alone";
}

template <class T>
void count_through(const Drawn& a, const T* from, T* to) {
  const int64_t size = a.row_size(), draws = (size + kOfADraw - 1) / kOfADraw;
  const auto zeros = static_cast<uint64_t>(a.zeros());
  const auto scale = static_cast<at::opmath_type<T>>(a.scale());
  torch_threads().run_parts(a.rows() * draws, 1 << 13, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t row = at / draws, draw = at % draws;
      uint64_t bits = splitmix64(a.row_key(row), static_cast<uint64_t>(draw));
      for (int64_t j = draw * kOfADraw; j < std::min((draw + 1) * kOfADraw, size); ++j, bits >>= 16)
        to[row * size + j] = (bits & (kSteps - 1)) < zeros ? T(0) : static_cast<T>(from[row * size + j] * scale);
    }
  });
}

Tensor counted(const Drawn& a) {
  const Tensor y = at::empty(a.x.sizes(), a.x.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, a.x.scalar_type(), "dropout", [&] {
    count_through(a, a.x.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>());
  });
  return y;
}

// splitmix64 in torch's int64, whose products wrap as unsigned ones do.
Tensor mixed_bits(Tensor z) {
  const auto shifted = [](const Tensor& t, int64_t by) {  // without the sign
    return at::bitwise_and(at::__rshift__(t, by), (int64_t{1} << (64 - by)) - 1);
  };
  z = at::bitwise_xor(z, shifted(z, 30)) * static_cast<int64_t>(0xBF58476D1CE4E5B9u);
  z = at::bitwise_xor(z, shifted(z, 27)) * static_cast<int64_t>(0x94D049BB133111EBu);
  return at::bitwise_xor(z, shifted(z, 31));
}

// The plain definition, on any device.
Tensor drawn(const Drawn& a) {
  const int64_t size = a.row_size(), draws = (size + kOfADraw - 1) / kOfADraw;
  std::vector<int64_t> keys;
  for (int64_t row = 0; row < a.rows(); ++row) keys.push_back(static_cast<int64_t>(a.row_key(row)));
  const auto longs = at::TensorOptions(at::kLong).device(a.x.device());
  const Tensor keys_B1 = moved(keys, {a.rows(), 1}, a.x.device()),
               counters_D = (at::arange(draws, longs) + 1) * static_cast<int64_t>(kGolden),
               bits_BD = mixed_bits(keys_B1 + counters_D), lanes_4 = at::arange(kOfADraw, longs) * 16,
               words_BD4 = at::bitwise_and(at::__rshift__(bits_BD.unsqueeze(-1), lanes_4), kSteps - 1),
               kept = (words_BD4 >= a.zeros()).flatten(1).slice(1, 0, size).reshape(a.x.sizes());
  return at::where(kept, a.x * a.scale(), a.x.new_zeros({}));
}

const auto& dropout_kernels() {
  static const Kernels<Drawn, Tensor, 2> rows(
      "dropout",
      {{{"counter", why_not_counted, counted}, {"torch", [](const Drawn&) { return std::string(); }, drawn}}});
  return rows;
}

class DrawnAgain : public torch::autograd::Function<DrawnAgain> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, double p, int64_t key,
                        int64_t first_row, const char* kernel) {
    context->saved_data["p"] = p, context->saved_data["key"] = key, context->saved_data["first_row"] = first_row;
    context->saved_data["kernel"] = std::string(kernel ? kernel : "");
    return dropout_kernels()(x, {x, {p, static_cast<uint64_t>(key), first_row}}, kernel);
  }
  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, const std::vector<Tensor>& gradients) {
    auto& saved = context->saved_data;
    const std::string kernel = saved["kernel"].toStringRef();
    const Dropout dropout{saved["p"].toDouble(), static_cast<uint64_t>(saved["key"].toInt()),
                          saved["first_row"].toInt()};
    return {ops::dropout(gradients[0].contiguous(), dropout, kernel.empty() ? nullptr : kernel.c_str()), Tensor(),
            Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

const KernelTable& dropout_table() { return dropout_kernels().names(); }

Tensor ops::dropout(const Tensor& x, const Dropout& dropout, const char* kernel) {
  TORCH_CHECK_VALUE(dropout.p >= 0 && dropout.p < 1, "dropout: p is ", dropout.p, ", want 0 to below 1");
  TORCH_CHECK_VALUE(x.dim() > 0 && x.is_floating_point(), "dropout: x is a ", x.scalar_type(), " tensor of ", x.dim(),
                    " axes, want real numbers [B,...]");
  return DrawnAgain::apply(x, dropout.p, static_cast<int64_t>(dropout.key), dropout.first_row, kernel);
}

}  // namespace motet
