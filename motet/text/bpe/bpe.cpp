#include "motet/text/bpe/bpe.h"

#include <algorithm>
#include <tuple>

#include "motet/core/error.h"
#include "motet/text/pipeline/unicode.h"

namespace motet {
namespace {

constexpr size_t kLongestPiece = 1 << 28;  // merging takes some 30 bytes of memory for each
constexpr size_t kFew = 48;                // symbols that are merged by looking at all of them each time

}  // namespace

void PairTable::reserve(size_t count) {
  size_t size = 16;
  while (size < count * 2) size *= 2;
  if (size <= slots_.size()) return;
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(size, Slot{});
  mask_ = size - 1;
  for (const Slot& slot : old) {
    if (slot.key == kEmpty) continue;
    size_t i = place(slot.key);
    while (slots_[i].key != kEmpty) i = (i + 1) & mask_;
    slots_[i] = slot;
  }
}

void PairTable::set(int32_t left, int32_t right, Merge merge) {
  reserve(count_ + 1);
  const uint64_t key = key_of(left, right);
  size_t i = place(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  count_ += slots_[i].key == kEmpty;
  slots_[i] = {key, merge};
}

std::vector<PairTable::Entry> PairTable::sorted() const {
  std::vector<Entry> out;
  out.reserve(count_);
  for (const Slot& slot : slots_) {
    if (slot.key == kEmpty) continue;
    out.push_back({static_cast<int32_t>(slot.key >> 32), static_cast<int32_t>(slot.key & UINT32_MAX), slot.merge});
  }
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.merge.rank, a.left, a.right) < std::tie(b.merge.rank, b.left, b.right);
  });
  return out;
}

size_t BpeModel::longest_token() const {
  const bool all_bytes = std::ranges::count(byte_ids, -1) == 0;
  const bool fuses = !all_bytes && unknown >= 0 && fuse_unknown;
  if (start == Start::bytes ? fuses : !(byte_fallback && all_bytes)) return SIZE_MAX;
  size_t longest = 1;
  for (const std::string& piece : pieces) longest = std::max(longest, piece.size());
  return longest;
}

size_t BpeModel::known_bytes(std::string_view piece) const {
  if (start != Start::bytes || unknown >= 0) return piece.size();
  return static_cast<size_t>(
      std::ranges::count_if(piece, [&](char byte) { return byte_ids[static_cast<unsigned char>(byte)] >= 0; }));
}

void BpeEncoder::begin(std::string_view piece) {
  symbols_.clear();
  if (model_.start != BpeModel::Start::bytes) return begin_characters(piece);
  bool unknown_before = false;
  for (const char byte : piece) {
    const int32_t id = model_.byte_ids[static_cast<unsigned char>(byte)];
    if (id >= 0) {
      symbols_.push_back({id, 1});
      unknown_before = false;
    } else if (model_.unknown >= 0) {
      add_unknown(1, unknown_before);
    }
  }
}

void BpeEncoder::add_unknown(uint32_t size, bool& unknown_before) {
  if (unknown_before && model_.fuse_unknown) {
    symbols_.back().size += size;
  } else {
    symbols_.push_back({model_.unknown, size});
  }
  unknown_before = true;
}

void BpeEncoder::begin_characters(std::string_view piece) {
  const bool late = model_.start == BpeModel::Start::sentence_pieces;
  bool unknown_before = false;
  for (size_t at = 0; at < piece.size();) {
    const std::string_view character = piece.substr(at, code_point(piece, at).size);
    at += character.size();
    const auto size = static_cast<uint32_t>(character.size());
    const int32_t id = model_.id_of(character);
    if (id >= 0 || late) {
      symbols_.push_back({id, size});
      unknown_before = false;
      continue;
    }
    const auto byte_id = [&](char byte) { return model_.byte_ids[static_cast<unsigned char>(byte)]; };
    if (model_.byte_fallback &&
        std::all_of(character.begin(), character.end(), [&](char b) { return byte_id(b) >= 0; })) {
      for (const char byte : character) symbols_.push_back({byte_id(byte), 1});
      unknown_before = false;
    } else if (model_.unknown >= 0) {
      add_unknown(size, unknown_before);
    }
  }
}

void BpeEncoder::merge_few() {
  constexpr PairTable::Merge kNone{UINT32_MAX, -1};
  const auto rank_at = [&](size_t i) {
    const auto* merge = model_.merges.find(symbols_[i].id, symbols_[i + 1].id);
    return merge ? *merge : kNone;
  };
  ranks_.clear();
  for (size_t i = 0; i + 1 < symbols_.size(); ++i) ranks_.push_back(rank_at(i));
  while (!ranks_.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < ranks_.size(); ++i) {
      if (ranks_[i].rank < ranks_[best].rank) best = i;
    }
    if (ranks_[best].rank == UINT32_MAX) return;
    symbols_[best] = {ranks_[best].symbol, symbols_[best].size + symbols_[best + 1].size};
    symbols_.erase(symbols_.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    ranks_.erase(ranks_.begin() + static_cast<std::ptrdiff_t>(best));
    if (best > 0) ranks_[best - 1] = rank_at(best - 1);
    if (best < ranks_.size()) ranks_[best] = rank_at(best);
  }
}

