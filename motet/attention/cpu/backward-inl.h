// What the backward passes of all cases share: the gradients of keys that blocks of queries add to in turns, and the
// run around the workers.
//
// Gradients of a tile of keys are added block of queries by block of queries in a fixed order (turns), the last block
// first, whatever the number of threads.
#if defined(MOTET_CPU_BACKWARD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef MOTET_CPU_BACKWARD_INL_H
#undef MOTET_CPU_BACKWARD_INL_H
#else
#define MOTET_CPU_BACKWARD_INL_H
#endif

#include "motet/attention/cpu/row_forward-inl.h"
#include "motet/attention/cpu/turned-inl.h"

HWY_BEFORE_NAMESPACE();
namespace motet::cpu::HWY_NAMESPACE {

/// What the workers of a backward run share.
struct BackwardShared {
  Workspace space;
  GradientTiles dk, dv;
  Pieces pre_keys, post_keys;              // gradients of the key bands
  size_t pre_weight = 0, post_weight = 0;  // of each block: its sum for the static weight
  int64_t weights = 0;                     // floats of one such sum
  Turns first_pass, second_pass;           // [B][cluster][tile]

  BackwardShared(const Call& call, const Mixes& mixes, const Products& products, const Gradients& g, int64_t blocks)
      : dk(space, g.k, {call.p.B, call.p.S, call.p.key_heads, call.p.D}, products.tiles()),
        dv(space, g.v, {call.p.B, call.p.S, call.p.value_heads, call.p.E}, products.tiles()),
        first_pass(places(call)),
        second_pass(places(call)) {
    const int64_t tiles = call.tiles(kBackwardKeys);
    pre_keys = Pieces(space, call.p.B, tiles, 1, mixes.pre.key_numbers * kBackwardKeys, false);
    post_keys = Pieces(space, call.p.B, tiles, 1, mixes.post.key_numbers * kBackwardKeys, false);
    weights = std::max(int64_t{mixes.pre.in} * mixes.pre.out, int64_t{mixes.post.in} * mixes.post.out);
    if (g.pre[kWeight]) pre_weight = space.reserve(call.p.B * blocks * weights);
    if (g.post[kWeight]) post_weight = space.reserve(call.p.B * blocks * weights);
  }
  static int64_t places(const Call& call) {
    return call.p.B * static_cast<int64_t>(call.plan.clusters.size()) * call.tiles(kBackwardKeys);
  }
  bool allocate() {
    if (!space.allocate()) return false;
    dk.allocated(space), dv.allocated(space);
    pre_keys.data = space.get(pre_keys.handle), post_keys.data = space.get(post_keys.handle);
    return true;
  }
  void clear(int64_t b, int64_t j) {
    dk.clear(b, j), dv.clear(b, j);
    if (pre_keys.size) std::fill_n(pre_keys.at(b, j, 0), pre_keys.size, 0.f);
    if (post_keys.size) std::fill_n(post_keys.at(b, j, 0), post_keys.size, 0.f);
  }
};

/// The place and turn of a block at a tile, for the gradients of its keys. Blocks that reach a tile follow one another,
/// the last one first: it is the longest where attention is causal, and threads then end together.
class BlockTurns {
 public:
  BlockTurns(const Call& call, int64_t block_rows) : call_(call), tiles_(call.tiles(kBackwardKeys)) {
    const int64_t blocks = call.blocks(block_rows);
    last_.assign(call.p.B * tiles_, -1);
    for (int64_t b = 0; b < call.p.B; ++b)
      for (int64_t i = 0; i < blocks; ++i) {
        const Span keys = call.sight.keys(b, i * block_rows, std::min((i + 1) * block_rows, call.p.T));
        if (keys.empty()) continue;
        for (int64_t j = keys.begin / kBackwardKeys; j * kBackwardKeys < keys.end; ++j) last_[b * tiles_ + j] = i;
      }
  }
  int64_t place(int64_t b, int64_t cluster, int64_t j) const {
    return (b * static_cast<int64_t>(call_.plan.clusters.size()) + cluster) * tiles_ + j;
  }
  int64_t turn(int64_t b, int64_t block, int64_t j, int64_t unit, int64_t units) const {
    return (last_[b * tiles_ + j] - block) * units + unit;
  }

 private:
  const Call& call_;
  int64_t tiles_;
  std::vector<int64_t> last_;  // block that reaches the tile
};

/// One task of a backward run: a block of queries of one unit.
struct BackwardTask {
  int64_t b, block, cluster, unit_index, units;
  Unit unit;
};

// Beyond this lse (in powers of 2) its rounding, 2^-24 of it, reaches the gradients.
constexpr float kCoarseLse = 32;

HWY_INLINE bool needs_refining(const float* high, int64_t count) {
  return std::any_of(high, high + count, [](float x) { return std::abs(x) > kCoarseLse && std::isfinite(x); });
}

/// Takes the sums of weights, which should be 1, into what is subtracted, and clears them.
HWY_INLINE void refine(float* totals, float* low, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (totals[i] > 0) low[i] += std::log2(totals[i]);
    totals[i] = 0;
  }
}

