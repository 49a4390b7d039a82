#include "motet/mechanisms/mechanism.h"

namespace motet {

Tensor Mechanism::forward(const Tensor& x, const Positions& at, const Tensor& memory, const Positions& memory_at) {
  const bool self = !memory.defined();
  const Positions& keys_at = self ? at : memory_at;
  Attention how = attention(at, keys_at, Pass::whole);
  how.precision = precision;
  const Attended done = composed_attention(queries(x, at), keys(self ? x : memory, keys_at), how);
  return finish(done.out_BTHE, x);
}

}  // namespace motet
