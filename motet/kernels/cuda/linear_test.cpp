#include "motet/kernels/cuda/testing.h"

namespace motet::cuda {
namespace {

using namespace testing;

struct LinearCase {
  int64_t rows, outputs, columns;
  NumberType type;
  bool biased;
};

constexpr NumberType kEight = NumberType::int8;
const LinearCase kCases[] = {
    {1, 1, 16, kEight, false},    {1, 37, 528, kEight, true}, {1, 9, 1040, kBrain, true},   {2, 5, 272, kBrain, false},
    {4, 33, 528, kEight, false},  {5, 6, 48, kEight, true},   {8, 19, 1536, kBrain, true},  {9, 4, 64, kEight, true},
    {16, 11, 528, kBrain, false}, {3, 130, 32, kEight, true}, {16, 70, 272, kEight, false}, {7, 16, 512, kBrain, true},
    {2, 7, 4, kEight, false},     {5, 3, 700, kBrain, true},  {12, 5, 1100, kEight, true},  {1, 9, 1040, kHalf, true},
    {4, 7, 272, kHalf, false},    {8, 5, 48, kHalf, true},    {16, 11, 528, kHalf, false}};

// W as it lies: its bytes are those of 16-bit numbers, two a byte of int8.
struct Kept {
  std::vector<uint16_t> bits;
  Doubles values;
};

Kept weights(const LinearCase& o, const std::vector<float>& scale, std::mt19937& random) {
  Kept made;
  const int64_t count = o.outputs * o.columns;
  made.bits.resize(static_cast<size_t>(o.type == kEight ? count / 2 : count));
  for (int64_t i = 0; i < count; ++i) {
    if (o.type == kEight) {
      const auto x = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
      reinterpret_cast<int8_t*>(made.bits.data())[i] = x;
      made.values.push_back(static_cast<double>(x) * scale[static_cast<size_t>(i / o.columns)]);
    } else {
      const float x = std::normal_distribution<float>()(random);
      const bool brain = o.type == kBrain;
      const uint16_t bits = made.bits[static_cast<size_t>(i)] = brain ? to_bfloat16(x) : to_float16(x);
      made.values.push_back(brain ? widen_bfloat16(bits) : widen_float16(bits));
    }
  }
  return made;
}

TEST_F(Step, LinearLayersOfKeptWeightsMatchLoopsAndARowItself) {
  for (const LinearCase& o : kCases) {
    SCOPED_TRACE(std::to_string(o.rows) + " rows, " + std::to_string(o.outputs) + " x " + std::to_string(o.columns));
    Typed x = numbers(kFloat, o.rows * o.columns), bias = numbers(kFloat, o.outputs),
          scale = numbers(kFloat, o.outputs, 0.01f), y(kFloat, o.rows * o.outputs);
    const Kept w = weights(o, scale.floats, random_);
    KeptLinear n{o.rows,
                 o.outputs,
                 o.columns,
                 x.floats.data(),
                 w.bits.data(),
                 o.type,
                 o.type == kEight ? scale.floats.data() : nullptr,
                 o.biased ? bias.floats.data() : nullptr};
    ASSERT_EQ(kernels_.kept_linear(n, y.floats.data(), none_), nullptr);
    const Doubles xs = doubles(x), biases = doubles(bias);
    for (int64_t m = 0; m < o.rows; ++m)
      for (int64_t i = 0; i < o.outputs; ++i) {
        double want = 0, size = 0;
        for (int64_t k = 0; k < o.columns; ++k) {
          const double term =
              xs[static_cast<size_t>(m * o.columns + k)] * w.values[static_cast<size_t>(i * o.columns + k)];
          want += term, size += std::abs(term);
        }
        if (o.biased) want += biases[static_cast<size_t>(i)];
        ASSERT_NEAR(y.floats[static_cast<size_t>(m * o.outputs + i)], want, 3e-7 * (1 + size)) << m << ' ' << i;
      }
    for (int64_t m = 0; m < o.rows; ++m) {  // alone
      Typed own(kFloat, o.outputs);
      KeptLinear one = n;
      one.rows = 1, one.x += m * o.columns;
      ASSERT_EQ(kernels_.kept_linear(one, own.floats.data(), none_), nullptr);
      for (int64_t i = 0; i < o.outputs; ++i)
        ASSERT_EQ(own.floats[static_cast<size_t>(i)], y.floats[static_cast<size_t>(m * o.outputs + i)]);
    }
  }
}

}  // namespace
}  // namespace motet::cuda
