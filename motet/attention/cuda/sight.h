#pragma once
#include "motet/attention/cuda/args.h"
#include "motet/cuda/device.h"

// Which keys a query sees, as motet/attention/attention.h defines it. The only place of the CUDA kernels that knows
// causality, windows, lengths and documents.
namespace motet::cuda {

struct Span {
  int begin, end;
  MOTET_DEVICE bool empty() const { return begin >= end; }
};

MOTET_DEVICE int larger(int a, int b) { return a > b ? a : b; }
MOTET_DEVICE int smaller(int a, int b) { return a < b ? a : b; }
MOTET_DEVICE float larger_or_nan(float x, float y) { return y > x || y != y ? y : x; }

struct Sight {
  const Args& a;
  int b;
  int64_t start;  // position of query 0
  Span readable;  // keys that may be read at all; what lies outside may hold anything

  MOTET_DEVICE Sight(const Args& args, int sequence) : a(args), b(sequence) {
    start = a.query_start ? a.query_start[b] : a.S - a.T;
    const int64_t begin = a.key_begin ? a.key_begin[b] : 0, end = a.key_end ? a.key_end[b] : a.S;
    readable.begin = begin > 0 ? static_cast<int>(begin < a.S ? begin : a.S) : 0;
    readable.end = end < a.S ? static_cast<int>(end > 0 ? end : 0) : a.S;
  }

  MOTET_DEVICE bool reads(int s) const { return s >= readable.begin && s < readable.end; }

  MOTET_DEVICE bool sees(int t, int s) const {
    if (t >= a.T || !reads(s)) return false;
    const int64_t at = start + t;
    if (a.causal && s > at) return false;
    if (a.window > 0 && at - s >= a.window) return false;
    if (!a.documents) return true;
    const int64_t* documents = a.documents + static_cast<int64_t>(b) * a.S;
    return at >= 0 && at < a.S && documents[at] == documents[s];
  }

  /// A span that holds every key that queries [t0,t1) see.
  MOTET_DEVICE Span keys(int t0, int t1) const {
    int64_t begin = readable.begin, end = readable.end;
    const int64_t last = start + (t1 < a.T ? t1 : a.T) - 1;
    if (a.causal && last + 1 < end) end = last + 1;
    if (a.window > 0 && start + t0 - a.window + 1 > begin) begin = start + t0 - a.window + 1;
    return clipped(begin, end, a.S);
  }
  /// A span that holds every query that sees one of the keys [s0,s1).
  MOTET_DEVICE Span queries(int s0, int s1) const {
    if (s0 >= readable.end || s1 <= readable.begin) return {0, 0};
    int64_t begin = 0, end = a.T;
    if (a.causal && s0 - start > begin) begin = s0 - start;
    if (a.window > 0 && s1 - 1 + a.window - start < end) end = s1 - 1 + a.window - start;
    return clipped(begin, end, a.T);
  }
  /// Keys that all of the queries [t0,t1) see, where t1 lies beyond T perhaps fewer than these.
  MOTET_DEVICE Span common_keys(int t0, int t1) const {
    if (a.documents) return {0, 0};
    int64_t begin = readable.begin, end = readable.end;
    if (a.causal && start + t0 + 1 < end) end = start + t0 + 1;
    if (a.window > 0 && start + t1 - a.window > begin) begin = start + t1 - a.window;
    return clipped(begin, end, a.S);
  }
  /// The queries that see all of the keys [s0,s1).
  MOTET_DEVICE Span common_queries(int s0, int s1) const {
    if (a.documents || s0 < readable.begin || s1 > readable.end) return {0, 0};
    int64_t begin = 0, end = a.T;
    if (a.causal && s1 - 1 - start > begin) begin = s1 - 1 - start;
    if (a.window > 0 && s0 + a.window - start < end) end = s0 + a.window - start;
    return clipped(begin, end, a.T);
  }

 private:
  MOTET_DEVICE static Span clipped(int64_t begin, int64_t end, int most) {
    if (begin < 0) begin = 0;
    if (end > most) end = most;
    if (begin >= end) return {0, 0};
    return {static_cast<int>(begin), static_cast<int>(end)};
  }
};

}  // namespace motet::cuda
