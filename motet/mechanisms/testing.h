#pragma once
#include "motet/mechanisms/mechanism.h"

// A mechanism in float64 with random parameters, for tests.
namespace motet::testing {

struct Made {
  nlohmann::json options;  // [model.attention]
  int64_t hidden_size = 16, layer = 1;
  bool causal = true;
  int64_t memory_size = 0, max_position = 8;
};

inline std::ostream& operator<<(std::ostream& out, const Made& m) { return out << m.options << " layer " << m.layer; }

inline std::shared_ptr<Mechanism> make(const Made& m) {
  const Setting setting{.hidden_size = m.hidden_size,
                        .memory_size = m.memory_size,
                        .layer = m.layer,
                        .num_layers = 4,
                        .causal = m.causal,
                        .max_position = m.max_position,
                        .options = resolve_attention(m.options, "model.attention")};
  auto mechanism = make_mechanism(setting);
  mechanism->to(at::kDouble);
  at::NoGradGuard no_grad;
  at::manual_seed(1);
  for (Tensor p : mechanism->parameters()) p.normal_(0, 0.25);
  return mechanism;
}

inline Positions span_of(int64_t begin, int64_t end) { return Positions::range(begin, end, end); }

}  // namespace motet::testing
