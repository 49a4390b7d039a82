// How a problem is cut, by hand: which loops run it, and how many queries a block's row buffers allow.
#include "motet/attention/cpu/plan.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "motet/attention/cpu/group.h"
#include "motet/attention/cpu/workspace.h"

namespace motet::cpu {
namespace {

constexpr float kSome = 0;  // what a part points to; a plan reads no numbers
constexpr CacheSizes kZen{32 << 10, 1 << 20, 32 << 20}, kIntel{48 << 10, 2 << 20, 480 << 20},
    kSmall{32 << 10, 512 << 10, 32 << 20};

Problem problem(int64_t T, int64_t S, int64_t heads = 4) {
  Problem p;
  p.B = 1, p.T = T, p.S = S, p.D = p.E = 8;
  p.score_heads = p.softmax_heads = p.output_heads = p.key_heads = p.value_heads = heads;
  for (int64_t h = 0; h < heads; ++h) p.key_of.push_back(h), p.value_of.push_back(h);
  return p;
}

HeadMix parts(std::vector<int> which, int64_t rank = 2) {
  HeadMix mix;
  for (const int part : which) {
    mix.part[static_cast<size_t>(part)] = {&kSome, 0};
    if (part == kQueryDown) mix.query_rank = rank;
    if (part == kKeyDown) mix.key_rank = rank;
  }
  return mix;
}

MixKind kind_of(HeadMix mix) {
  Problem p = problem(32, 32);
  p.pre = mix, p.post = std::move(mix);
  EXPECT_EQ(pre_kind(p), post_kind(p));
  return pre_kind(p);
}

TEST(Plan, GatesAndLowRanksAreFactoredAndAllElseIsDense) {
  EXPECT_EQ(kind_of({}), MixKind::none);
  EXPECT_EQ(kind_of(parts({kQueryGate})), MixKind::factored);
  EXPECT_EQ(kind_of(parts({kKeyGate})), MixKind::factored);
  for (const auto& low : {std::vector{kQueryDown, kQueryUp}, {kKeyDown, kKeyUp}}) {
    for (const int64_t rank : {1, 2}) EXPECT_EQ(kind_of(parts(low, rank)), MixKind::factored) << rank;
    for (const int64_t rank : {3, 4, 8}) EXPECT_EQ(kind_of(parts(low, rank)), MixKind::dense) << rank;
  }
  for (const int part : {kWeight, kQueryFull, kKeyFull}) EXPECT_EQ(kind_of(parts({part})), MixKind::dense) << part;
  Problem p = problem(32, 32);
  p.pre = p.post = parts({kQueryDown, kQueryUp});
  p.softmax_heads = 6;  // a map between other numbers of heads
  EXPECT_EQ(pre_kind(p), MixKind::dense);
  EXPECT_EQ(post_kind(p), MixKind::dense);
}

TEST(Plan, FewQueriesOfManyKeysAreDecoded) {
  const auto decoded = [](int64_t T, int64_t S) { return decodes(problem(T, S)); };
  EXPECT_TRUE(decoded(1, 3));
  EXPECT_FALSE(decoded(1, 2));
  EXPECT_TRUE(decoded(16, 33));
  EXPECT_FALSE(decoded(16, 32));
  EXPECT_FALSE(decoded(17, 1000));
}

// A row of one query takes a tile of S numbers for each head, three of them on the way back; 192 MiB are allowed.
TEST(Plan, RowBuffersFillTheirBudgetAndNoMore) {
  const auto rows = [](int64_t S, int64_t window, int64_t softmax_heads = 32) {
    Problem p = problem(4096, S, 32);
    p.softmax_heads = softmax_heads;
    p.pre = parts({kWeight}), p.post = parts({kWeight});
    p.causal = window > 0, p.window = window;
    const Plan plan = make_plan(p, kZen);
    return std::pair(plan.forward_rows, plan.backward_rows);
  };
  using Rows = std::pair<int64_t, int64_t>;
  EXPECT_EQ(rows(8192, 0), Rows(64, 56));         // 32 heads x 8192 x 4 bytes are 1 MiB, 3 x 33 heads on the way back
  EXPECT_EQ(rows(24'576, 0), Rows(64, 16));       // 3 and 9 MiB: 64 and 21 rows
  EXPECT_EQ(rows(65'536, 0), Rows(24, 8));        // 8 and 24 MiB: 24 and 8 rows
  EXPECT_EQ(rows(65'536, 0, 64), Rows(8, 8));     // the widest stage counts; never fewer than a sub-block
  EXPECT_EQ(rows(65'536, 24'512), Rows(64, 16));  // with a block of 64 queries a window sees 24,576 keys
  EXPECT_EQ(rows(65'536, 7'879), Rows(64, 64));
  EXPECT_EQ(rows(1 << 20, 7'880), Rows(64, 56));  // one key more than fits 64 rows
  EXPECT_EQ(make_plan(problem(20, 20), kZen).forward_rows, 24);
  EXPECT_EQ(make_plan(problem(4096, 1 << 20), kZen).forward_rows, 128);
}

// Of 16 mixed heads of 64, causal, each block of R queries: forward a key brings 8 KiB / R and a query and key 192
// bytes where 64 R S / 2 bytes of row buffers pass three quarters of L2; backward 28 KiB / R and 640 bytes, three
// buffers.
TEST(Plan, RowsAreThoseThatBringTheLeastFromBeyondL2) {
  using Rows = std::pair<int64_t, int64_t>;
  const auto rows = [](int64_t T, const CacheSizes& caches, int64_t heads = 16, int64_t B = 1) {
    Problem p = problem(T, T, heads);
    p.B = B, p.D = p.E = 64, p.causal = true, p.pre = p.post = parts({kQueryGate});
    const Plan plan = make_plan(p, caches);
    return Rows(plan.forward_rows, plan.backward_rows);
  };
  EXPECT_EQ(rows(512, kZen), Rows(48, 64));   // 48 rows fit: 171 bytes beside 128 + 192 of 64; 16 backward: 1792
  EXPECT_EQ(rows(1024, kZen), Rows(64, 64));  // 24 fit: 341 beside 320
  EXPECT_EQ(rows(2048, kZen), Rows(64, 64));
  EXPECT_EQ(rows(4096, kZen), Rows(64, 64));
  EXPECT_EQ(rows(512, kIntel), Rows(64, 32));   // all fit; 32 backward: 896 beside 448 + 640
  EXPECT_EQ(rows(1024, kIntel), Rows(48, 64));  // twice what fits Zen's
  EXPECT_EQ(rows(2048, kIntel), Rows(64, 64));
  EXPECT_EQ(rows(4096, kIntel), Rows(128, 128));         // K and V once for 128 queries
  EXPECT_EQ(rows(2048, kIntel, 16, 2), Rows(128, 128));  // enough blocks, of two sequences
  EXPECT_EQ(rows(4096, kZen, 4), Rows(64, 64));          // although the queries of 128 would fit
  EXPECT_EQ(rows(4096, kZen, 32), Rows(32, 32));         // 64 queries of 32 heads take all of it
  EXPECT_EQ(rows(4096, {}), rows(4096, kZen));           // not told
  // Half of a small L2 holds a tile of 8 heads. Where heads are more, nothing is counted, for nothing stays: as many
  // rows as leave enough blocks.
  EXPECT_EQ(rows(4096, kSmall, 8), Rows(64, 64));
  EXPECT_EQ(rows(512, kSmall, 8), Rows(48, 64));  // as 16 heads on 1 MiB
  EXPECT_EQ(rows(512, kSmall), Rows(64, 64));
  EXPECT_EQ(rows(2048, kSmall), Rows(64, 64));
  EXPECT_EQ(rows(2048, kSmall, 16, 2), Rows(128, 64));
  EXPECT_EQ(rows(4096, kSmall), Rows(128, 64));
}

// As many as eight blocks, of at least 16 queries each, forward alone: keys are read once more for each of them.
TEST(Plan, FewMixedQueriesAreSharedAmongThreads) {
  using Rows = std::pair<int64_t, int64_t>;
  const auto rows = [](int64_t T, int64_t B = 1, const CacheSizes& caches = kZen, bool mixed = true) {
    Problem p = problem(T, 2 * T, 9);
    p.B = B, p.D = p.E = 64, p.causal = true;
    if (mixed) p.pre = p.post = parts({kQueryGate});
    const Plan plan = make_plan(p, caches);
    return Rows(plan.forward_rows, plan.backward_rows);
  };
  EXPECT_EQ(rows(17), Rows(16, 24));
  EXPECT_EQ(rows(64), Rows(16, 64));
  EXPECT_EQ(rows(64, 2), Rows(16, 64));
  EXPECT_EQ(rows(64, 3), Rows(24, 64));  // three blocks of each of three sequences
  EXPECT_EQ(rows(64, 8), Rows(64, 64));
  EXPECT_EQ(rows(200), Rows(24, 64));  // 32 would be seven
  EXPECT_EQ(rows(64, 1, kSmall), Rows(16, 64));
  EXPECT_EQ(rows(64, 1, kZen, false), Rows(64, 64));  // heads are shared
}

TEST(Plan, SubBlocksAreGroupedWhereL2IsSlowOrSmallAndHeadsAreMixed) {
  using Sizes = std::pair<int64_t, int64_t>;
  Problem p = problem(4096, 4096);
  const auto groups = [&](bool slow, int64_t l2 = 1 << 20) {
    const Plan plan = make_plan(p, {32 << 10, l2, 32 << 20, slow});
    return Sizes(plan.forward_group, plan.backward_group);
  };
  EXPECT_EQ(groups(true), Sizes(1, 1));
  p.pre = parts({kQueryGate});
  EXPECT_EQ(groups(false), Sizes(1, 1));
  EXPECT_EQ(groups(true), Sizes(8, 4));
  p = problem(4096, 4096, 16), p.pre = parts({kQueryGate});
  EXPECT_EQ(groups(true), Sizes(8, 4));  // 8 tiles of 32 KiB: a quarter of L2
  EXPECT_EQ(groups(false), Sizes(1, 1));
  EXPECT_EQ(groups(false, (1 << 20) - 1), Sizes(8, 4));  // small: half of it
  EXPECT_EQ(groups(false, 512 << 10), Sizes(8, 4));
  EXPECT_EQ(groups(true, 512 << 10), Sizes(8, 4));
  EXPECT_EQ(groups(false, 256 << 10), Sizes(4, 2));  // which must hold them
  EXPECT_EQ(groups(true, 64 << 10), Sizes(1, 1));
  EXPECT_EQ(groups(false, 0), Sizes(1, 1));  // not told
  p.post = parts({kWeight});                 // whose output lies beside its input
  EXPECT_EQ(groups(true), Sizes(4, 4));
  p = problem(12, 4096, 16), p.pre = parts({kQueryGate});
  p.S = 20;
  EXPECT_EQ(groups(true), Sizes(2, 2));  // of a block of 16 queries
}

// What is fetched of the keys that come next, in pieces of 64 numbers: of the next tile as long as sub-blocks are
// alone, of the next head where they are grouped, and after the last head of the group that reads this tile next.
TEST(Plan, KeysOfTheNextHeadOrTileComeMeanwhile) {
  static float memory[10000];
  const auto keys = [&](int64_t tile, int64_t head) { return memory + tile * 1000 + head * 100; };
  const auto ahead = [&](const Group& group, int64_t s, int64_t head) {
    return keys_ahead(group, s, {head, 3, 5, 6}, 64, keys) - memory;
  };
  EXPECT_EQ(ahead({2, 3, 1, 8}, 2, 1), 6000 + 100 + 64 / 8 * 2);
  EXPECT_EQ(ahead({4, 8, 4, 12}, 5, 1), 5000 + 200 + 64 / 4);
  EXPECT_EQ(ahead({4, 8, 4, 12}, 4, 2), 5000);
  EXPECT_EQ(ahead({8, 12, 4, 12}, 11, 2), 6000 + 64 / 4 * 3);
  EXPECT_EQ(ahead({8, 10, 4, 10}, 9, 0), 5000 + 100 + 64 / 2);  // two that are left
  const Group group{4, 8, 4, 12};
  EXPECT_EQ(group.next(5), 6);
  EXPECT_EQ(group.next_head(5, 2), 2);
  EXPECT_EQ(group.next(7), 4);
  EXPECT_EQ(group.next_head(7, 2), 3);
  std::vector<std::array<int64_t, 3>> visited;
  each_group(10, 4, [&](const Group& g) { visited.push_back({g.first, g.end, g.count}); });
  EXPECT_EQ(visited, (std::vector<std::array<int64_t, 3>>{{0, 4, 10}, {4, 8, 10}, {8, 10, 10}}));
}

// Under a window fewer keys are seen, and more rows fit.
TEST(Plan, AWindowLeavesRoomForMoreRows) {
  Problem p = problem(4096, 4096, 16);
  p.D = p.E = 64, p.causal = true, p.pre = p.post = parts({kQueryGate});
  for (const auto& [window, rows] : {std::pair<int64_t, int64_t>{384, 32}, {256, 48}, {192, 64}}) {
    p.window = window;
    EXPECT_EQ(make_plan(p, kZen).forward_rows, rows) << window;
  }
}

TEST(Workspaces, ALargeRegionIsNotWastedOnASmallPieceAndTheClosestIsTaken) {
  constexpr int64_t kMega = 1 << 18;  // numbers of a MiB
  const auto region = [](int64_t megas) {
    Workspace w;
    const size_t piece = w.reserve(megas * kMega);
    EXPECT_TRUE(w.allocate());
    return w.get(piece);
  };
  release_workspaces();
  float *large, *middle, *small;
  {
    Workspace a, b, c;
    const size_t pa = a.reserve(63 * kMega), pb = b.reserve(31 * kMega), pc = c.reserve(13 * kMega);
    ASSERT_TRUE(a.allocate() && b.allocate() && c.allocate());
    large = a.get(pa), middle = b.get(pb), small = c.get(pc);
  }
  EXPECT_EQ(region(12), small);
  EXPECT_EQ(region(20), middle);
  EXPECT_EQ(region(40), large);
  const float* tiny = region(2);
  for (const float* old : {small, middle, large}) EXPECT_NE(tiny, old);
  release_workspaces();
}

TEST(Workspaces, NoMoreIsKeptThanTheLimitAndTheOldestGoesFirst) {
  const auto given_back = [](int64_t bytes) {  // never written to: addresses, not memory
    Workspace w;
    const size_t piece = w.reserve(bytes / static_cast<int64_t>(sizeof(float)));
    EXPECT_TRUE(w.allocate());
    return w.get(piece);
  };
  const auto mapped = [](float* at) { return ::msync(at, 4096, MS_ASYNC) == 0; };
  constexpr int64_t kMost = static_cast<int64_t>(kRetainedBytes);
  release_workspaces();
  float *first, *second;
  {
    Workspace w;
    const size_t piece = w.reserve(kMost / 2 / static_cast<int64_t>(sizeof(float)));
    ASSERT_TRUE(w.allocate());
    second = given_back(kMost * 3 / 8), first = w.get(piece);
  }
  EXPECT_TRUE(mapped(first) && mapped(second));
  given_back(kMost * 3 / 4);
  EXPECT_FALSE(mapped(second));
  EXPECT_FALSE(mapped(first));
  release_workspaces();
}

}  // namespace
}  // namespace motet::cpu
