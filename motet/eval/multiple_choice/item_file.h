#pragma once
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "motet/report/metrics.h"

namespace motet {

/// The results of an evaluation item by item, one JSON object a line after a head that says which evaluation it is; an
/// evaluation that was interrupted goes on from it. Lines come in the order of the work.
class ItemFile {
 public:
  /// Empty path: nothing is kept. A new file begins with `head`. In an older one the head must be the same; what it
  /// holds of whole batches (of so many items each) stays, the rest is taken off, so that the work that is done again
  /// leaves the bytes of a run without interruption. Throws Error naming the file: another evaluation, no such file of
  /// ours, a line that `is_line` (its number, from 0) refuses.
  ItemFile(const std::filesystem::path&, const nlohmann::json& head, const std::vector<size_t>& batch_sizes,
           const std::function<bool(size_t, const nlohmann::json&)>& is_line);

  /// The lines that are there, of whole batches.
  const std::vector<nlohmann::json>& done() const { return done_; }
  void append(const std::vector<nlohmann::json>& batch);

 private:
  std::optional<MetricsWriter> writer_;
  std::vector<nlohmann::json> done_;
};

}  // namespace motet
