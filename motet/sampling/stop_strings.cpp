#include "motet/sampling/stop_strings.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace motet {

std::string StopStrings::push(const std::string& text) {
  held_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = stop.empty() ? first : std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    return held_.substr(0, first);
  }
  size_t keep = 0;
  for (const std::string& stop : stops_)
    for (size_t n = std::min(stop.size(), held_.size()); n > keep; --n)
      if (held_.ends_with(std::string_view(stop).substr(0, n))) keep = n;
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::rest() { return stopped_ ? "" : std::exchange(held_, ""); }

}  // namespace motet
