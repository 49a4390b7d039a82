#pragma once
#include "motet/processes/processes.h"

// Which process keeps the optimiser's state of what (ZeRO-1, arXiv:1910.02054).
namespace motet {

/// Numbers `begin` to before `end` of a parameter, as they lie in memory.
struct Shard {
  std::string name;
  Tensor parameter;
  int64_t begin = 0, end = 0;

  bool whole() const { return begin == 0 && end == parameter.numel(); }
  /// The parameter itself, or a view of a part of it, [end - begin].
  Tensor values() const { return of(parameter.detach()); }
  /// The same part of its gradient, which it has.
  Tensor gradient() const { return of(parameter.grad()); }
  /// Of a tensor of the parameter's shape.
  Tensor of(const Tensor& like) const { return whole() ? like : like.reshape({-1}).slice(0, begin, end); }
};
using Shards = std::vector<Shard>;

/// All numbers one behind another, cut into `size` equal stretches: by rank.
std::vector<Shards> flat_shards(const Shards& parameters, int64_t size);
/// Whole parameters, the largest first, each for who has the fewest numbers: by rank.
std::vector<Shards> whole_shards(const Shards& parameters, int64_t size);

/// Each process's `own` tensors, those of its shards, become everyone's: `everyones` by rank are written, of shards as
/// large; an empty list is not wanted here. A few MB at a time.
void share(const Processes&, const std::vector<Shards>&, const std::vector<Tensor>& own,
           const std::vector<std::vector<Tensor>>& everyones);

}  // namespace motet
