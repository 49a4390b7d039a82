#pragma once
#include "motet/attention/cuda/general-inl.h"
#include "motet/cuda/launches.h"

// What the hosts' halves of the general kernels and of those built on them share; general.cu.
namespace motet::cuda::general {

inline constexpr int kForwardBuffers = 2, kBackwardBuffers = 4;  // of Tile: x, w; and g, y

Call call_of(const plain::Problem&);
/// Takes the memory of a forward call in `c.parts` parts.
Workspace forward_memory(const plain::Problem&, Call& c, void* memory, bool outputs);
/// Takes the memory of a backward call whose queries are owned by so many blocks.
Workspace backward_memory(const plain::Problem&, Call& c, void* memory, int64_t query_blocks);
/// Makes one of the stats, and of the outputs, of a call's parts; gradients of static weights from those of the blocks.
void put_joined_stats(Launches&, const plain::Problem&, const Call&);
/// The stats that an lse of more keys gives.
void put_given_stats(Launches&, const plain::Problem&, Call, const float* lse);
void put_joined_outputs(Launches&, const plain::Problem&, const Call&);
void put_joined_weights(Launches&, const plain::Problem&, const Call&, int64_t query_blocks);

}  // namespace motet::cuda::general
