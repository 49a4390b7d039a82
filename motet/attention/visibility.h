#pragma once
#include "motet/attention/problem.h"

namespace motet {

/// Half-open ranges of queries and of keys: one block of the T x S plane.
struct QueryKeyBlock {
  int64_t t0, t1, s0, s1;
};

/// True where a query of the block does not see a key: bool [1 or B, 1 or Ha, t1-t0, s1-s0]; undefined when it sees
/// all.
Tensor hidden(const Problem&, const QueryKeyBlock&);

/// The block of queries [t0,t1) with all keys that causality and the window (host numbers) let any of them see.
/// With query_start on a device all keys before key_end may be seen.
QueryKeyBlock visible_keys(const Problem&, int64_t t0, int64_t t1);

/// The problem with the keys outside [key_begin, key_end) set to 0 on every key-side tensor, so that whatever they hold
/// (NaN included) cannot leak. Without these tables: the problem itself.
Problem without_padding(Problem);

}  // namespace motet
