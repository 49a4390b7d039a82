#include "motet/data/tokens.h"

#include <algorithm>
#include <utility>

namespace motet {

std::vector<int64_t> TokenSequence::slice(uint64_t begin, uint64_t count) const {
  std::vector<int64_t> out(count);
  read(begin, out);
  return out;
}

MemoryTokens::MemoryTokens(std::vector<int32_t> tokens, std::vector<uint64_t> starts)
    : tokens_(std::move(tokens)), starts_(std::move(starts)) {}

void MemoryTokens::read(uint64_t begin, std::span<int64_t> out) const {
  std::copy_n(tokens_.begin() + static_cast<std::ptrdiff_t>(begin), out.size(), out.begin());
}

std::vector<uint64_t> MemoryTokens::document_starts(uint64_t begin, uint64_t end) const {
  const auto first = std::upper_bound(starts_.begin(), starts_.end(), begin);
  return {first, std::lower_bound(first, starts_.end(), end)};
}

TokenPart::TokenPart(std::shared_ptr<const TokenSequence> whole, uint64_t begin, uint64_t size)
    : whole_(std::move(whole)), begin_(begin), size_(size) {}

std::vector<uint64_t> TokenPart::document_starts(uint64_t begin, uint64_t end) const {
  std::vector<uint64_t> starts = whole_->document_starts(begin_ + begin, begin_ + end);
  for (uint64_t& start : starts) start -= begin_;
  return starts;
}

JoinedTokens::JoinedTokens(std::vector<std::shared_ptr<const TokenSequence>> parts) : parts_(std::move(parts)) {
  for (const auto& part : parts_) begins_.push_back(begins_.back() + part->size());
}

template <class F>
void JoinedTokens::each_part(uint64_t begin, uint64_t end, const F& f) const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const uint64_t first = std::max(begin, begins_[i]), last = std::min(end, begins_[i + 1]);
    if (first < last) f(*parts_[i], begins_[i], first - begins_[i], last - begins_[i]);
  }
}

void JoinedTokens::read(uint64_t begin, std::span<int64_t> out) const {
  each_part(begin, begin + out.size(), [&](const TokenSequence& part, uint64_t at, uint64_t first, uint64_t last) {
    part.read(first, out.subspan(at + first - begin, last - first));
  });
}

std::vector<uint64_t> JoinedTokens::document_starts(uint64_t begin, uint64_t end) const {
  std::vector<uint64_t> all;
  each_part(begin, end, [&](const TokenSequence& part, uint64_t at, uint64_t first, uint64_t last) {
    if (at > begin) all.push_back(at);
    for (const uint64_t start : part.document_starts(first, last)) all.push_back(at + start);
  });
  return all;
}

}  // namespace motet
