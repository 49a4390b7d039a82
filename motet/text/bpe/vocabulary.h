// Pieces and their ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "motet/text/bpe/piece_cache.h"

namespace motet {

// Open addressing over one string of all pieces: most look-ups touch two cache lines.
class Vocabulary {
 public:
  // Makes room, so that so many pieces need no growing.
  void reserve(size_t pieces);

  // False, and nothing changes, when the piece is there already. Throws Error when all pieces together reach 4 GiB.
  bool add(std::string_view piece, int32_t id);

  // -1 when there is none.
  int32_t find(std::string_view piece) const {
    if (slots_.empty()) return -1;
    const Slot& slot = slots_[place(piece, PieceCache::hash(piece))];
    return slot.id;
  }

  size_t size() const { return count_; }

 private:
  struct Slot {
    uint32_t hash = 0, begin = 0, size = 0;
    int32_t id = -1;  // no piece
  };

  // Of the piece, or of the empty slot where it belongs.
  size_t place(std::string_view piece, uint64_t hash) const {
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id < 0) return i;
      if (slot.hash == static_cast<uint32_t>(hash) && piece == std::string_view(pieces_).substr(slot.begin, slot.size))
        return i;
    }
  }

  std::vector<Slot> slots_;
  std::string pieces_;
  size_t mask_ = 0, count_ = 0;
};

}  // namespace motet
