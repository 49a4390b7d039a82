#pragma once
#include "motet/mechanisms/projected.h"

namespace motet {

/// Plain softmax attention: MHA, grouped (GQA) and multi-query (MQA). README.md of this folder.
class SoftmaxAttention : public Projected {
 public:
  explicit SoftmaxAttention(const Setting&);
};

MechanismEntry softmax_entry();

}  // namespace motet
