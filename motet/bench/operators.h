// The operators that `motet bench attention` measures: a table of mechanisms' arguments to composed attention.
#pragma once

#include <string>
#include <vector>

#include "motet/attention/parts.h"

namespace motet {

/// Sizes of the plain Transformer: batch, length, heads, head width. Each mechanism derives its own counts from them.
struct AttentionSize {
  int64_t B = 1, T = 512, H = 8, D = 64;
};

struct BenchedOperator {
  const char* name;
  const char* sentence;
  bool pairs;                                    // wants an even number of heads
  Arguments (*arguments)(const AttentionSize&);  // random causal float32 inputs, the same at every call
};

/// mha first: it is what the others are compared with.
const std::vector<BenchedOperator>& benched_operators();
std::vector<std::string> benched_names();

/// The row of the name. Throws Error for an unknown name.
const BenchedOperator& benched_operator(const std::string& name);

}  // namespace motet
