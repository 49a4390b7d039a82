#include "motet/attention/cpu/sight.h"

#include <algorithm>
#include <unordered_set>

namespace motet::cpu {

Sight::Sight(const Problem& p) : p_(p) {
  if (!p.documents) return;
  run_.resize(p.B * p.S);
  scattered_.resize(p.B);
  for (int64_t b = 0; b < p.B; ++b) {
    const int64_t* document = documents(b);
    std::unordered_set<int64_t> seen;
    for (int64_t s = 0, end = 0; s < p.S; s = end) {
      while (end < p.S && document[end] == document[s]) ++end;
      std::fill_n(run_.begin() + b * p.S + s, end - s, Span{s, end});
      if (!seen.insert(document[s]).second) scattered_[b] = true;
    }
  }
}

Span Sight::readable(int64_t b) const {
  return {p_.key_begin ? std::max<int64_t>(p_.key_begin[b], 0) : 0, p_.key_end ? std::min(p_.key_end[b], p_.S) : p_.S};
}

Span Sight::keys(int64_t b, int64_t t) const {
  Span seen = readable(b);
  const int64_t at = position(b, t);
  if (p_.causal) seen.end = std::min(seen.end, at + 1);
  if (p_.window > 0) seen.begin = std::max(seen.begin, at - p_.window + 1);
  if (!p_.documents) return seen;
  if (at < 0 || at >= p_.S) return {};
  if (scattered_[b]) return seen;
  const Span run = run_[b * p_.S + at];
  return {std::max(seen.begin, run.begin), std::min(seen.end, run.end)};
}

Span Sight::keys(int64_t b, int64_t t0, int64_t t1) const {
  Span all{p_.S, 0};
  for (int64_t t = t0; t < t1; ++t) {
    const Span one = keys(b, t);
    if (one.empty()) continue;
    all.begin = std::min(all.begin, one.begin);
    all.end = std::max(all.end, one.end);
  }
  return all.empty() ? Span{} : all;
}

}  // namespace motet::cpu
