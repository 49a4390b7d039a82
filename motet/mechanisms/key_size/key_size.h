#pragma once
#include "motet/mechanisms/projected.h"

namespace motet {

/// Attention whose key width is free of its value width; the scale is 1 / sqrt(key_dim). README.md of this folder.
class KeySizeAttention : public Projected {
 public:
  explicit KeySizeAttention(const Setting&);
};

MechanismEntry key_size_entry();

}  // namespace motet
