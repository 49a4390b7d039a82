// Which passes go by products of matrices; that they are right is shown by property_test.cpp and rounding_test.cpp.
#include "motet/attention/cuda_products.h"

#include "motet/attention/cuda.h"
#include "motet/attention/testing.h"
#include "motet/core/testing.h"

namespace motet {
namespace {

using namespace testing;

constexpr const char* kNames[] = {"forward", "backward", "lse", "given_lse", "between", "between_back"};
template <int kName, class... Arguments>
const char* say(Arguments...) {
  return kNames[kName];
}

// Kernels that say their names instead.
cuda::Api names(bool own) {
  cuda::Api api = cuda::general_attention();
  api.workspace_bytes = [](const plain::Problem&, cuda::Pass) { return int64_t{0}; };
  api.forward = say<0>;
  api.backward = say<1>;
  api.lse = say<2>;
  api.given_lse = say<3>;
  api.between = say<4>;
  api.between_back = say<5>;
  api.has_own = own ? [](const plain::Problem&, cuda::Pass) { return true; }
                    : [](const plain::Problem&, cuda::Pass) { return false; };
  return api;
}

Arguments arguments_of(int64_t length, at::ScalarType type = at::kBFloat16) {
  Shape n;
  n.B = 1, n.T = n.S = length, n.D = n.E = 8, n.Hs = n.Ha = n.Ho = n.Gk = n.Gv = 4;
  return arguments(n, {{"weight"}, {"weight"}}, type);
}

// What a call says that fails: "composed_attention: CUDA: " and the kernel's name.
template <class Call>
std::string kernel_of(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    const std::string said = error.what_without_backtrace();
    return said.substr(said.rfind(' ') + 1);
  }
  return "";
}

// The kernel that each pass asked.
std::vector<std::string> asked(const Arguments& a, const cuda::Api& api) {
  const Problem p = checked_problem(a, "test");
  const Tensor out_BTHE = at::zeros({p.B, p.T, p.output_heads, p.E}, p.q_BTHD.options());
  const Tensor lse_BHT = at::zeros({p.B, p.softmax_heads, p.T});
  const Backward b{out_BTHE, out_BTHE, lse_BHT, all_wanted(a)};
  return {kernel_of([&] { cuda_forward(p, api); }), kernel_of([&] { cuda_backward(p, b, api); }),
          kernel_of([&] { cuda_lse(p, api); }), kernel_of([&] { cuda_given_lse(p, lse_BHT, api); })};
}

TEST(CudaProducts, TakeLongProblemsThatWouldBeLeftToTheGeneralKernels) {
  const std::vector<std::string> products{"between", "between_back", "between", "between"};
  const std::vector<std::string> kernels{"forward", "backward", "lse", "given_lse"};
  EXPECT_EQ(asked(arguments_of(1024), names(false)), products);
  EXPECT_EQ(asked(arguments_of(1024), names(true)), kernels);
  EXPECT_EQ(asked(arguments_of(1000), names(false)), kernels);  // 4 heads: less than 2^22 (head, query, key)
  Arguments mixed_types = arguments_of(1024, at::kFloat);
  mixed_types.input[kK] = mixed_types.input[kK].to(at::kBFloat16);
  mixed_types.input[kV] = mixed_types.input[kV].to(at::kBFloat16);
  EXPECT_EQ(asked(mixed_types, names(false)), kernels);
  Arguments crossed = arguments_of(1024);  // a table of heads that would be copied from the host
  crossed.key_of = {1, 0, 2, 3};
  EXPECT_EQ(asked(crossed, names(false)), kernels);
}

}  // namespace
}  // namespace motet