/// Sums the blocks' gradients of a static weight in their order.
HWY_INLINE void finish_weight(const BackwardShared& shared, size_t handle, int64_t blocks, int64_t numbers, float* to) {
  if (!to) return;
  std::vector<double> sum(static_cast<size_t>(numbers), 0);
  for (int64_t i = 0; i < blocks; ++i)
    for (int64_t n = 0; n < numbers; ++n) sum[n] += shared.space.get(handle)[i * shared.weights + n];
  for (int64_t n = 0; n < numbers; ++n) to[n] = static_cast<float>(sum[n]);
}

/// Runs every (sequence, cluster, block) on the workers that `make` builds, blocks of a cluster in the order of turns.
template <class Make>
HWY_INLINE Status run_backward_tasks(const Call& call, const Products& products, int64_t block_rows, Make make) {
  const int64_t blocks = call.blocks(block_rows), clusters = static_cast<int64_t>(call.plan.clusters.size());
  const int64_t count = call.p.B * clusters * blocks, group = std::max(1, call.runtime.threads.count);
  Tasks tasks(count);
  std::vector<decltype(make())>
      workers;  // all memory before the first turn: a worker that fails later would be waited for
  for (int64_t i = 0; i < std::min<int64_t>(group, count); ++i) {
    workers.push_back(make());
    if (!workers.back()->allocate()) return Status::out_of_memory;
  }
  call.runtime.threads.run(static_cast<int64_t>(workers.size()), [&](int64_t worker) {
    const ProductsOfThread own(products);
    for (int64_t task; (task = tasks.next()) >= 0;) {
      // Threads work side by side on different clusters where there are several, so that few turns are waited for.
      const int64_t pairs = call.p.B * clusters, first = task / (group * blocks) * group,
                    wide = std::min(group, pairs - first);
      const int64_t within = task - first * blocks, block = blocks - 1 - within / wide, pair = first + within % wide;
      const Cluster& cluster = call.plan.clusters[pair % clusters];
      const int64_t units = static_cast<int64_t>(cluster.units.size());
      for (int64_t u = 0; u < units; ++u)
        workers[worker]->run({pair / clusters, block, pair % clusters, u, units, call.plan.units[cluster.units[u]]});
    }
  });
  return Status::ok;
}

/// Puts the gradients of keys in order and writes them.
HWY_INLINE void finish_keys(const Call& call, const Mixes& mixes, const BackwardShared& shared, const Gradients& to) {
  const Problem& p = call.p;
  const int64_t tiles = call.tiles(kBackwardKeys);
  call.runtime.threads.run(p.B * tiles, [&](int64_t task) {
    static thread_local std::vector<float> scratch;
    const int64_t b = task / tiles, j = task % tiles, s0 = j * kBackwardKeys;
    shared.dk.finish(b, j, scratch);
    shared.dv.finish(b, j, scratch);
    const int count = static_cast<int>(std::min<int64_t>(kBackwardKeys, p.S - s0));
    if (shared.pre_keys.size)
      scatter_keys<kBackwardKeys>(mixes.pre, to.pre, b * p.S + s0, count, shared.pre_keys.at(b, j, 0));
    if (shared.post_keys.size)
      scatter_keys<kBackwardKeys>(mixes.post, to.post, b * p.S + s0, count, shared.post_keys.at(b, j, 0));
  });
}

/// Everything of a backward run but the worker: packing, turns, tasks, results.
template <class Worker>
HWY_INLINE Status run_backward(const Call& call, const Incoming& from, const Gradients& to) {
  const Mixes mixes(call);
  const int64_t rows = call.plan.backward_rows, blocks = call.blocks(rows), tiles = call.tiles(kBackwardKeys);
  const Products products(call, from);
  PackedKeys<kBackwardKeys> keys(call, mixes, true, products);
  BackwardShared shared(call, mixes, products, to, blocks);
  if (!keys.allocate() || !shared.allocate()) return Status::out_of_memory;
  keys.pack();
  call.runtime.threads.run(call.p.B * tiles, [&](int64_t task) { shared.clear(task / tiles, task % tiles); });
  const BlockTurns turns(call, rows);
  const Status status = run_backward_tasks(call, products, rows, [&] {
    return std::make_unique<Worker>(call, mixes, products, keys, shared, turns, from, to);
  });
  if (status != Status::ok) return status;
  finish_keys(call, mixes, shared, to);
  finish_weight(shared, shared.pre_weight, call.p.B * blocks, int64_t{mixes.pre.in} * mixes.pre.out, to.pre[kWeight]);
  finish_weight(shared, shared.post_weight, call.p.B * blocks, int64_t{mixes.post.in} * mixes.post.out,
                to.post[kWeight]);
  return Status::ok;
}

}  // namespace motet::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
