#pragma once
#include "motet/mechanisms/coca/collinear.h"
#include "motet/mechanisms/projected.h"

namespace motet {

struct CocaOptions {
  CocaForm form = CocaForm::exact;
};

/// Collinear constrained attention: the key is built so that its angle to the query under rotary embedding starts at 0.
/// Every form is a feature map of q and k at the cost of ordinary attention. README.md of this folder.
class Coca : public Projected {
 public:
  explicit Coca(const Setting&);
  Keys keys(const Tensor& memory_BSC, const Positions&) override;
  Keys compact_keys(const Tensor& memory_BSC, const Positions&) override;
  Keys restore(const Keys& compact, const Positions&) override;
  Queries queries(const Tensor& x_BTC, const Positions&) override;

 private:
  Collinear collinear_;
};

MechanismEntry coca_entry();

}  // namespace motet
