#pragma once
#include <optional>

#include "motet/layers/rotary.h"

namespace motet {

/// exact: the paper's score; slack: the released code; strict: queries tied too.
enum class CocaForm { exact, slack, strict };

/// The feature maps of queries and keys by which their angle under rotary embedding starts at 0; README.md.
class Collinear {
 public:
  /// Throws UsageError for a key width or a rotary embedding that the form is not defined for.
  Collinear(CocaForm, int64_t key_dim, const Rotary&);

  /// q [B,T,H,D], normed and not rotated -> q' [B,T,H,D].
  Tensor query(const Tensor& q_BTHD, const Rotary&, const Positions&) const;
  /// k [B,S,G,D], likewise -> h [B,S,G,D/2], all that a cache needs, and k' [B,S,G,D] of it.
  Tensor compact(const Tensor& k_BSGD) const;
  Tensor key(const Tensor& h_BSGD, const Rotary&, const Positions&) const;

 private:
  CocaForm form_;
};

}  // namespace motet
