#pragma once
#include "motet/attention/cpu/problem.h"

namespace motet::cpu {

/// Half-open range of keys.
struct Span {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

/// What each query sees. Causality, window, lengths and documents that lie in runs make one span a query, whose ends do
/// not fall as t rises; documents that come back later leave holes in it, which `document` tells.
class Sight {
 public:
  explicit Sight(const Problem&);

  Span keys(int64_t b, int64_t t) const;
  /// The keys that may be read at all; what lies outside may hold anything.
  Span readable(int64_t b) const;
  /// The smallest span that holds those of queries [t0,t1).
  Span keys(int64_t b, int64_t t0, int64_t t1) const;

  bool holes(int64_t b) const { return !scattered_.empty() && scattered_[b]; }
  /// The documents [S] of sequence b, and that of query t (only where keys(b,t) is not empty).
  const int64_t* documents(int64_t b) const { return p_.documents + b * p_.S; }
  int64_t document(int64_t b, int64_t t) const { return documents(b)[position(b, t)]; }

 private:
  int64_t position(int64_t b, int64_t t) const { return (p_.query_start ? p_.query_start[b] : p_.S - p_.T) + t; }
  const Problem& p_;
  std::vector<Span> run_;        // [B,S] of the document at that place; empty without documents
  std::vector<bool> scattered_;  // [B]
};

}  // namespace motet::cpu
