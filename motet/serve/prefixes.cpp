#include "motet/serve/prefixes.h"

#include <algorithm>

namespace motet {
namespace {

int64_t common(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

}  // namespace

void Prefixes::erase(std::list<Kept>::iterator one) {
  bytes_ -= one->bytes;
  kept_.erase(one);
}

void Prefixes::keep(const std::string& owner, std::vector<int32_t> prompt, std::unique_ptr<ServedSequence> sequence) {
  const auto tokens = static_cast<int64_t>(prompt.size()) / kPieceTokens * kPieceTokens;
  if (tokens == 0) return;
  prompt.resize(static_cast<size_t>(tokens));
  for (auto one = kept_.begin(); one != kept_.end();) {
    const auto next = std::next(one);
    const auto theirs = static_cast<int64_t>(one->prompt.size());
    const int64_t shared = one->owner == owner ? common(one->prompt, prompt) : 0;
    if (shared == theirs && model_.can_end_at(*sequence, theirs))
      erase(one);
    else if (shared == tokens && model_.can_end_at(*one->sequence, tokens))
      return kept_.splice(kept_.end(), kept_, one);
    one = next;
  }
  const int64_t bytes = sequence->bytes() + tokens * static_cast<int64_t>(sizeof(int32_t));
  kept_.push_back({owner, std::move(prompt), std::move(sequence), bytes});
  bytes_ += bytes;
}

Prefixes::Found Prefixes::find(const std::string& owner, std::span<const int32_t> prompt) {
  auto best = kept_.end();
  int64_t tokens = 0;
  const int64_t most =
      (static_cast<int64_t>(prompt.size()) - 1) / kPieceTokens * kPieceTokens;  // the last makes logits
  for (auto one = kept_.begin(); one != kept_.end(); ++one) {
    if (one->owner != owner) continue;
    const int64_t shared = std::min(common(one->prompt, prompt) / kPieceTokens * kPieceTokens, most);
    if (shared > tokens && model_.can_end_at(*one->sequence, shared)) best = one, tokens = shared;
  }
  if (best == kept_.end()) return {};
  kept_.splice(kept_.end(), kept_, best);
  return {best->sequence.get(), tokens};
}

bool Prefixes::drop() {
  if (kept_.empty()) return false;
  erase(kept_.begin());
  return true;
}

}  // namespace motet
