#include "motet/serve/prefixes.h"

#include <algorithm>
#include <utility>

namespace motet {
namespace {

template <class Piece>
Piece piece_at(std::span<const int32_t> prompt, int64_t at) {
  Piece piece;
  std::copy_n(prompt.begin() + at, piece.size(), piece.begin());
  return piece;
}

}  // namespace

void Prefixes::erase(Entry one) {
  Node* at = one->end;
  if (at->whole == one->number) at->whole = 0;
  for (Node* node = at; node; node = node->parent) node->stand.erase(one->number);
  bytes_ -= one->bytes;
  kept_.erase(one);
  while (at->parent && at->stand.empty() && at->longer.empty()) {
    Node* const parent = at->parent;
    parent->longer.erase(at->place);
    at = parent;
  }
}

void Prefixes::keep(const std::string& owner, std::span<const int32_t> prompt,
                    std::unique_ptr<ServedSequence> sequence) {
  const auto tokens = static_cast<int64_t>(prompt.size()) / kPieceTokens * kPieceTokens;
  if (tokens == 0 || !model_.can_end_at(*sequence, tokens)) return;
  Node* end = &owners_[owner];
  for (int64_t at = 0; at < tokens; at += kPieceTokens) {
    const auto [place, is_new] = end->longer.try_emplace(piece_at<Piece>(prompt, at));
    if (is_new) place->second.reset(new Node{.parent = end, .place = place, .tokens = at + kPieceTokens});
    end = place->second.get();
  }
  for (auto other = end->stand.rbegin(); other != end->stand.rend(); ++other)
    if (other->second->end != end) return kept_.splice(kept_.end(), kept_, other->second);
  const int64_t bytes = sequence->bytes() + tokens * static_cast<int64_t>(sizeof(int32_t));
  kept_.push_back({std::move(sequence), end, ++number_, bytes});
  bytes_ += bytes;
  const Entry kept = std::prev(kept_.end());
  std::vector<Entry> replaced;
  for (Node* at = end; at->parent; at = at->parent) {
    if (!model_.can_end_at(*kept->sequence, at->tokens)) continue;
    if (at->whole) replaced.push_back(at->stand.at(at->whole));
    at->stand.emplace(number_, kept);
  }
  end->whole = number_;
  for (const Entry one : replaced) erase(one);
}

Prefixes::Found Prefixes::find(const std::string& owner, std::span<const int32_t> prompt) {
  const auto most = (static_cast<int64_t>(prompt.size()) - 1) / kPieceTokens * kPieceTokens;  // the last makes logits
  const auto owned = owners_.find(owner);
  if (owned == owners_.end()) return {};
  Node* at = &owned->second;
  while (at->tokens < most) {
    const auto next = at->longer.find(piece_at<Piece>(prompt, at->tokens));
    if (next == at->longer.end()) break;
    at = next->second.get();
  }
  for (; at->parent; at = at->parent) {
    if (at->stand.empty()) continue;
    const Entry found = at->stand.rbegin()->second;
    kept_.splice(kept_.end(), kept_, found);
    return {found->sequence.get(), at->tokens};
  }
  return {};
}

bool Prefixes::drop() {
  if (kept_.empty()) return false;
  erase(kept_.begin());
  return true;
}

}  // namespace motet
