#pragma once
#include <string>

#include "motet/ops/torch.h"

// Axes by letter, as the layouts of golden files name them (tests/golden/README.md). '1' is an axis of length 1.
namespace motet {

/// A view of t, whose axes `from` names, with the axes `to` names: permuted, axes that are missing or '1' added with
/// length 1, axes that `to` lacks dropped (they must have length 1). A letter of `to` that `from` lacks is taken from
/// its kin if that is free: G and H, D and E, S and T, N or M and H. Throws Error naming `name`.
Tensor arranged(const Tensor& t, const std::string& from, const std::string& to, const std::string& name);

/// Slices of axis 0 in this order; a slice may come twice. Throws Error that begins with `place` for one that is none.
Tensor picked(const Tensor& t, const std::vector<int64_t>& order, const std::string& place);

}  // namespace motet
