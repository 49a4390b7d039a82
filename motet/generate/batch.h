#pragma once
#include <span>
#include <vector>

#include "motet/generate/cache.h"

namespace motet {

/// The next tokens of one sequence: one behind its last, or a part of a prompt.
struct Piece {
  Cache* cache;                  // of this sequence alone
  std::span<const int32_t> ids;  // at least one
  int64_t length;                // as Cache::step takes it
  bool prompt = false;           // likewise
};

/// One step of many sequences that come and go: the hidden states after the final norm [n,C] of each piece, whose
/// caches hold it from then on. All caches have the same options. Several pieces of one cache stand in their order, and
/// only the last of them may be of one token.
///
/// A piece of several tokens goes through the model by itself, single tokens 16 at a time, of which each is attended to
/// on its own cache. So on the CPU in float32 a sequence gets the same bits alone and in any company, whatever the
/// number of threads: products of a piece depend on its own rows, and those of up to 16 single tokens
/// (motet/kernels/linear.h) on each row alone.
///
/// Throws as Cache::step; those caches that were not reached hold what they did.
std::vector<Tensor> ragged_step(ModelImpl&, std::span<const Piece>);

}  // namespace motet
