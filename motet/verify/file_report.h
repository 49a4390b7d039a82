#pragma once
#include <string>
#include <vector>

namespace motet {

/// One recomputed tensor and its error: infinite when infinities, NaN or the shape differ, or a mask does anywhere.
struct Deviation {
  std::string tensor;
  double error = 0;
  double tolerance = 0;
  bool passed() const { return error <= tolerance; }
};

/// All tensors of one kind.
struct Findings {
  std::vector<Deviation> all;
  /// Null when there are none.
  const Deviation* worst() const;
};

struct FileReport {
  std::string path, program, mechanism;  // mechanism: of a layer
  Findings outputs, mids, variants, gradients, masks;

  std::vector<const Findings*> groups() const { return {&outputs, &mids, &variants, &gradients, &masks}; }
  const Deviation* worst() const;
  std::vector<Deviation> failing() const;
  /// Those that the file itself allows more than `tolerance`.
  std::vector<Deviation> loosened(double tolerance) const;
  bool passed() const { return failing().empty(); }
};

}  // namespace motet
