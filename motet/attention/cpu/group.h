#pragma once
#include <algorithm>
#include <cstdint>

// The order in which the sub-blocks of a block take the heads of a tile.
namespace motet::cpu {

/// Sub-blocks [first, end) of a block's `count`, `size` of them or what is left. They take a head one after the other,
/// so that its keys (or values) come from L2 once for all of them; what they make of all heads lies in L2 meanwhile.
struct Group {
  int64_t first, end, size, count;

  /// The sub-block and the head of the product after that of sub-block s with head h.
  int64_t next(int64_t s) const { return s + 1 < end ? s + 1 : first; }
  int64_t next_head(int64_t s, int64_t h) const { return s + 1 < end ? h : h + 1; }
};

/// Calls work(group) for all groups of a block, in order.
template <class Work>
void each_group(int64_t count, int64_t size, Work work) {
  for (int64_t first = 0; first < count; first += size) work(Group{first, std::min(first + size, count), size, count});
}

/// What sub-block s of `count` fetches of a piece that all of them read next.
inline const float* share(const float* piece, int64_t floats, int64_t s, int64_t count) {
  return piece + floats * s / count;
}

/// A head of a tile, and what comes after it.
struct HeadOfTile {
  int64_t head, heads, tile, next_tile;
};

/// What sub-block s fetches of the keys (or values) that come next; at(tile, head) is a piece of so many floats. A
/// group reads those of a head once, and the next head's come meanwhile. A sub-block alone takes all heads before the
/// next one takes them again, and those of the next tile come meanwhile.
template <class Piece>
const float* keys_ahead(const Group& group, int64_t s, const HeadOfTile& x, int64_t floats, Piece at) {
  if (group.size == 1) return share(at(x.next_tile, x.head), floats, s, group.count);
  const bool last = x.head + 1 == x.heads;
  const int64_t tile = last && group.end == group.count ? x.next_tile : x.tile;
  return share(at(tile, last ? 0 : x.head + 1), floats, s - group.first, group.end - group.first);
}

}  // namespace motet::cpu
