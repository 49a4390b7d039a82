// The general kernels: which blocks run, in which memory.
#include "motet/attention/cuda/general.h"

#include <type_traits>

#include "motet/attention/cuda/general_backward-inl.h"
#include "motet/attention/cuda/general_call.h"
#include "motet/attention/cuda/general_forward-inl.h"
#include "motet/attention/cuda/general_joins-inl.h"

namespace motet::cuda::general {
namespace {

int64_t lse_numbers(const plain::Problem& p) { return p.B * p.softmax_heads * p.T; }
int64_t out_numbers(const plain::Problem& p) { return p.B * p.T * p.output_heads * p.E; }

}  // namespace

Call call_of(const plain::Problem& p) {
  Call c{args_of(p)};
  const Args& a = c.a;
  c.heads = std::max({a.score_heads, a.softmax_heads, a.output_heads});
  c.ranks = std::max(a.pre.query_rank + a.pre.key_rank, a.post.query_rank + a.post.key_rank);
  c.parts = 1;
  return c;
}

Workspace forward_memory(const plain::Problem& p, Call& c, void* memory, bool outputs) {
  Workspace space(memory);
  c.stats = space.take<float2>(c.parts * lse_numbers(p));
  if (outputs && c.parts > 1) c.partial_out = space.take<float>(c.parts * out_numbers(p));
  return space;
}

Workspace backward_memory(const plain::Problem& p, Call& c, void* memory, int64_t query_blocks) {
  Workspace space(memory);
  c.stats = space.take<float2>(lse_numbers(p));
  c.row_sums = space.take<float>(lse_numbers(p));
  if (p.pre.has(kWeight)) c.weight_sums_pre = space.take<float>(query_blocks * p.score_heads * p.softmax_heads);
  if (p.post.has(kWeight)) c.weight_sums_post = space.take<float>(query_blocks * p.softmax_heads * p.output_heads);
  return space;
}

void put_joined_stats(Launches& to, const plain::Problem& p, const Call& c) {
  if (c.parts > 1) to.flat(join_stats, lse_numbers(p), kThreads, c);
}
void put_given_stats(Launches& to, const plain::Problem& p, Call c, const float* lse) {
  c.parts = 0, c.lse = const_cast<float*>(lse);  // read
  to.flat(join_stats, lse_numbers(p), kThreads, c);
}
void put_joined_outputs(Launches& to, const plain::Problem& p, const Call& c) {
  if (c.parts > 1) to.flat(join_outputs, out_numbers(p), kThreads, c);
}
void put_joined_weights(Launches& to, const plain::Problem& p, const Call& c, int64_t blocks) {
  const WeightSums sums{{c.weight_sums_pre, c.weight_sums_post},
                        {c.to.pre[kWeight], c.to.post[kWeight]},
                        {c.a.pre.in * c.a.pre.out, c.a.post.in * c.a.post.out},
                        static_cast<int>(blocks),
                        static_cast<int>(p.B),
                        c.only};
  if (sums.to[0] || sums.to[1]) to.flat(join_weights, std::max(sums.numbers[0], sums.numbers[1]), kThreads, sums);
}

namespace {

constexpr int64_t kEnoughBlocks = 256;  // fewer cut their walks over the keys into parts
constexpr int64_t kLeastPart = 256;     // keys

constexpr int kOwn = Products<false, 16>::kOwn;
int64_t query_blocks(const plain::Problem& p) { return blocks_of(p.T, kOwn) * p.B; }
int chunks(int64_t heads, int64_t width) {
  return static_cast<int>(blocks_of(heads * blocks_of(width, kColumns), kUnits));
}
// By shapes alone, so that results do not depend on the device.
int parts_of(const plain::Problem& p) {
  const int64_t blocks = query_blocks(p) * chunks(p.output_heads, p.E);
  const int64_t keys = p.window > 0 ? std::min(p.S, p.window + kOwn) : p.S;
  return static_cast<int>(
      std::clamp<int64_t>(std::min(kEnoughBlocks / std::max<int64_t>(blocks, 1), keys / kLeastPart), 1, 64));
}

/// f of the longest loop tile (16, 8 or 4) whose `buffers` fit the device's shared memory.
template <class Function>
void with_loop(const Call& c, int buffers, const Function& f) {
  const int limit = shared_limit();
  if (Tile<Products<false, 16>>::bytes(c, buffers) <= limit)
    f(std::integral_constant<int, 16>());
  else if (Tile<Products<false, 8>>::bytes(c, buffers) <= limit)
    f(std::integral_constant<int, 8>());
  else
    f(std::integral_constant<int, 4>());
}

void put_stats(Launches& to, const plain::Problem& p, const Call& c) {
  with_loop(c, kForwardBuffers, [&](auto loop) {
    using Made = Products<false, loop.value>;
    to.run(row_stats<Made>, query_blocks(p), c.parts, kThreads, Tile<Made>::bytes(c, kForwardBuffers), c);
  });
  put_joined_stats(to, p, c);
}

void put_outputs(Launches& to, const plain::Problem& p, const Call& c) {
  with_loop(c, kForwardBuffers, [&](auto loop) {
    to.run(outputs<loop.value>, query_blocks(p), c.parts * chunks(p.output_heads, p.E), kThreads,
           Tile<Products<false, loop.value>>::bytes(c, kForwardBuffers), c);
  });
  put_joined_outputs(to, p, c);
}

}  // namespace

const char* why_not(const plain::Problem& p) {
  if (std::max({p.score_heads, p.softmax_heads, p.output_heads}) > kMaxHeads) return "more than 64 heads";
  if (std::max({p.T, p.S, p.B * p.T * p.output_heads}) > INT32_MAX / 2)
    return "more queries or keys than 32 bits count";
  if (std::max(p.key_heads, p.value_heads) > kMostStoredHeads) return "more than 256 stored heads";
  return device_why_not();
}

int64_t workspace_bytes(const plain::Problem& p, Pass pass) {
  Call c = call_of(p);
  if (pass == Pass::backward) return backward_memory(p, c, nullptr, query_blocks(p)).bytes();
  c.parts = parts_of(p);
  return forward_memory(p, c, nullptr, pass != Pass::lse).bytes();
}

const char* forward(const plain::Problem& p, const Output& to, const Runtime& run, const int* only) {
  Call c = call_of(p);
  c.only = only;
  c.parts = parts_of(p);
  forward_memory(p, c, run.workspace, true);
  c.lse = to.lse, c.out = to.out;
  Launches launches(run.stream);
  put_stats(launches, p, c);
  put_outputs(launches, p, c);
  return launches.error();
}

const char* lse(const plain::Problem& p, float* lse, const Runtime& run) {
  Call c = call_of(p);
  c.parts = parts_of(p);
  forward_memory(p, c, run.workspace, false);
  c.lse = lse;
  Launches launches(run.stream);
  put_stats(launches, p, c);
  return launches.error();
}

const char* given_lse(const plain::Problem& p, const float* lse, void* out, const Runtime& run) {
  Call c = call_of(p);
  c.parts = parts_of(p);
  forward_memory(p, c, run.workspace, true);
  c.out = out;
  Launches launches(run.stream);
  put_given_stats(launches, p, c, lse);
  put_outputs(launches, p, c);
  return launches.error();
}

const char* backward(const plain::Problem& p, const Incoming& from, const Gradients& to, const Runtime& run,
                     const int* only) {
  Call c = call_of(p);
  backward_memory(p, c, run.workspace, query_blocks(p));
  c.a.dout = from.dout, c.to = to, c.only = only;
  Launches launches(run.stream);
  put_stats(launches, p, c);
  with_loop(c, kBackwardBuffers, [&](auto loop) {
    constexpr int kLoop = decltype(loop)::value;
    using Made = Products<false, kLoop>;
    const int64_t bytes = Tile<Made>::bytes(c, kBackwardBuffers);
    launches.run(sum_rows<Made>, query_blocks(p), 1, kThreads, bytes, c);
    launches.run(query_gradients<kLoop>, query_blocks(p), chunks(p.score_heads, p.D), kThreads, bytes, c);
    launches.run(key_gradients<kLoop>, blocks_of(p.S, kOwn) * p.B,
                 chunks(p.key_heads, p.D) + (to.v ? chunks(p.value_heads, p.E) : 0), kThreads, bytes, c);
  });
  put_joined_weights(launches, p, c, query_blocks(p));
  return launches.error();
}

}  // namespace motet::cuda::general
