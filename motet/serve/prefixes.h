#pragma once
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "motet/serve/model.h"

namespace motet {

/// Tokens of a prompt that is computed at once; cut from its beginning, so that the same beginning is the same pieces.
inline constexpr int64_t kPieceTokens = 64;

/// Sequences of prompts that have ended, for prompts that begin alike: whole pieces of them. The least recently used
/// goes first. Whether a sequence can stand for a shorter one is the model's to say: a window drops what that needs.
class Prefixes {
 public:
  explicit Prefixes(const ServedModel& model) : model_(model) {}
  /// Keeps `sequence`, whose first tokens are `prompt`, in place of shorter ones that it can stand for.
  void keep(const std::string& owner, std::vector<int32_t> prompt, std::unique_ptr<ServedSequence> sequence);
  struct Found {
    const ServedSequence* sequence = nullptr;  // until the next call of keep or drop
    int64_t tokens = 0;                        // whole pieces, fewer than the prompt has
  };
  /// The longest common beginning with what this owner has; it counts as used.
  Found find(const std::string& owner, std::span<const int32_t> prompt);
  /// Drops the least recently used; false: there is none.
  bool drop();
  int64_t bytes() const { return bytes_; }

 private:
  struct Kept {
    std::string owner;
    std::vector<int32_t> prompt;  // whole pieces
    std::unique_ptr<ServedSequence> sequence;
    int64_t bytes;
  };
  void erase(std::list<Kept>::iterator);

  const ServedModel& model_;
  std::list<Kept> kept_;  // the least recently used first
  int64_t bytes_ = 0;
};

}  // namespace motet
