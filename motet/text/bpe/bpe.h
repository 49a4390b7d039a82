// Byte-pair encoding: the model behind every tokenizer here.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "motet/text/bpe/piece_cache.h"
#include "motet/text/bpe/vocabulary.h"

namespace motet {

// Pairs of symbols and what they merge to. Open addressing; a pair is found in one or two cache lines.
class PairTable {
 public:
  struct Merge {
    uint32_t rank;  // the lowest merges first
    int32_t symbol;
  };

  void reserve(size_t count);
  // A pair that is there already gets the new merge.
  void set(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const {
    if (slots_.empty() || left < 0 || right < 0) return nullptr;
    const uint64_t key = key_of(left, right);
    for (size_t i = place(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].merge;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }
  size_t size() const { return count_; }

  struct Entry {
    int32_t left, right;
    Merge merge;
  };
  // All of them, the lowest rank first.
  std::vector<Entry> sorted() const;

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge{};
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t place(uint64_t key) const { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask_; }

  std::vector<Slot> slots_;
  size_t mask_ = 0, count_ = 0;
};

struct PieceHash {
  using is_transparent = void;
  size_t operator()(std::string_view piece) const { return static_cast<size_t>(PieceCache::hash(piece)); }
};

struct BpeModel {
  // What a piece is cut into before merging.
  enum class Start {
    bytes,            // bytes; the keys of `vocabulary` are bytes
    characters,       // characters in the vocabulary, else their bytes, else unknown (tokenizer.json)
    sentence_pieces,  // characters; what is no piece after merging becomes bytes, else unknown
  };

  Start start = Start::bytes;
  std::vector<std::string> pieces;  // id -> as the file writes it; an empty string: no such id
  // Piece -> id; with Start::sentence_pieces also characters that are only parts of pieces, as ids beyond all pieces.
  Vocabulary vocabulary;
  PairTable merges;
  std::array<int32_t, 256> byte_ids;  // Start::bytes: of each byte; else of <0x00> .. <0xFF>; -1: none
  int32_t unknown = -1;
  bool byte_fallback = false, fuse_unknown = false, ignore_merges = false;

  BpeModel() { byte_ids.fill(-1); }
  int32_t id_of(std::string_view piece) const { return vocabulary.find(piece); }
  // The bytes that one id stands for, at most; SIZE_MAX where an unknown one may stand for any number of them.
  size_t longest_token() const;
  // The bytes of a piece that ids stand for; a byte-level model leaves out what has none.
  size_t known_bytes(std::string_view piece) const;
};

// One symbol of a piece: its id and bytes.
struct BpeToken {
  int32_t id;
  uint32_t size;
};

// Encodes pieces, one after the other; remembers short ones. Not thread-safe; the model must outlive it.
class BpeEncoder {
 public:
  explicit BpeEncoder(const BpeModel& model) : model_(model) {}

  // Appends the ids of a piece.
  void encode(std::string_view piece, std::vector<int32_t>& ids);

  // The ids with the bytes that each stands for; valid until the next call.
  const std::vector<BpeToken>& tokens(std::string_view piece);

 private:
  void begin(std::string_view piece);
  void begin_characters(std::string_view piece);
  void add_unknown(uint32_t size, bool& unknown_before);
  void merge_few();
  void merge_many();
  void fall_back(std::string_view piece);

  const BpeModel& model_;
  PieceCache cache_;
  std::vector<BpeToken> symbols_, other_;
  std::vector<PairTable::Merge> ranks_;
  struct Node {
    int32_t previous, next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t at, symbol;
    bool operator<(const Candidate& other) const {  // the first of a heap is the lowest rank, leftmost
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};

}  // namespace motet
