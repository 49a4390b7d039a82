// What lies between products of matrices, emulated on the host, against loops in double: the products are loops here.
#include "motet/attention/cuda/testing.h"

namespace motet::cuda {
namespace {

using namespace motet::cuda::testing;

using BetweenProducts = Cuda;

/// What multiplies: numbers [B, rows, heads, width] in float32, a head of them the stored head that it reads.
struct Rows {
  const plain::Operand& x;
  const std::vector<int64_t>* of = nullptr;
  int64_t place(int64_t b, int64_t row, int64_t head) const {
    return b * x.batch_stride + row * x.row_stride + (of ? (*of)[static_cast<size_t>(head)] : head) * x.head_stride;
  }
  float at(int64_t b, int64_t row, int64_t head, int64_t i) const {
    return load(x.data, x.type, place(b, row, head) + i);
  }
};

// [B,heads,T,S]: queries . keys.
std::vector<float> products(const plain::Problem& p, const Rows& queries, const Rows& keys, int64_t heads,
                            int64_t width) {
  std::vector<float> to;
  for (int64_t b = 0; b < p.B; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t t = 0; t < p.T; ++t)
        for (int64_t s = 0; s < p.S; ++s) {
          double sum = 0;
          for (int64_t i = 0; i < width; ++i) sum += double{queries.at(b, t, h, i)} * keys.at(b, s, h, i);
          to.push_back(static_cast<float>(sum));
        }
  return to;
}

// to [B, rows, stored, width] = pairs [B,heads,T,S] . rows of the other side, 0 where a pair has none.
void multiply_out(const plain::Problem& p, Typed& pairs, bool to_queries, const Rows& other,
                  const std::vector<int64_t>* of, int64_t heads, int64_t stored, int64_t width, void* to,
                  plain::Type type) {
  const int64_t rows = to_queries ? p.T : p.S;
  std::vector<double> sums(static_cast<size_t>(p.B * rows * stored * width));
  for (int64_t b = 0; b < p.B; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t t = 0; t < p.T; ++t)
        for (int64_t s = 0; s < p.S; ++s) {
          const double x = load(pairs.data(), pairs.type, ((b * heads + h) * p.T + t) * p.S + s);
          if (x == 0) continue;
          const int64_t own = to_queries ? t : s, head = of ? (*of)[static_cast<size_t>(h)] : h;
          for (int64_t i = 0; i < width; ++i)
            sums[static_cast<size_t>(((b * rows + own) * stored + head) * width + i)] +=
                x * other.at(b, to_queries ? s : t, h, i);
        }
  for (size_t i = 0; i < sums.size(); ++i) store(to, type, static_cast<int64_t>(i), static_cast<float>(sums[i]));
}

std::vector<float> scores(const plain::Problem& p) { return products(p, {p.q}, {p.k, &p.key_of}, p.score_heads, p.D); }

const char* forward(const plain::Problem& p, const Output& to, const Runtime& run) {
  const std::vector<float> made = scores(p);
  Typed weights(p.q.type, p.B * p.output_heads * p.T * p.S);
  const char* error = general_attention().between(p, {made.data(), nullptr, to.lse, weights.data()}, run);
  multiply_out(p, weights, true, {p.v, &p.value_of}, nullptr, p.output_heads, p.output_heads, p.E, to.out, p.q.type);
  return error;
}

const char* backward(const plain::Problem& p, const Incoming& from, const Gradients& to, const Runtime& run) {
  const std::vector<float> made = scores(p);
  const std::vector<float> dmixed = products(p, {from.dout}, {p.v, &p.value_of}, p.output_heads, p.E);
  Typed weights(p.q.type, p.B * p.output_heads * p.T * p.S), dscores(p.q.type, p.B * p.score_heads * p.T * p.S);
  Gradients mixes = to;
  mixes.q = mixes.k = mixes.v = nullptr;
  const BetweenBack between{made.data(), dmixed.data(), weights.data(), dscores.data()};
  const char* error = general_attention().between_back(p, between, mixes, run);
  multiply_out(p, dscores, true, {p.k, &p.key_of}, nullptr, p.score_heads, p.score_heads, p.D, to.q, p.q.type);
  multiply_out(p, dscores, false, {p.q}, &p.key_of, p.score_heads, p.key_heads, p.D, to.k, p.k.type);
  multiply_out(p, weights, false, {from.dout}, &p.value_of, p.output_heads, p.value_heads, p.E, to.v, p.v.type);
  return error;
}

Api looped() {
  Api api = general_attention();
  api.forward = forward, api.backward = backward;
  api.workspace_bytes = [](const plain::Problem& p, Pass pass) {
    return general_attention().workspace_bytes(p, pass == Pass::forward ? Pass::between : Pass::between_back);
  };
  return api;
}

// Arithmetic is float32; weights and gradients of scores are rounded to 16 bits, as all that is stored in them.
Limits limits_of(const Sample& s) {
  const double rounding = s.o.type == Type::bfloat16 ? 4e-3 : s.o.type == Type::float16 ? 5e-4 : 0;
  return {std::max(1.5 * rounding, 2e-6), 2e-6, std::max(1.5 * rounding, 8e-6), 8e-6};
}

void expect_right(const Options& options) {
  Sample s(options);
  const std::vector<float> dout = s.numbers(s.p.B * s.p.T * s.p.output_heads * s.p.E, 1);
  expect_close(run_all(s, outputs(s.p, dout), looped()), s, dout, limits_of(s));
}

TEST_F(BetweenProducts, ForwardAndAllGradientsMatchTheOracle) {
  for (const Named& c : cases()) {
    if (c.options.keys8) continue;
    SCOPED_TRACE(c.name);
    expect_right(c.options);
  }
}

// More heads leave less memory: tiles of 256, 128 and 64 pairs, and every part there is.
TEST_F(BetweenProducts, ManyHeads) {
  for (const int64_t heads : {12, 32, 64}) {
    SCOPED_TRACE(heads);
    Options o;
    o.B = 2, o.T = 21, o.S = 83, o.D = 24, o.E = 8, o.causal = true, o.type = Type::bfloat16;
    o.score_heads = o.softmax_heads = o.output_heads = heads, o.key_heads = heads / 4, o.value_heads = heads / 2;
    o.pre = o.post = kDcmha, o.pre_identity = true, o.query_rank = 2;
    expect_right(o);
  }
}

TEST_F(BetweenProducts, BitsDoNotDependOnTheOrderOfWarps) {
  Options o;
  o.T = 37, o.S = 150, o.causal = true, o.pre = o.post = kEverything;
  Sample s(o);
  const std::vector<float> dout = s.numbers(s.p.B * s.p.T * s.p.output_heads * s.p.E, 1);
  const Results one = run_all(s, outputs(s.p, dout), looped());
  emulated::reverse_order(true);
  EXPECT_TRUE(same_bits(one, run_all(s, outputs(s.p, dout), looped())));
}

TEST_F(BetweenProducts, KeysThatMayNotBeReadDoNotLeak) {
  Options o;
  o.B = 2, o.T = 20, o.S = 50, o.lengths = 1, o.pre = o.post = kEverything, o.pre_identity = true;
  Sample s(o);
  const std::vector<float> dout = s.numbers(s.p.B * s.p.T * s.p.output_heads * s.p.E, 1);
  const Results clean = run_all(s, outputs(s.p, dout), looped());
  spoil_unread_keys(s);
  EXPECT_TRUE(same_bits(clean, run_all(s, outputs(s.p, dout), looped())));
}

// Only the general kernels are left for products of matrices to stand beside.
TEST_F(BetweenProducts, WhoHasKernelsOfItsOwn) {
  Options o;
  o.T = 70, o.S = 70, o.D = o.E = 64, o.type = Type::bfloat16, o.pre = o.post = kDcmha;
  const auto own = [](const Options& options, Pass pass) { return attention().has_own(Sample(options).p, pass); };
  EXPECT_TRUE(own(o, Pass::forward) && own(o, Pass::backward));
  EXPECT_FALSE(own(o, Pass::lse) || own(o, Pass::given_lse));
  o.D = 128;
  EXPECT_FALSE(own(o, Pass::forward) || own(o, Pass::backward));
  o.T = 1;
  EXPECT_TRUE(own(o, Pass::forward));
  EXPECT_FALSE(own(o, Pass::backward) || general_attention().has_own(Sample(o).p, Pass::forward));
}

}  // namespace
}  // namespace motet::cuda
