#pragma once
#include <string>
#include <vector>

namespace motet {

/// A text that ends before the first of several strings. What could be the beginning of one is held back.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// The text that is certain now; sets stopped().
  std::string push(const std::string& text);
  /// What was held back, at the text's end.
  std::string rest();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace motet
