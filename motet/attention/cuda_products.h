#pragma once
#include "motet/attention/cuda/problem.h"
#include "motet/attention/kernels.h"
#include "motet/attention/visibility.h"

// The passes of a problem by blocks of queries, whose products PyTorch makes and whose mixes and softmax `api` does.
// What multiplies in 16 bits, weights and gradients of scores, is rounded to q's type, as eager PyTorch rounds it; the
// rest is float32. q, k and v are of one type.
namespace motet {

/// How large a block of queries is.
struct BlockSize {
  int64_t pairs = 1 << 26;  // (head, query, key) of all sequences, at most: 256 MB of float32 scores
  int64_t queries = 64;     // at least, up to 2^28 of those: 3 GB backward in 16 bits
};

/// The blocks of a problem: whole rows of the keys that a block's queries see, those of a window among them.
std::vector<QueryKeyBlock> product_blocks(const Problem&, const BlockSize& = {});

/// Why a problem is none for these functions; "" when it is: they are worth their launches and their memory.
std::string products_why_not(const Problem&);

Attended products_forward(const Problem&, const cuda::Api&, const BlockSize& = {});
Gradients products_backward(const Problem&, const Backward&, const cuda::Api&, const BlockSize& = {});
Tensor products_lse(const Problem&, const cuda::Api&, const BlockSize& = {});
Tensor products_given_lse(const Problem&, const Tensor& lse_BHT, const cuda::Api&, const BlockSize& = {});

}  // namespace motet
