#pragma once
#include "motet/attention/cpu/problem.h"
#include "motet/core/caches.h"

// How one problem is cut into tasks, by its shape and the sizes of the caches. Nothing here depends on the number of
// threads, so that results do not either.
namespace motet::cpu {

// Shapes of tiles, alike for every instruction set.
inline constexpr int kRows = 8;           // queries of a sub-block
inline constexpr int kPanel = 32;         // keys (or columns of a width) of a panel
inline constexpr int kForwardKeys = 64;   // keys of a tile; in a prototype 32 was 2-6 % slower forward
inline constexpr int kBackwardKeys = 32;  // 64 would push the three row buffers of a sub-block out of L1

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }
/// Heads of a sub-block's tile in the row buffers of the backward pass, from one tile to the next: an odd number of
/// KiB, so that the tiles of one head do not share a few sets of L1.
inline int64_t odd_heads(int64_t heads) { return heads | 1; }
/// Columns of a width in packed panels: full panels, then one of 16 where it suffices.
inline int64_t padded_width(int64_t width) { return round_up(width, 16); }

enum class MixKind : uint8_t { none, pairs, factored, dense };
MixKind pre_kind(const Problem&);
MixKind post_kind(const Problem&);

/// Heads that the mixes connect: contiguous ranges of each stage.
struct Unit {
  int64_t score0, scores, softmax0, softmax, output0, outputs;
};

/// Units that read the same stored heads; one task takes them one after the other.
struct Cluster {
  std::vector<int> units;
  std::vector<int64_t> keys, values;  // stored heads, ascending
};

struct Plan {
  MixKind pre, post;
  std::vector<Unit> units;
  std::vector<Cluster> clusters;
  int64_t forward_rows, backward_rows;            // queries of a block, multiples of kRows
  int64_t forward_group = 1, backward_group = 1;  // with row buffers: sub-blocks of a group (group.h)

  bool mixed() const { return pre != MixKind::none || post != MixKind::none; }
};

/// Whether a forward pass decodes: few queries of many keys. It wants nothing of a plan but the kinds of the mixes.
bool decodes(const Problem&);

/// Whether mixed heads run in groups of sub-blocks: where L2 is slow beside the arithmetic or has less than 1 MiB.
bool takes_groups(const CacheSizes&);

/// Of caches only L2 counts: the last level is shared with whatever else runs. 0: taken for 1 MiB. `slow_l2` changes
/// only the groups, never the results.
Plan make_plan(const Problem&, const CacheSizes&);

}  // namespace motet::cpu
