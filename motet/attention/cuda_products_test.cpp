// Which passes go by products of matrices; that they are right is shown by property_test.cpp and rounding_test.cpp.
#include "motet/attention/cuda_products.h"

#include "motet/attention/cuda.h"
#include "motet/attention/heads.h"
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
}

TEST(CudaProducts, LeaveWhatTheyAreNotFor) {
  const auto why = [](const auto& change) {
    Arguments a = arguments_of(1024, at::kFloat);
    change(a);
    return products_why_not(checked_problem(a, "test"));
  };
  EXPECT_EQ(why([](Arguments&) {}), "");
  EXPECT_EQ(products_why_not(checked_problem(arguments_of(1000), "test")), "few pairs");  // 4 heads: less than 2^22
  const auto reaches = [](int64_t window) { return [=](Arguments& a) { a.causal = true, a.window = window; }; };
  EXPECT_EQ(why(reaches(1000)), "");
  EXPECT_EQ(why(reaches(900)), "few pairs");
  EXPECT_EQ(why([](Arguments& a) { a.input[kQ] = a.input[kQ].slice(1, 0, 16); }), "few pairs");
  EXPECT_EQ(why([](Arguments& a) {
              a.causal = true, a.window = 1000;
              a.table[kQueryStart] = at::zeros({1}, at::kLong);
            }),
            "a window that begins somewhere in each sequence");
  EXPECT_EQ(why([](Arguments& a) {
              for (const int input : {kK, kV}) a.input[input] = a.input[input].to(at::kBFloat16);
            }),
            "keys of another type");
  EXPECT_EQ(why([](Arguments& a) { a.key_of = {1, 0, 2, 3}; }), "");
  const int64_t many = 1 << 22;  // keys, all of them one
  EXPECT_EQ(why([=](Arguments& a) {
              for (const int input : {kK, kV})
                a.input[input] = a.input[input].slice(1, 0, 1).expand({1, many + 1, 4, 8});
            }),
            "pairs of few queries fill the memory");
}

// A window's keys grow by the block's queries: blocks by the window alone were as long as the text.
TEST(CudaProducts, ABlockHoldsNoMorePairsThanItMay) {
  for (const int64_t window : {0, 1, 64, 256, 5000, 40000})
    for (const int64_t length : {1024, 32768}) {
      Arguments a = arguments_of(16, at::kFloat);
      for (const int input : {kQ, kK, kV}) a.input[input] = a.input[input].slice(1, 0, 1).expand({1, length, 4, 8});
      a.causal = true, a.window = window;
      const Problem p = checked_problem(a, "test");
      int64_t next = 0;
      for (const QueryKeyBlock& at : product_blocks(p, {1 << 22, 64})) {
        EXPECT_EQ(at.t0, next);
        next = at.t1;
        if (at.t1 - at.t0 > 64) {
          EXPECT_LE(4 * (at.t1 - at.t0) * (at.s1 - at.s0), 1 << 22) << window << ' ' << length;
        }
        if (at.s0 > 0 && at.t1 < length) {  // nor much fewer
          EXPECT_GT(4 * (at.t1 - at.t0 + 16) * (at.s1 - at.s0 + 16), 1 << 21) << window << ' ' << length;
        }
      }
      EXPECT_EQ(next, length);
    }
}

// As the mean over a dimension has it.
TEST(Cuda, ARepeatedGradientTakesTheSameKernels) {
  Shape n;
  n.B = 1, n.T = n.S = 40, n.D = n.E = 64, n.Hs = n.Ha = n.Ho = n.Gk = n.Gv = 4;
  const Arguments a = arguments(n, {kDcmha, kDcmha}, at::kBFloat16);
  const Problem p = checked_problem(a, "test");
  const Attended done = kEmulatedCuda.forward(p);
  const Tensor dout = at::randn({1, 40, 1, 64}).to(at::kBFloat16).expand({1, 40, 4, 64});
  const auto made = [&](const Tensor& d) {
    return kEmulatedCuda.backward(p, {d, done.out_BTHE, done.lse_BHT, all_wanted(a)});
  };
  const Gradients repeated = made(dout), whole = made(dout.contiguous());
  for (int i = 0; i < kNumInputs; ++i)
    if (whole[i].defined()) {
      EXPECT_TRUE(whole[i].equal(repeated[i])) << input_name(i);
    }
}

TEST(Cuda, HeadsOfAnyTableSumInTheirOrder) {
  const Tensor d = at::randn({2, 3, 5, 4}, at::kBFloat16);
  const Tensor sums = summed_heads(d, {2, 0, 2, 0, 2}, 4), wide = d.to(at::kDouble);
  const auto sum = [&](std::initializer_list<int64_t> heads) {
    Tensor all = at::zeros({2, 3, 4}, at::kDouble);
    for (const int64_t h : heads) all += wide.select(2, h);
    return all;
  };
  const Tensor expected = at::stack({sum({1, 3}), sum({}), sum({0, 2, 4}), sum({})}, 2);
  EXPECT_LT((sums.to(at::kDouble) - expected).abs().max().item<double>(), 0.02);
  EXPECT_EQ(sums.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(
      spread_heads(sums, {2, 0, 2}).equal(at::stack({sums.select(2, 2), sums.select(2, 0), sums.select(2, 2)}, 2)));
}

TEST(Cuda, MoreStoredHeadsThanAByteTellsAreLeftToThePlainPaths) {
  for (const int64_t heads : {256, 257}) {
    Arguments a = arguments_of(40, at::kFloat);
    for (const int input : {kK, kV}) a.input[input] = a.input[input].slice(2, 0, 1).expand({1, 40, heads, 8});
    a.key_of = a.value_of = {0, 1, 2, heads - 1};
    EXPECT_EQ(cuda_why_not(checked_problem(a, "test"), cuda::general_attention()),
              heads > 256 ? "more than 256 stored heads" : "");
  }
}

TEST(Cuda, ARankThatFitsNoTileIsLeftToThePlainPaths) {
  Shape n;
  n.B = 1, n.T = n.S = 20, n.D = n.E = 8, n.Hs = n.Ha = n.Ho = n.Gk = n.Gv = 4;
  for (const char* side : {"query", "key"})
    for (const int64_t rank : {8, 9}) {
      n.R = rank;
      const std::vector<std::string> parts{text(side, "_down"), text(side, "_up")};
      for (const bool post : {false, true}) {
        const Arguments a = arguments(
            n, {post ? std::vector<std::string>() : parts, post ? parts : std::vector<std::string>()}, at::kFloat);
        EXPECT_EQ(cuda_why_not(checked_problem(a, "test"), cuda::general_attention()),
                  rank > 8 ? "a rank beyond 8" : "")
            << side << rank << post;
      }
    }
}

}  // namespace
}  // namespace motet
