// What lies between two products of matrices: which blocks run, in which memory.
#include "motet/attention/cuda/between.h"

#include "motet/attention/cuda/between-inl.h"
#include "motet/attention/cuda/general_call.h"

namespace motet::cuda::between {
namespace {

using namespace general;

constexpr int kOwn = Stored<false, 256>::kOwn;
constexpr int64_t kShared = 112 << 10;  // bytes of a block, so that two run at once on the larger GPUs

int64_t query_blocks(const plain::Problem& p) { return blocks_of(p.T, kOwn) * p.B; }

/// f of the most pairs of a tile (256, 128 or 64) whose `buffers` fit.
template <class Function>
void with_pairs(const Call& c, int buffers, const Function& f) {
  const int64_t limit = std::min<int64_t>(kShared, shared_limit());
  if (Tile<Stored<false, 256>>::bytes(c, buffers) <= limit)
    f(std::integral_constant<int, 256>());
  else if (Tile<Stored<false, 128>>::bytes(c, buffers) <= limit)
    f(std::integral_constant<int, 128>());
  else
    f(std::integral_constant<int, 64>());
}

void put_stats(Launches& to, const plain::Problem& p, const Call& c) {
  with_pairs(c, kForwardBuffers, [&](auto pairs) {
    using Made = Stored<false, pairs.value>;
    to.run(row_stats<Made>, query_blocks(p), 1, kThreads, Tile<Made>::bytes(c, kForwardBuffers), c);
  });
}

void put_weights(Launches& to, const plain::Problem& p, const Call& c) {
  if (!c.weights) return;
  with_pairs(c, kForwardBuffers, [&](auto pairs) {
    to.run(mixed_weights<pairs.value>, query_blocks(p), 1, kThreads,
           Tile<Stored<false, pairs.value>>::bytes(c, kForwardBuffers), c);
  });
}

bool wants_key_parts(const Gradients& to) {
  bool wants = false;
  for (int part = 0; part < kNumMixParts; ++part) wants |= plain::by_key(part) && (to.pre[part] || to.post[part]);
  return wants;
}

}  // namespace

int64_t workspace_bytes(const plain::Problem& p, Pass pass) {
  Call c = call_of(p);
  if (pass == Pass::between_back) return backward_memory(p, c, nullptr, query_blocks(p)).bytes();
  return forward_memory(p, c, nullptr, true).bytes();
}

const char* forward(const plain::Problem& p, const Between& it, const Runtime& run) {
  Call c = call_of(p);
  forward_memory(p, c, run.workspace, true);
  c.scores = it.scores, c.weights = it.weights;
  Launches launches(run.stream);
  if (it.given_lse) {
    put_given_stats(launches, p, c, it.given_lse);
  } else {
    c.lse = it.lse;
    put_stats(launches, p, c);
  }
  put_weights(launches, p, c);
  return launches.error();
}

const char* backward(const plain::Problem& p, const BetweenBack& it, const Gradients& to, const Runtime& run) {
  Call c = call_of(p);
  backward_memory(p, c, run.workspace, query_blocks(p));
  c.scores = it.scores, c.dmixed = it.dmixed, c.weights = it.weights, c.dscores = it.dscores, c.to = to;
  Launches launches(run.stream);
  put_stats(launches, p, c);
  put_weights(launches, p, c);
  with_pairs(c, kBackwardBuffers, [&](auto pairs) {
    using Made = Stored<false, pairs.value>;
    const int64_t bytes = Tile<Made>::bytes(c, kBackwardBuffers);
    launches.run(sum_rows<Made>, query_blocks(p), 1, kThreads, bytes, c);
    launches.run(score_gradients<pairs.value>, query_blocks(p), 1, kThreads, bytes, c);
    if (wants_key_parts(to))
      launches.run(key_part_gradients<pairs.value>, blocks_of(p.S, Stored<true, pairs.value>::kOwn) * p.B, 1, kThreads,
                   bytes, c);
  });
  put_joined_weights(launches, p, c, query_blocks(p));
  return launches.error();
}

}  // namespace motet::cuda::between
