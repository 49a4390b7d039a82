#pragma once
#include "motet/attention/cuda/general-inl.h"
#include "motet/cuda/launches.h"

// What the hosts' halves of the general and of the decode kernels share; general.cu.
namespace motet::cuda::general {

Call call_of(const plain::Problem&);
/// Takes the memory of a forward call in `c.parts` parts.
Workspace forward_memory(const plain::Problem&, Call& c, void* memory, bool outputs);
/// Makes one of the stats, and of the outputs, of a call's parts.
void put_joined_stats(Launches&, const plain::Problem&, const Call&);
void put_joined_outputs(Launches&, const plain::Problem&, const Call&);

}  // namespace motet::cuda::general
