// What short pieces were encoded to; natural text repeats them all the time.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace motet {

class PieceCache {
 public:
  static constexpr size_t kLongest = 48;

  static uint64_t hash(std::string_view piece) {
    uint64_t h = piece.size() * 0x9E3779B97F4A7C15u;
    const char* at = piece.data();
    size_t left = piece.size();
    for (; left >= 8; at += 8, left -= 8) h = mix(h, at, 8);
    if (left > 0) h = mix(h, at, left);
    return h ^ h >> 29;
  }

  // The ids, or null data when the piece is not known.
  std::span<const int32_t> find(std::string_view piece, uint64_t hash) const {
    if (slots_.empty()) return {};
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.size == 0) return {};
      if (slot.hash == static_cast<uint32_t>(hash) && slot.size == piece.size() &&
          std::memcmp(&keys_[slot.key], piece.data(), piece.size()) == 0) {
        return {&ids_[slot.ids], slot.count};
      }
    }
  }

  // The piece must not be there, be no longer than kLongest and have at least one id.
  void add(std::string_view piece, uint64_t hash, std::span<const int32_t> ids) {
    if (count_ * 2 >= slots_.size()) grow();
    put({static_cast<uint32_t>(hash), static_cast<uint32_t>(piece.size()), static_cast<uint32_t>(keys_.size()),
         static_cast<uint32_t>(ids_.size()), static_cast<uint32_t>(ids.size())},
        hash);
    keys_.append(piece);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    ++count_;
  }

 private:
  static constexpr size_t kSmallest = 256, kLargest = size_t{1} << 17;

  struct Slot {
    uint32_t hash, size = 0, key, ids, count;
  };

  static uint64_t mix(uint64_t h, const char* bytes, size_t count) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, count);
    const auto product = static_cast<unsigned __int128>(h ^ word) * 0xD6E8FEB86659FD93u;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  void put(const Slot& slot, uint64_t hash) {
    size_t i = hash & mask_;
    while (slots_[i].size != 0) i = (i + 1) & mask_;
    slots_[i] = slot;
  }

  // Twice the size; at the largest it starts anew.
  void grow() {
    const size_t size = slots_.empty() ? kSmallest : slots_.size() < kLargest ? slots_.size() * 2 : slots_.size();
    const bool anew = size == slots_.size();
    const std::vector<Slot> old = std::move(slots_);
    slots_.assign(size, Slot{});
    mask_ = size - 1;
    if (anew) {
      keys_.clear();
      ids_.clear();
      count_ = 0;
      return;
    }
    for (const Slot& slot : old) {
      if (slot.size != 0) put(slot, hash({&keys_[slot.key], slot.size}));
    }
  }

  std::vector<Slot> slots_;
  size_t mask_ = 0, count_ = 0;
  std::string keys_;
  std::vector<int32_t> ids_;
};

}  // namespace motet
