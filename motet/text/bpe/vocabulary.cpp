#include "motet/text/bpe/vocabulary.h"

#include "motet/core/error.h"

namespace motet {

void Vocabulary::reserve(size_t pieces) {
  size_t size = 16;
  while (size < pieces * 2) size *= 2;
  if (size <= slots_.size()) return;
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(size, Slot{});
  mask_ = size - 1;
  for (const Slot& slot : old) {
    if (slot.id < 0) continue;
    const std::string_view piece = std::string_view(pieces_).substr(slot.begin, slot.size);
    slots_[place(piece, PieceCache::hash(piece))] = slot;
  }
}

bool Vocabulary::add(std::string_view piece, int32_t id) {
  reserve(count_ + 1);
  const uint64_t hash = PieceCache::hash(piece);
  Slot& slot = slots_[place(piece, hash)];
  if (slot.id >= 0) return false;
  if (pieces_.size() + piece.size() > UINT32_MAX) fail("a vocabulary of more than 4 GiB");
  slot = {static_cast<uint32_t>(hash), static_cast<uint32_t>(pieces_.size()), static_cast<uint32_t>(piece.size()), id};
  pieces_ += piece;
  ++count_;
  return true;
}

}  // namespace motet
