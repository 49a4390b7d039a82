#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motet/layers/options.h"
#include "motet/ops/torch.h"

namespace motet {

/// cos and sin [1 or B, T, 1, dims/2] in float32 (float64 on request).
struct RotaryTables {
  Tensor cos, sin;
};

/// Where tokens stand: 0-based integers in their own sequence, [T] or [B,T], and the length L that dynamic scaling is
/// based on: the planned total length of a request, T in training and scoring. Layers share the tables made for it.
/// With documents [B,T] a token sees those of its own document alone. `parts`: several sequences behind each other,
/// each with a length of its own, which tables are made for one by one.
struct Positions {
  Tensor at;
  int64_t length = 0;
  std::shared_ptr<std::map<std::string, RotaryTables>> tables = std::make_shared<std::map<std::string, RotaryTables>>();
  Tensor documents_BT = {};  // int64
  std::vector<Positions> parts = {};

  static Positions range(int64_t begin, int64_t end, int64_t length, at::Device device = at::kCPU);
  /// One behind the other, [T] each.
  static Positions joined(std::vector<Positions> parts);
  /// Rows that several documents share: positions begin anew where the number of the document changes. L is T.
  static Positions packed(const Tensor& documents_BT);
};

class Rotary {
 public:
  Rotary() = default;
  /// Of options that fit each other, as rotary_of (motet/mechanisms/projected.h) asks of a model's.
  explicit Rotary(RotaryOptions);

  bool active() const { return options_.dims > 0; }
  const RotaryOptions& options() const { return options_; }

  /// theta_j [dims/2] float64 as used at length L, before linear scaling divides the positions.
  Tensor inverse_frequencies(int64_t length, at::Device = at::kCPU) const;
  RotaryTables tables(const Positions&, at::ScalarType) const;

  /// x [B,T,H,D] rotated in at least float32, returned in x's dtype.
  Tensor operator()(const Tensor& x_BTHD, const Positions&) const;

 private:
  RotaryOptions options_;
  std::string key_;  // of its tables
};

}  // namespace motet
