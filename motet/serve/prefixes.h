#pragma once
#include <array>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motet/serve/model.h"

namespace motet {

/// Tokens of a prompt that is computed at once; cut from its beginning, so that the same beginning is the same pieces.
inline constexpr int64_t kPieceTokens = 64;

/// Sequences of prompts that have ended, for prompts that begin alike: whole pieces of them. The least recently used
/// goes first. Whether a sequence can stand for a shorter one is the model's to say: a window drops what that needs.
/// The pieces are a tree, so that the time of a call grows with the prompt and not with what is kept.
class Prefixes {
 public:
  explicit Prefixes(const ServedModel& model) : model_(model) {}
  /// Keeps `sequence`, whose first tokens are `prompt`, in place of shorter ones that it can stand for.
  void keep(const std::string& owner, std::span<const int32_t> prompt, std::unique_ptr<ServedSequence> sequence);
  struct Found {
    const ServedSequence* sequence = nullptr;  // until the next call of keep or drop
    int64_t tokens = 0;                        // whole pieces, fewer than the prompt has
  };
  /// The longest common beginning with what this owner has, of several the last kept; it counts as used.
  Found find(const std::string& owner, std::span<const int32_t> prompt);
  /// Drops the least recently used; false: there is none.
  bool drop();
  int64_t bytes() const { return bytes_; }

 private:
  using Piece = std::array<int32_t, kPieceTokens>;
  struct Node;
  using Longer = std::map<Piece, std::unique_ptr<Node>>;
  struct Kept {
    std::unique_ptr<ServedSequence> sequence;
    Node* end;  // of its prompt
    int64_t number, bytes;
  };
  using Entry = std::list<Kept>::iterator;
  /// A beginning of prompts; the first one is of no tokens and has no parent.
  struct Node {
    Node* parent = nullptr;
    Longer::iterator place = {};  // in the parent's
    int64_t tokens = 0;
    int64_t whole = 0;                    // the number of what was kept for just these tokens; 0: none
    std::map<int64_t, Entry> stand = {};  // by their numbers, all that can end here
    Longer longer = {};
  };
  void erase(Entry);

  const ServedModel& model_;
  std::map<std::string, Node> owners_;
  std::list<Kept> kept_;  // the least recently used first
  int64_t number_ = 0, bytes_ = 0;
};

}  // namespace motet
