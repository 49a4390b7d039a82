#include "motet/layers/preparable.h"

namespace motet {

void Preparable::train(bool on) {
  if (on) drop_prepared();
  Module::train(on);
}

void Preparable::to(at::Device device, at::ScalarType type, bool non_blocking) {
  drop_prepared();
  Module::to(device, type, non_blocking);
}

void Preparable::to(at::ScalarType type, bool non_blocking) {
  drop_prepared();
  Module::to(type, non_blocking);
}

void Preparable::to(at::Device device, bool non_blocking) {
  drop_prepared();
  Module::to(device, non_blocking);
}

}  // namespace motet
