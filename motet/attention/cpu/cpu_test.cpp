// The fused kernels against loops in double, on every instruction set of this machine, in memory filled with NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "motet/attention/cpu/fused_testing.h"
#include "motet/attention/cpu/plan.h"

namespace motet::cpu {
namespace {

using namespace motet::cpu::testing;

TEST_F(Fused, ForwardAndAllGradientsMatchTheOracle) {
  for (const Instructions instructions : all_instructions())
    for (const Named& c : cases()) {
      SCOPED_TRACE(std::string(c.name) + " with " + name(instructions));
      Sample s(c.options);
      const std::vector<float> dout = cotangent(s);
      expect_close(run_all(s, dout, runtime(2, instructions)), s, dout, 2e-6);
    }
}

// Of every skeleton, and backward as if the keys had been widened.
TEST_F(Fused, KeysInEightBitsMatchTheOracle) {
  for (const Instructions instructions : all_instructions())
    for (const Named& c : cases()) {
      if (c.options.type != Type::float32) continue;
      SCOPED_TRACE(std::string(c.name) + " with " + name(instructions));
      Options options = c.options;
      options.keys8 = true;
      Sample s(options);
      const std::vector<float> dout = cotangent(s);
      expect_close(run_all(s, dout, runtime(2, instructions)), s, dout, 2e-6);
    }
}

// As many heads as share a stored one meet its rows in blocks of two, three or four, the keys in fours, a row's numbers
// in eight, four or one vector; where the rows of a head lie changes no bit.
TEST_F(Fused, DecodingMatchesTheOracleWhateverSharesAKey) {
  for (const Instructions instructions : available_instructions())
    for (int64_t sharing = 1; sharing <= 9; ++sharing)
      for (const auto& [T, S] : {std::pair<int64_t, int64_t>{1, 3}, {1, 70}, {2, 133}})
        for (const bool keys8 : {false, true}) {
          SCOPED_TRACE(std::to_string(sharing) + " heads, " + std::to_string(S) +
                       (keys8 ? " keys in 8 bits" : " keys"));
          Options o;
          o.T = T, o.S = S, o.causal = true, o.keys8 = keys8;
          o.D = std::array{64, 48, 24}[static_cast<size_t>(sharing % 3)], o.E = 112;  // an odd number of vectors too
          o.score_heads = o.softmax_heads = o.output_heads = 2 * sharing;
          Sample s(o);
          std::vector<float> lse, again;
          const std::vector<float> out = attended(s, lse, runtime(2, instructions));
          const NaiveResult expected = naive_forward(s.p);
          EXPECT_LE(error(widened(out), expected.out), 2e-6);
          EXPECT_LE(error(widened(lse), expected.lse), 2e-6);
          if (keys8) continue;
          std::vector<float> by_head(static_cast<size_t>(S * 2 * (o.D + o.E)));
          float* to = by_head.data();
          for (const auto& [x, width] : {std::pair{&s.p.k, o.D}, {&s.p.v, o.E}}) {
            for (int64_t i = 0; i < S * 2; ++i)
              std::copy_n(static_cast<const float*>(x->data) + i * width, width, to + (i % 2 * S + i / 2) * width);
            *x = {to, Type::float32, 2 * S * width, width, S * width};
            to += 2 * S * width;
          }
          EXPECT_TRUE(same_bits(out, attended(s, again, runtime(2, instructions))));
        }
}

// A block of 64 queries under a window of 67 reaches into four tiles of 64 keys where it does not begin at one's edge.
TEST_F(Fused, WindowsAcrossTilesMatchTheOracle) {
  for (const int64_t window : {5, 67, 130})
    for (const bool mixed : {false, true}) {
      SCOPED_TRACE(std::to_string(window) + (mixed ? " mixed" : ""));
      Options options;
      options.B = 2, options.T = 197, options.S = 262, options.D = options.E = 8;
      options.causal = true, options.window = window;
      options.score_heads = options.softmax_heads = options.output_heads = 2;
      options.key_heads = options.value_heads = 1;
      if (mixed) options.pre = options.post = {kWeight};
      Sample s(options);
      const std::vector<float> dout = cotangent(s);
      Runtime run = runtime(1, Instructions::best);
      run.caches = {32 << 10, 1 << 20, 0, false};
      EXPECT_EQ(make_plan(s.p, run.caches).forward_rows, mixed ? 64 : 128);
      expect_close(run_all(s, dout, run), s, dout, 2e-6);
    }
}

// Small caches make blocks of 16 queries, usual ones of 64, large ones of 128. Where L2 is slow or small, sub-blocks of
// 8 are grouped: those of 128 queries in more than one group, those of 45 in a whole one and what is left.
TEST_F(Fused, BlocksOfEverySizeMatchTheOracle) {
  using enum Instructions;
  struct Blocks {
    int64_t l2, rows, T;
    std::vector<int> post;
    std::vector<Instructions> sets;
  };
  const std::vector<Instructions> own = available_instructions();
  for (const auto& [l2, rows, T, post, sets] : {Blocks{16 << 10, 16, 133, kDcmha, own},
                                                {64 << 20, 128, 133, kDcmha, own},
                                                {64 << 20, 128, 133, {kWeight}, own},
                                                {1 << 20, 64, 109, {kWeight}, own},
                                                {16 << 10, 16, 133, kDcmha, {emulated_amx}},
                                                {1 << 20, 64, 109, kDcmha, {emulated_amx}}})
    for (const Instructions instructions : sets) {
      SCOPED_TRACE(std::to_string(l2) + ", T " + std::to_string(T) + " with " + name(instructions));
      Options options;
      options.B = T < 128 ? 4 : instructions != emulated_amx ? 32 : 2, options.T = options.S = T, options.causal = true;
      options.pre = kDcmha, options.post = post, options.pre_identity = options.post_identity = true;
      Sample s(options);
      const std::vector<float> dout = cotangent(s);
      Runtime run = runtime(2, instructions);
      run.caches = {32 << 10, l2, 0, false};
      EXPECT_EQ(make_plan(s.p, run.caches).forward_rows, rows);
      const Results results = run_all(s, dout, run);
      expect_close(results, s, dout, 2e-6);
      run.caches.slow_l2 = true;
      expect_same_bits(results, run_all(s, dout, run));
    }
}

// Weights under the lse of other logits leave what a float holds; they do not stop at its largest number.
TEST_F(Fused, AnLseThatIsFarTooSmallGivesInfinity) {
  for (const Instructions instructions : available_instructions()) {
    Options options;
    options.T = options.S = 1;
    const Sample s(options);
    const Runtime run = runtime(1, instructions);
    std::vector<float> lse, out = attended(s, lse, run);
    for (float& x : lse) x -= 90;  // e^90 is 2^129.8
    ASSERT_EQ(given_lse(s.p, lse.data(), out.data(), run), Status::ok);
    for (const float x : out) EXPECT_FALSE(std::isfinite(x) && std::abs(x) > 0) << name(instructions) << " " << x;
  }
}

TEST_F(Fused, BitsDoNotDependOnTheSpeedOfL2) {
  for (const int l2 : {1 << 20, 4 << 20}) {
    Runtime fast = runtime(2, Instructions::best), slow = fast;
    fast.caches = {32 << 10, l2, 0, false}, slow.caches = {32 << 10, l2, 0, true};
    expect_same_bits(cases(), fast, {slow});
  }
}

// Of rows beyond a block's last and of keys that nobody sees, too.
TEST_F(Fused, BitsDoNotDependOnWhatEarlierCallsLeft) {
  std::vector<Named> all = cases();
  for (const int64_t rows : {129, 393}) {  // one sub-block in the last block, whose first tile is narrow
    Options o;
    o.T = o.S = rows, o.D = o.E = 64, o.causal = true, o.window = 80, o.logits = 4;
    all.push_back({"a window", o});
  }
  for (const Instructions instructions : all_instructions())
    for (const Named& c : all) {
      SCOPED_TRACE(std::string(c.name) + " with " + name(instructions));
      Sample s(c.options);
      const std::vector<float> dout = cotangent(s);
      const Results clean = run_all(s, dout, runtime(1, instructions));
      poison_workspaces(Poison::growing);
      expect_same_bits(clean, run_all(s, dout, runtime(1, instructions)));
      poison_workspaces(Poison::nan);
    }
}

TEST_F(Fused, BitsDoNotDependOnTheNumberOfThreads) { expect_same_bits(cases(), Instructions::best, {2, 4, 7}); }

// Decoding computes in float32 whatever the type, so that its narrow output is the wide one, rounded once.
TEST_F(Fused, NarrowOutputIsTheNearestAndOfTwoTheEven) {
  for (const Type type : {Type::bfloat16, Type::float16}) {
    Options options;
    options.T = 2, options.S = 70, options.D = options.E = 24, options.causal = true, options.type = type;
    const Sample narrow(options);
    Problem wide = narrow.p;
    std::deque<std::vector<float>> numbers;
    const auto widen = [&](Operand& x, int64_t rows, int64_t heads, int64_t width) {
      ASSERT_EQ(x.batch_stride, rows * heads * width);  // without gaps
      std::vector<float>& all = numbers.emplace_back(static_cast<size_t>(wide.B * x.batch_stride));
      for (size_t i = 0; i < all.size(); ++i)
        all[i] = static_cast<float>(widen_bits(static_cast<const uint16_t*>(x.data)[i], type));
      x.data = all.data(), x.type = Type::float32;
    };
    widen(wide.q, wide.T, wide.score_heads, wide.D);
    widen(wide.k, wide.S, wide.key_heads, wide.D);
    widen(wide.v, wide.S, wide.value_heads, wide.E);
    const size_t size = static_cast<size_t>(wide.B * wide.T * wide.output_heads * wide.E);
    std::vector<float> want(size);
    std::vector<uint16_t> got(size);
    ASSERT_EQ(forward(wide, {want.data(), nullptr}, runtime(1, Instructions::best)), Status::ok);
    ASSERT_EQ(forward(narrow.p, {got.data(), nullptr}, runtime(1, Instructions::best)), Status::ok);
    int halfway = 0, up = 0;
    for (size_t i = 0; i < size; ++i) {
      const double below = widen_bits(static_cast<uint16_t>(got[i] - 1), type), own = widen_bits(got[i], type),
                   above = widen_bits(static_cast<uint16_t>(got[i] + 1), type);
      ASSERT_LE(std::abs(want[i] - own), std::min(std::abs(want[i] - below), std::abs(want[i] - above))) << i;
      halfway += want[i] != own, up += std::abs(own) > std::abs(want[i]);
    }
    EXPECT_GT(up, halfway / 4);  // not cut
  }
}

TEST_F(Fused, PartsOfTheKeysAddUpUnderTheGlobalLse) {
  for (const Named& c : cases()) {
    if (c.options.documents || c.options.lengths || c.options.type != Type::float32) continue;
    SCOPED_TRACE(c.name);
    Sample s(c.options);
    std::vector<float> lse_whole;
    const std::vector<float> whole = attended(s, lse_whole, runtime(1, Instructions::best));
    const int64_t cut = s.p.S / 3;
    std::vector<int64_t> low(s.p.B, 0), middle(s.p.B, cut), high(s.p.B, s.p.S);
    std::vector<double> sum(whole.size(), 0), weights(lse_whole.size(), 0);
    Runtime run = runtime(2, Instructions::best);
    for (const bool second : {false, true}) {
      run.caches.slow_l2 = second;  // which changes nothing without a row buffer
      Problem part = s.p;
      part.key_begin = second ? middle.data() : low.data(), part.key_end = second ? high.data() : middle.data();
      std::vector<float> lse_part(lse_whole.size(), NAN), out(whole.size(), NAN);
      ASSERT_EQ(lse(part, lse_part.data(), run), Status::ok);
      ASSERT_EQ(given_lse(part, lse_whole.data(), out.data(), run), Status::ok);
      for (size_t i = 0; i < out.size(); ++i) sum[i] += out[i];
      for (size_t i = 0; i < weights.size(); ++i)
        weights[i] += std::exp(static_cast<double>(lse_part[i]) - lse_whole[i]);
    }
    EXPECT_LE(error(sum, widened(whole)), 3e-6);
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(weights[i], 1, 1e-5);
  }
}

TEST_F(Fused, QueryThatSeesNoKeyGivesZeroAndMinusInfinity) {
  for (const Named& c : cases()) {
    SCOPED_TRACE(c.name);
    Sample s(c.options);
    std::vector<int64_t> none(s.p.B, 0);
    s.p.key_end = none.data(), s.p.key_begin = nullptr;
    const std::vector<float> dout = cotangent(s);
    const Results r = run_all(s, dout, runtime(2, Instructions::best));
    for (const std::vector<float>* x : {&r.out, &r.q, &r.k, &r.v})
      for (const float f : *x) ASSERT_EQ(f, 0);
    for (const float f : r.lse) ASSERT_EQ(f, -INFINITY);
    for (int part = 0; part < kNumMixParts; ++part)
      for (const float f : r.pre[part]) ASSERT_EQ(f, 0);
  }
}

TEST_F(Fused, LargeLogitsStayAccurate) {
  for (const Named& c : cases()) {
    if (c.options.type != Type::float32) continue;
    SCOPED_TRACE(c.name);
    Options options = c.options;
    options.logits = 2000;  // logits up to about 1e4
    Sample s(options);
    const std::vector<float> dout = cotangent(s);
    const Results r = run_all(s, dout, runtime(1, Instructions::best));
    const NaiveResult expected = naive_forward(s.p);
    EXPECT_LE(error(widened(r.lse), expected.lse), 1e-5);
    EXPECT_LE(error(widened(r.out), expected.out), 2e-2);  // a logit of 1e4 has 1e-3 between neighbours
    for (const std::vector<float>* x : {&r.q, &r.k, &r.v})
      for (const float f : *x) ASSERT_TRUE(std::isfinite(f));
  }
}

TEST_F(Fused, GatesOfMinusOneAndDenormalsAreHarmless) {
  for (const double gate : {-1.0, 1e-40}) {
    Options options = cases()[3].options;
    options.gate = 0;
    Sample s(options);
    std::vector<float> gates(static_cast<size_t>(s.p.T * s.p.softmax_heads), static_cast<float>(gate));
    for (HeadMix* mix : {&s.p.pre, &s.p.post}) mix->part[kQueryGate].data = gates.data();
    const std::vector<float> dout = cotangent(s);
    expect_close(run_all(s, dout, runtime(1, Instructions::best)), s, dout, 2e-6);
  }
}

TEST_F(Fused, KeysOutsideTheirLengthsNeverLeak) {
  for (const Named& c : cases()) {
    if (c.options.type != Type::float32) continue;
    SCOPED_TRACE(c.name);
    Sample s(c.options);
    std::vector<int64_t> begin(s.p.B, s.p.S / 4), end(s.p.B, s.p.S - s.p.S / 4);
    s.p.key_begin = begin.data(), s.p.key_end = end.data();
    const std::vector<float> dout = cotangent(s);
    for (const Operand* x : {&s.p.k, &s.p.v})
      for (int64_t b = 0; b < s.p.B; ++b)
        for (int64_t row = 0; row < s.p.S; ++row)
          if (row < begin[b] || row >= end[b])
            const_cast<float*>(static_cast<const float*>(x->data))[b * x->batch_stride + row * x->row_stride] = NAN;
    const Results r = run_all(s, dout, runtime(2, Instructions::best));
    for (const std::vector<float>* x : {&r.out, &r.q, &r.k, &r.v})
      for (const float f : *x) ASSERT_TRUE(std::isfinite(f));
  }
}

// As a cache keeps them: the parts of a key in one row, with a gap behind it.
std::vector<float> side_by_side(const Problem& p, HeadMix& mix, int64_t n, int64_t m) {
  int64_t row = 3;
  for (int part = kKeyDown; part < kNumMixParts; ++part)
    if (mix.has(part)) row += plain::part_size(mix, part, n, m).numbers();
  std::vector<float> all(static_cast<size_t>(p.B * p.S * row), NAN);
  int64_t column = 0;
  for (int part = kKeyDown; part < kNumMixParts; ++part) {
    if (!mix.has(part)) continue;
    MixTensor& t = mix.part[static_cast<size_t>(part)];
    const int64_t numbers = plain::part_size(mix, part, n, m).numbers();
    for (int64_t b = 0; b < p.B; ++b)
      for (int64_t s = 0; s < p.S; ++s)
        std::copy_n(t.floats() + b * t.batch_stride + s * t.row_stride, numbers,
                    all.data() + (b * p.S + s) * row + column);
    t = {all.data() + column, p.S * row, row};
    column += numbers;
  }
  return all;
}

TEST_F(Fused, PartsSideBySideGiveTheBitsOfPartsApart) {
  std::vector<Named> all = cases();
  Options one_query = cases()[3].options;  // 45 numbers a key; tiles that end inside a group of rows
  one_query.T = 1, one_query.S = 203, one_query.score_heads = one_query.softmax_heads = one_query.output_heads = 9;
  one_query.key_heads = one_query.value_heads = 3;
  all.push_back({"one_query", one_query});
  for (const Instructions instructions : available_instructions())
    for (const Named& c : all) {
      SCOPED_TRACE(std::string(c.name) + " with " + name(instructions));
      Sample s(c.options);
      const std::vector<float> dout = cotangent(s);
      const Results apart = run_all(s, dout, runtime(2, instructions));
      const std::vector<float> pre = side_by_side(s.p, s.p.pre, s.p.score_heads, s.p.softmax_heads),
                               post = side_by_side(s.p, s.p.post, s.p.softmax_heads, s.p.output_heads);
      const Results together = run_all(s, dout, runtime(2, instructions));
      EXPECT_TRUE(same_bits(apart.out, together.out) && same_bits(apart.lse, together.lse));
      EXPECT_TRUE(same_bits(apart.q, together.q) && same_bits(apart.k, together.k) && same_bits(apart.v, together.v));
      for (int part = 0; part < kNumMixParts; ++part)
        EXPECT_TRUE(same_bits(apart.pre[part], together.pre[part]) && same_bits(apart.post[part], together.post[part]));
    }
}

// The key side of a mix as a cache keeps it in fewer bits, its parts side by side, and the same numbers in float32.
struct Narrowed {
  HeadMix narrow, wide;
  std::vector<int8_t> bytes;
  std::vector<uint16_t> halves;
  std::vector<float> scales, floats;
};
Narrowed narrowed(const Problem& p, const HeadMix& mix, int64_t n, int64_t m, Type type) {
  int64_t row = 3, rows = 1;
  for (int part = kKeyDown; part < kNumMixParts; ++part) {
    const plain::PartSize size = plain::part_size(mix, part, n, m);
    if (mix.has(part)) row += size.numbers(), rows += size.rows;
  }
  const int64_t keys = p.B * p.S;
  Narrowed x{mix, mix, {}, {}, {}, {}};
  x.bytes.resize(keys * row), x.halves.resize(keys * row), x.floats.resize(keys * row), x.scales.resize(keys * rows);
  int64_t column = 0, scale = 0;
  for (int part = kKeyDown; part < kNumMixParts; ++part) {
    if (!mix.has(part)) continue;
    const MixTensor& t = mix.part[static_cast<size_t>(part)];
    const plain::PartSize size = plain::part_size(mix, part, n, m);
    const auto readable = [&](int64_t b, int64_t s) {
      return !p.key_begin || (s >= p.key_begin[b] && s < p.key_end[b]);
    };
    for (int64_t key = 0; key < keys; ++key)
      for (int64_t i = 0; i < size.numbers(); ++i) {
        const int64_t to = key * row + column + i, its = key * rows + scale + i / size.columns;
        const float f = t.floats()[key / p.S * t.batch_stride + key % p.S * t.row_stride + i];
        x.scales[its] = 0.03f + 0.001f * static_cast<float>(its % 7);
        x.bytes[to] = static_cast<int8_t>(std::lround(std::clamp(f / x.scales[its], -127.f, 127.f)));
        if (type != Type::int8) x.halves[to] = narrow(f, type);
        x.floats[to] = type == Type::int8 ? x.scales[its] * x.bytes[to] : widen_bits(x.halves[to], type);
        if (!readable(key / p.S, key % p.S)) x.floats[to] = x.scales[its] = NAN, x.halves[to] = 0x7fff;
      }
    x.wide.part[part] = {x.floats.data() + column, p.S * row, row};
    x.narrow.part[part] = {type == Type::int8 ? static_cast<void*>(x.bytes.data() + column) : x.halves.data() + column,
                           p.S * row, row, type};
    if (type == Type::int8) {
      MixTensor& eight = x.narrow.part[part];
      eight.scale = x.scales.data() + scale, eight.scale_batch = p.S * rows, eight.scale_row = rows;
    }
    column += size.numbers(), scale += size.rows;
  }
  return x;
}

TEST_F(Fused, KeySidesInFewerBitsGiveTheBitsOfTheirWidenedNumbers) {
  std::vector<Named> all = cases();
  Options many = cases()[3].options;  // 80 numbers a key and more
  many.score_heads = many.softmax_heads = many.output_heads = many.key_heads = many.value_heads = 16;
  all.push_back({"many_heads", many});
  for (const Instructions instructions : available_instructions())
    for (const Named& c : all)
      for (const Type type : {Type::bfloat16, Type::float16, Type::int8}) {
        SCOPED_TRACE(std::string(c.name) + " with " + name(instructions));
        for (const int64_t T : {int64_t{1}, c.options.T}) {
          Options o = c.options;
          o.T = T;
          Sample s(o);
          const std::vector<float> dout = cotangent(s);
          const Narrowed pre = narrowed(s.p, s.p.pre, s.p.score_heads, s.p.softmax_heads, type),
                         post = narrowed(s.p, s.p.post, s.p.softmax_heads, s.p.output_heads, type);
          s.p.pre = pre.wide, s.p.post = post.wide;
          const Results wide = run_all(s, dout, runtime(2, instructions));
          s.p.pre = pre.narrow, s.p.post = post.narrow;
          const Results narrow = run_all(s, dout, runtime(2, instructions));
          EXPECT_TRUE(same_bits(wide.out, narrow.out) && same_bits(wide.lse, narrow.lse));
          EXPECT_TRUE(same_bits(wide.q, narrow.q) && same_bits(wide.k, narrow.k) && same_bits(wide.v, narrow.v));
          for (int part = 0; part < kNumMixParts; ++part)
            EXPECT_TRUE(same_bits(wide.pre[part], narrow.pre[part]) && same_bits(wide.post[part], narrow.post[part]));
        }
      }
}

// The first row of `up` follows that of `down`, the others lie in gaps of other rows.
TEST_F(Fused, PartsThatFollowEachOtherOnceAreApart) {
  Options o = cases()[3].options;
  o.T = 1;
  Sample s(o);
  const std::vector<float> dout = cotangent(s);
  const Results apart = run_all(s, dout, runtime(1, Instructions::best));
  const int64_t numbers = o.key_rank * o.score_heads, step = 2 * numbers;
  std::vector<float> both(static_cast<size_t>(2 * s.p.S * step));
  MixTensor& down = s.p.pre.part[kKeyDown];
  MixTensor& up = s.p.pre.part[kKeyUp];
  for (int64_t i = 0; i < s.p.S; ++i) {
    std::copy_n(down.floats() + i * down.row_stride, numbers, both.data() + i * step);
    std::copy_n(up.floats() + i * up.row_stride, numbers, both.data() + numbers + 2 * i * step);
  }
  down = {both.data(), 0, step}, up = {both.data() + numbers, 0, 2 * step};
  EXPECT_TRUE(same_bits(apart.out, run_all(s, dout, runtime(1, Instructions::best)).out));
}

TEST_F(Fused, NanInAVisibleKeyReachesTheRowsThatSeeIt) {
  for (const Instructions instructions : all_instructions()) {
    Sample s(cases()[3].options);
    const_cast<float*>(static_cast<const float*>(s.p.k.data))[40 * s.p.k.row_stride] = NAN;
    std::vector<float> lse;
    const std::vector<float> out = attended(s, lse, runtime(1, instructions));
    const int64_t row = s.p.output_heads * s.p.E;
    for (int64_t t = 40; t < s.p.T; ++t) EXPECT_TRUE(std::isnan(out[t * row])) << t;
    for (int64_t t = 0; t < 32; ++t) EXPECT_FALSE(std::isnan(out[t * row])) << t;
  }
}

TEST_F(Fused, UnknownInstructionsAreAStatus) {
  Sample s(Options{});
  std::vector<float> out(static_cast<size_t>(s.p.B * s.p.T * s.p.output_heads * s.p.E));
  for (const Instructions one :
       {Instructions::neon, Instructions::avx2, Instructions::avx512, Instructions::avx512_bf16, Instructions::amx}) {
    const auto all = available_instructions();
    const bool available = std::find(all.begin(), all.end(), one) != all.end();
    EXPECT_EQ(forward(s.p, {out.data(), nullptr}, runtime(1, one)), available ? Status::ok : Status::no_instructions);
    EXPECT_EQ(why_not(one).empty(), available) << name(one);
  }
}

}  // namespace
}  // namespace motet::cpu
