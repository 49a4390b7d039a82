// The decode kernels, emulated on the host, against loops in double.
#include "motet/attention/cuda/testing.h"

namespace motet::cuda {
namespace {

using namespace motet::cuda::testing;
using cpu::naive_forward, cpu::NaiveResult;

using Decode = Cuda;

Options dcmha(int64_t heads, int64_t width) {
  Options o;
  o.B = 2, o.T = 1, o.S = 77, o.D = o.E = width, o.causal = true, o.type = Type::bfloat16;
  o.score_heads = o.softmax_heads = o.output_heads = o.key_heads = o.value_heads = heads;
  o.pre = o.post = kDcmha, o.pre_identity = o.post_identity = true;
  return o;
}

// Arithmetic is float32 whatever the types: only what is stored in 16 bits is rounded to them.
void expect_right(const Sample& s) {
  const double rounding = s.o.type == Type::bfloat16 ? 4e-3 : s.o.type == Type::float16 ? 5e-4 : 2e-6;
  EXPECT_STREQ(decode_why_not(s.p, Pass::forward), "");
  const Results r = forward_of(s, attention());
  const NaiveResult expected = naive_forward(s.p);
  EXPECT_LE(error(widened(r.out), expected.out), rounding) << "out";
  EXPECT_LE(error(widened(r.lse), expected.lse), 2e-6) << "lse";
  EXPECT_EQ(emulated::take_fault(), "");
}

// Every problem of the general kernels, with few queries and rows that lie in vectors.
TEST_F(Decode, MatchesTheOracle) {
  const std::vector<Type> types{Type::float32, Type::bfloat16, Type::float16};
  size_t turn = 0;
  for (Named c : cases())
    for (const int64_t T : {1, 3, 16}) {
      SCOPED_TRACE(std::string(c.name) + ", queries " + std::to_string(T));
      Options& o = c.options;
      o.T = T, o.D = 24, o.E = 40, o.type = types[turn++ % 3], o.strided = false, o.keys8 = false;
      expect_right(Sample(o));
    }
}

// Heads, widths and numbers of queries: 64 heads of 256 leave no memory for four queries in a block.
TEST_F(Decode, HeadsAndWidths) {
  for (const int64_t heads : {1, 6, 16, 32, 64})
    for (const int64_t width : {16, 64, 80, 128, 256}) {
      SCOPED_TRACE("heads " + std::to_string(heads) + " width " + std::to_string(width));
      Options o = dcmha(heads, width);
      o.T = heads % 3 + width % 3, o.S = 40, o.E = width == 80 ? 128 : width, o.B = 1;
      if (heads % 4 == 0) o.key_heads = heads / 4, o.value_heads = heads / 2;
      expect_right(Sample(o));
    }
}

// The keys are cut into as many parts as fill a GPU; the last of them may be empty.
TEST_F(Decode, PartsOfTheKeysAddUp) {
  for (const int64_t S : {31, 32, 64, 65, 1000, 2500}) {
    SCOPED_TRACE(S);
    Options o = dcmha(4, 16);
    o.S = S, o.type = Type::float32, o.lengths = S % 2 == 0 ? 1 : 0;
    expect_right(Sample(o));
    o.window = 70, o.T = 5;
    expect_right(Sample(o));
  }
}

TEST_F(Decode, KeysOf16BitsUnderFloat32Queries) {
  for (const Type type : {Type::bfloat16, Type::float16}) {
    Options o = dcmha(6, 40);
    o.type = Type::float32, o.T = 2;
    Sample s(o);
    s.o.type = type;
    s.p.k = s.operand(o.S, o.key_heads, o.D), s.p.v = s.operand(o.S, o.value_heads, o.E);
    s.o.type = Type::float32;
    expect_right(s);
  }
}

TEST_F(Decode, KeysOf8BitsAreReadAsTheyLie) {
  for (const int64_t heads : {4, 6})
    for (const int64_t width : {16, 40, 64, 136}) {
      Options o = dcmha(heads, width);
      o.type = Type::float32, o.T = heads == 4 ? 1 : 5, o.S = 200, o.keys8 = true, o.window = width == 40 ? 60 : 0;
      if (heads == 4) o.key_heads = 2, o.value_heads = 1;
      SCOPED_TRACE("heads " + std::to_string(heads) + " width " + std::to_string(width));
      expect_right(Sample(o));
    }
}

// A cache has room for more keys than it holds.
TEST_F(Decode, KeysThatMayNotBeReadDoNotLeak) {
  Options o = dcmha(4, 16);
  o.type = Type::float32, o.T = 3, o.S = 200, o.lengths = 1, o.causal = false;
  Sample s(o);
  const Results clean = forward_of(s, attention());
  spoil_unread_keys(s);
  const Results spoilt = forward_of(s, attention());
  EXPECT_TRUE(same_bits(clean, spoilt));
  expect_right(s);
}

TEST_F(Decode, BitsDoNotDependOnTheOrderOfWarps) {
  for (const int64_t T : {1, 6}) {
    Options o = dcmha(6, 64);
    o.T = T, o.S = 300;
    Sample s(o);
    const Results one = forward_of(s, attention());
    emulated::reverse_order(true);
    EXPECT_TRUE(same_bits(one, forward_of(s, attention())));
    emulated::reverse_order(false);
  }
}

// A query that is NaN stays so, and no other row learns of it.
TEST_F(Decode, NotANumberStaysWhereItIs) {
  Options o = dcmha(2, 16);
  o.type = Type::float32, o.pre.clear(), o.post.clear();
  Sample s(o);
  auto* const q = static_cast<float*>(const_cast<void*>(s.p.q.data));
  q[0] = NAN;
  const Results r = forward_of(s, attention()), general = forward_of(s, general_attention());
  for (size_t i = 0; i < r.out.size(); ++i) EXPECT_EQ(std::isnan(r.out[i]), i < 16) << i;
  for (size_t i = 16; i < r.out.size(); ++i) EXPECT_NEAR(r.out[i], general.out[i], 1e-5);
}

TEST_F(Decode, WhatIsLeftToOthers) {
  const auto why = [](auto change, Pass pass = Pass::forward) {
    Options o = dcmha(4, 64);
    change(o);
    return std::string(decode_why_not(Sample(o).p, pass));
  };
  const auto nothing = [](Options&) {};
  EXPECT_EQ(why(nothing), "");
  EXPECT_EQ(why([](Options& o) { o.T = o.S; }), "more than 16 queries");
  EXPECT_EQ(why([](Options& o) { o.E = 264; }), "a width beyond 256");
  EXPECT_EQ(why([](Options& o) { o.D = 36; }), "rows that are not vectors of 8 numbers at multiples of 16 bytes");
  EXPECT_EQ(why([](Options& o) { o.type = Type::float32, o.D = 12; }),
            "rows that are not vectors of 8 numbers at multiples of 16 bytes");
  EXPECT_EQ(why([](Options& o) { o.strided = true; }),
            "rows that are not vectors of 8 numbers at multiples of 16 bytes");
  EXPECT_EQ(why(nothing, Pass::backward), "not a forward pass");
}

}  // namespace
}  // namespace motet::cuda