void BpeEncoder::merge_many() {
  const auto count = static_cast<int32_t>(symbols_.size());
  nodes_.resize(symbols_.size());
  heap_.clear();
  const auto consider = [&](int32_t at) {
    const int32_t next = nodes_[static_cast<size_t>(at)].next;
    if (next < 0) return;
    const auto* merge =
        model_.merges.find(symbols_[static_cast<size_t>(at)].id, symbols_[static_cast<size_t>(next)].id);
    if (!merge) return;
    heap_.push_back({merge->rank, at, merge->symbol});
    std::push_heap(heap_.begin(), heap_.end());
  };
  for (int32_t i = 0; i < count; ++i) nodes_[static_cast<size_t>(i)] = {i - 1, i + 1 < count ? i + 1 : -1};
  for (int32_t i = 0; i < count; ++i) consider(i);
  while (!heap_.empty()) {
    const Candidate top = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    const auto at = static_cast<size_t>(top.at);
    if (symbols_[at].size == 0 || nodes_[at].next < 0) continue;
    const auto next = static_cast<size_t>(nodes_[at].next);
    const auto* merge = model_.merges.find(symbols_[at].id, symbols_[next].id);
    if (!merge || merge->symbol != top.symbol || merge->rank != top.rank) continue;  // one of the two has changed
    symbols_[at] = {top.symbol, symbols_[at].size + symbols_[next].size};
    symbols_[next].size = 0;
    nodes_[at].next = nodes_[next].next;
    if (nodes_[at].next >= 0) nodes_[static_cast<size_t>(nodes_[at].next)].previous = top.at;
    consider(top.at);
    if (nodes_[at].previous >= 0) consider(nodes_[at].previous);
  }
  std::erase_if(symbols_, [](const BpeToken& symbol) { return symbol.size == 0; });
}

void BpeEncoder::fall_back(std::string_view piece) {
  const auto known = static_cast<int32_t>(model_.pieces.size());
  const auto is_piece = [&](const BpeToken& symbol) { return symbol.id >= 0 && symbol.id < known; };
  if (std::all_of(symbols_.begin(), symbols_.end(), is_piece)) return;
  other_.clear();
  size_t at = 0;
  bool unknown_before = false;
  for (const BpeToken& symbol : symbols_) {
    const std::string_view bytes = piece.substr(at, symbol.size);
    at += symbol.size;
    if (is_piece(symbol)) {
      other_.push_back(symbol);
      unknown_before = false;
    } else if (model_.byte_fallback) {
      for (const char byte : bytes) other_.push_back({model_.byte_ids[static_cast<unsigned char>(byte)], 1});
      unknown_before = false;
    } else if (unknown_before) {
      other_.back().size += symbol.size;
    } else {
      other_.push_back({model_.unknown, symbol.size});
      unknown_before = true;
    }
  }
  symbols_.swap(other_);
}

const std::vector<BpeToken>& BpeEncoder::tokens(std::string_view piece) {
  if (piece.size() > kLongestPiece)
    fail("encode: ", piece.size(), " bytes without a place to cut, want at most ", kLongestPiece);
  if (model_.ignore_merges) {
    const int32_t id = model_.id_of(piece);
    if (id >= 0) {
      symbols_.assign(1, {id, static_cast<uint32_t>(piece.size())});
      return symbols_;
    }
  }
  begin(piece);
  symbols_.size() <= kFew ? merge_few() : merge_many();
  if (model_.start == BpeModel::Start::sentence_pieces) fall_back(piece);
  return symbols_;
}

void BpeEncoder::encode(std::string_view piece, std::vector<int32_t>& ids) {
  const bool short_piece = piece.size() <= PieceCache::kLongest;
  const uint64_t hash = short_piece ? PieceCache::hash(piece) : 0;
  if (short_piece) {
    const auto found = cache_.find(piece, hash);
    if (found.data()) {
      ids.insert(ids.end(), found.begin(), found.end());
      return;
    }
  }
  const size_t before = ids.size();
  for (const BpeToken& token : tokens(piece)) ids.push_back(token.id);
  if (short_piece && ids.size() > before) cache_.add(piece, hash, std::span(ids).subspan(before));
}

}  // namespace motet
